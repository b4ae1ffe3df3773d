"""`dreamgym env list | parity | play`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym.commands.common import suite_flags
from dreamgym.errors import unknown_name

if TYPE_CHECKING:
    from dreamgym.envs.base import Suite
    from dreamgym.types import Task

ACTIONS = ("list", "parity", "play")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym env`."""
    parser.add_argument("action", nargs="?", default="list", metavar="|".join(ACTIONS))
    parser.add_argument("name", nargs="?", default="household", help="suite (default household)")
    parser.add_argument("--golden", type=Path, help="parity: recorded episodes to compare with")
    parser.add_argument("--games", type=Path, help="parity: the games (default: beside --golden)")
    parser.add_argument("--split", default="train", help="play: split (default train)")
    parser.add_argument("--index", type=int, default=0, help="play: which task of the split")
    suite_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Do what was asked and return the exit code."""
    from dreamgym.envs.table import SUITES

    if options.action not in ACTIONS:
        raise unknown_name("env action", options.action, ACTIONS)
    if options.action == "list":
        return _list()
    if options.name not in SUITES:
        raise unknown_name("suite", options.name, SUITES)
    return _parity(options) if options.action == "parity" else _play(options)


def _list() -> int:
    from dreamgym.envs.table import READERS, SUITES, make_suite

    for name in sorted(SUITES):
        suite = make_suite(name)
        splits = ", ".join(getattr(suite, "splits", ()))
        reader = "can be dreamt" if name in READERS else "no state reader"
        print(f"{name}: splits {splits}; {reader}")
    return 0


def _parity(options: argparse.Namespace) -> int:
    from dreamgym.envs.household.parity import run_parity
    from dreamgym.errors import ConfigError

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

    from dreamgym.envs.table import make_suite
    from dreamgym.errors import ConfigError
    from dreamgym.pipeline.settings import parse_options

    suite = make_suite(options.name, **(parse_options(options.option) or {}))
    tasks = suite.tasks(options.split)
    if not 0 <= options.index < len(tasks):
        raise ConfigError(f"index must be in 0..{len(tasks) - 1}; got {options.index}")
    asyncio.run(_by_hand(suite, tasks[options.index]))
    return 0


async def _by_hand(suite: Suite, task: Task) -> None:
    """Let whoever writes to standard input act; an empty line lists actions, the end ends it."""
    env = suite.open(task, seed=0)
    try:
        observation = await env.start()
        while True:
            print(observation.text)
            print("> ", end="", flush=True)
            line = sys.stdin.readline()
            if not line:
                return
            action = line.strip()
            if not action:
                print("\n".join(observation.actions or ()))
                continue
            step = await env.step(action)
            observation = step.observation
            if step.terminated or step.truncated:
                print(observation.text)
                print("success" if step.success else "not solved")
                return
    finally:
        await env.close()
