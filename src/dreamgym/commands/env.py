"""`dreamgym env list | info | check | play | parity`.

A suite is a name of the table or, for `info`, `check` and `play`, `module:factory`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym.commands.common import print_json, suite_flags
from dreamgym.errors import ConfigError, UserError, unknown_name

if TYPE_CHECKING:
    from dreamgym.envs.base import Suite

ACTIONS = ("list", "info", "check", "play", "parity")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym env`."""
    parser.add_argument("action", nargs="?", default="list", metavar="|".join(ACTIONS))
    parser.add_argument(
        "name", nargs="?", default="household", help="suite or module:factory (default household)"
    )
    parser.add_argument("--golden", type=Path, help="parity: recorded episodes to compare with")
    parser.add_argument("--games", type=Path, help="parity: the games (default: beside --golden)")
    parser.add_argument("--split", default="", help="check, play: split (default train)")
    parser.add_argument("--index", type=int, default=0, help="play: which task of the split")
    parser.add_argument("--tasks", type=int, default=3, help="check: tasks played (default 3)")
    parser.add_argument("--steps", type=int, default=8, help="check: steps a walk (default 8)")
    parser.add_argument(
        "--tried", type=int, default=60, help="check: admissible actions tried a task (default 60)"
    )
    parser.add_argument("--json", action="store_true", help="check: print the report as JSON")
    parser.add_argument(
        "--abstract", action="store_true", help="check, play: see pages as abstract states"
    )
    suite_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Do what was asked and return the exit code."""
    from dreamgym.envs.table import SUITES

    if options.action not in ACTIONS:
        raise unknown_name("env action", options.action, ACTIONS)
    if options.action == "list":
        return _list()
    if ":" not in options.name and options.name not in SUITES:
        raise unknown_name("suite", options.name, SUITES)
    actions = {"info": _info, "check": _check, "play": _play, "parity": _parity}
    return actions[options.action](options)


def _list() -> int:
    from dreamgym.envs.table import READERS, SUITES, make_suite

    for name in sorted(SUITES):
        reader = "can be dreamt" if name in READERS else "no state reader"
        try:
            suite = make_suite(name)
            getattr(suite, "check_ready", lambda: None)()
            splits = ", ".join(getattr(suite, "splits", ()))
        except UserError as error:  # an extra or data is missing: the others are still listed
            print(f"{name}: not ready: {error}")
        else:
            print(f"{name}: splits {splits}; {reader}")
    return 0


def _suite(options: argparse.Namespace) -> tuple[Suite, str]:
    """Return the suite that was named, and the text another process can make it from or ""."""
    from dreamgym.envs.check.spec import make_spec, open_suite
    from dreamgym.pipeline.settings import parse_options

    given = parse_options(options.option) or {}
    suite = open_suite(options.name, given)
    if options.abstract:
        from dreamgym.abstraction import AbstractSuite

        return AbstractSuite(suite), ""
    return suite, make_spec(options.name, given)


def _info(options: argparse.Namespace) -> int:
    from dreamgym.commands.playing import describe

    suite, _ = _suite(options)
    for line in describe(options.name, suite):
        print(line)
    return 0


def _check(options: argparse.Namespace) -> int:
    from dreamgym.envs.check import CheckSettings, check_suite

    settings = CheckSettings(
        split=options.split,
        num_tasks=options.tasks,
        num_steps=options.steps,
        num_admissible=options.tried,
    )
    suite, spec = _suite(options)
    report = check_suite(suite, settings, spec=spec)
    if options.json:
        print_json(report)
    else:
        print("\n".join(report.lines()))
        print(report.summary())
    return 0 if report.is_ok else 1


def _parity(options: argparse.Namespace) -> int:
    from dreamgym.envs.household.parity import run_parity

    if options.name != "household":
        raise unknown_name("suite with recordings", options.name, ("household",))
    if options.golden is None:
        raise ConfigError("parity needs --golden with the recorded episodes of the genuine engine")
    report = run_parity(options.golden, options.games)
    print(report.summary())
    for difference in report.differences:
        print(difference, file=sys.stderr)
    return 0 if report.is_equal else 1


def _play(options: argparse.Namespace) -> int:
    import asyncio

    from dreamgym.commands.playing import play_by_hand
    from dreamgym.envs.check.probe import default_split

    suite, _ = _suite(options)
    tasks = suite.tasks(options.split or default_split(suite))
    if not 0 <= options.index < len(tasks):
        raise ConfigError(f"index must be in 0..{len(tasks) - 1}; got {options.index}")
    asyncio.run(play_by_hand(suite, tasks[options.index]))
    return 0
