"""The commands of the command line: arguments in, library calls, exit code out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

Add = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", default="tiny", help="tiny (default) or smollm2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--algorithm", default="grpo", help="grpo (default) or ppo")
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


def _run_demo(options: argparse.Namespace) -> int:
    import shutil

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
    if options.fresh and path.exists():
        shutil.rmtree(path)
    run_demo(config, path)
    return 0


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("others", type=Path, nargs="*", help="further runs to compare with")


def _run_report(options: argparse.Namespace) -> int:
    from dreamgym.report import build_report

    print(build_report(options.run, other_runs=options.others))
    return 0


COMMANDS: dict[str, tuple[Add, Run, str]] = {
    "demo": (_add_demo, _run_demo, "the whole method end to end on the household suite"),
    "report": (_add_report, _run_report, "write the HTML page of a run"),
}
"""Name -> (adds arguments, runs, one line of help)."""
