"""`dreamgym demo`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dreamgym.commands.common import open_folder


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym demo`."""
    parser.add_argument("--preset", default="tiny", help="tiny: small models from scratch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--algorithm", default="grpo", help="grpo (default), gigpo or ppo")
    parser.add_argument("--naive", action="store_true", help="only the run without grounding")
    parser.add_argument("--out", type=Path, default=None, help="run folder (default runs/demo)")
    parser.add_argument(
        "--fresh", action="store_true", help="delete an earlier run in the folder and start over"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="change one setting, e.g. --set dream_loop.iterations=20",
    )


def run(options: argparse.Namespace) -> int:
    """Run the demo and return the exit code."""
    # Waiting threads spin for a short while only: with another process on the machine, long
    # spinning makes the small steps of small models many times slower.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    from msgspec.structs import replace

    from dreamgym.config import override
    from dreamgym.demo.config import preset
    from dreamgym.demo.run import run_demo
    from dreamgym.rl.algorithm import make_algorithm

    make_algorithm(options.algorithm)  # refuses unknown names before anything is written
    config = replace(
        preset(options.preset),
        seed=options.seed,
        algorithm=options.algorithm,
        is_naive=options.naive,
    )
    config = override(config, options.overrides)
    path = options.out or Path("runs") / ("demo-naive" if options.naive else "demo")
    run_demo(config, open_folder(str(path), resume=False, fresh=options.fresh))
    return 0
