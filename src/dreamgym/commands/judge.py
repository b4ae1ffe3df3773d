"""`dreamgym judge`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dreamgym.commands.common import (
    PREFIX,
    print_json,
    print_settings,
    print_table,
    recipe_flags,
    resolve,
    setting,
)

if TYPE_CHECKING:
    from dreamgym.judge.run import Judged
    from dreamgym.stats import Mean


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym judge`."""
    parser.add_argument("run", nargs="?", default=None, help="run folder with recorded episodes")
    setting(parser, "--real", "real", "record file of real episodes", action="append")
    setting(parser, "--dream", "dream", "record file of dreamt episodes", action="append")
    setting(parser, "--url", "endpoint.url", "OpenAI-compatible endpoint of the judge")
    setting(parser, "--name", "endpoint.model", "the judge's model name at the endpoint")
    setting(parser, "--model", "model", "a model folder as judge, instead of an endpoint")
    setting(parser, "--prices", "endpoint.prices", "TOML file with prices per million tokens")
    setting(parser, "--money", "endpoint.budget.money", "most money to spend", type=float)
    setting(parser, "--calls", "endpoint.budget.calls", "most requests to make", type=int)
    setting(parser, "--pairs", "pairs", "pairs of trajectories (default 100)", type=int)
    setting(parser, "--out", "out", "folder of the result (default RUN/judge)")
    setting(parser, "--seed", "seed", "seed (default 0)", type=int)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    recipe_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Judge, print, and return the exit code."""
    from dreamgym.judge.run import JudgeSettings, run_judge

    if options.run is not None:
        setattr(options, f"{PREFIX}run", options.run)
    settings = resolve(options, JudgeSettings, "judge")
    if options.dry_run:
        return print_settings(settings)
    found, folder = run_judge(settings)
    if options.json:
        print_json(found)
    else:
        show(found)
        print(folder / "judge.json")
    return 0


def show(found: Judged) -> None:
    """Print the points per rubric, warnings first."""
    result = found.result
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print_table(
        ("rubric (0-2)", "real", "dream", "dream - real"),
        [
            (name, _mean(one.real), _mean(one.dream), _mean(one.difference))
            for name, one in result.rubrics.items()
        ],
    )
    print(
        f"{result.num_scored} of {result.num_pairs} pairs scored by {result.judge} "
        f"({result.num_same_task} of one task), {result.num_unscorable} unscorable"
    )
    if result.position_bias is not None:
        print(f"standing first is worth {_mean(result.position_bias)} points")
    if found.spent is not None:
        money = "unknown" if found.spent.money is None else f"{found.spent.money:.4f}"
        print(f"{found.spent.calls} calls, money spent: {money}")


def _mean(value: Mean) -> str:
    interval = value.ci95
    if interval is None:
        return f"{value.value:.2f}"
    return f"{value.value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"
