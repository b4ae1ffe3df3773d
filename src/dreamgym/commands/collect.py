"""`dreamgym collect`."""

from __future__ import annotations

import argparse

from dreamgym.commands.common import (
    print_settings,
    print_table,
    recipe_flags,
    resolve,
    setting,
    suite_flags,
    switch,
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym collect`."""
    suite_flags(parser)
    setting(
        parser,
        "--policy",
        "policy",
        "a policy of the suite (expert, searcher, ...) or a model folder; may be repeated",
        action="append",
    )
    setting(parser, "--split", "split", "split to play (default train)")
    setting(parser, "--tasks", "tasks", "number of tasks (default 200)", type=int)
    setting(parser, "--episodes", "episodes", "episodes per task and policy", type=int)
    setting(parser, "--budget", "budget", "largest number of real transitions", type=int)
    setting(parser, "--out", "out", "record file (default logs.jsonl)")
    setting(parser, "--seed", "seed", "seed (default 0)", type=int)
    switch(
        parser,
        "--allow-evaluation-split",
        "allow_evaluation_split",
        "log an evaluation split although nothing may be trained on it",
    )
    recipe_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Play, print what is in the file, and return the exit code."""
    from dreamgym.pipeline.collecting import CollectSettings, collect_logs

    settings = resolve(options, CollectSettings, "collect")
    if options.dry_run:
        return print_settings(settings)
    report = collect_logs(settings)
    print_table(
        ("file", "episodes", "successes", "transitions", "faults", "cut", "not played again"),
        [
            (
                settings.out,
                report.num_episodes,
                report.num_successes,
                report.num_transitions,
                report.num_faults,
                report.num_cut,
                report.num_skipped,
            )
        ],
    )
    return 0
