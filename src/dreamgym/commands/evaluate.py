"""`dreamgym evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym.commands.common import (
    print_json,
    print_settings,
    print_table,
    recipe_flags,
    resolve,
    setting,
    share,
    suite_flags,
    switch,
)

if TYPE_CHECKING:
    from dreamgym.evaluate import Evaluation


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym evaluate`."""
    setting(parser, "--policy", "policy", "a policy of the suite or a model folder")
    suite_flags(parser)
    setting(parser, "--split", "split", "split (default valid_unseen)")
    setting(parser, "--tasks", "tasks", "number of tasks (default 200)", type=int)
    setting(parser, "--attempts", "attempts", "episodes per task (default 1)", type=int)
    switch(parser, "--greedy", "greedy", "temperature 0")
    setting(parser, "--seed", "seed", "seed of the panel (default 0)", type=int)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--out", type=Path, default=None, help="also write everything, every episode, to this file"
    )
    recipe_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Evaluate, print, and return the exit code."""
    from dreamgym.pipeline.evaluating import EvaluateSettings, evaluate_policy
    from dreamgym.records import write_json_atomic

    settings = resolve(options, EvaluateSettings, "evaluate")
    if options.dry_run:
        return print_settings(settings)
    result = evaluate_policy(settings)
    if options.out is not None:
        write_json_atomic(options.out, result)
    if options.json:
        from msgspec.structs import replace

        print_json(replace(result, outcomes=()))
    else:
        show(result)
    return 0


def show(result: Evaluation) -> None:
    """Print an evaluation as a table by task type."""
    rows = [*result.by_kind.items(), ("all", result.success)]
    print(f"{result.policy} in {result.suite} ({result.origin.value}, {result.mode})")
    print_table(
        ("task type", "n", "success [95 %]"),
        [(kind or "(none)", rate.n, share(rate.value, rate.ci95)) for kind, rate in rows],
    )
    print(
        f"{result.num_transitions} transitions, {result.mean_steps:.1f} steps per episode, "
        f"{result.num_faults} faults"
    )
