"""The table of checks and running them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from dreamgym.envs.base import Suite
from dreamgym.envs.check import of_actions, of_episodes, of_process, of_tasks
from dreamgym.envs.check.probe import CheckSettings, Failed, Probe, Skipped
from dreamgym.envs.check.report import CheckReport, CheckResult, Status
from dreamgym.errors import unknown_name


class Check(NamedTuple):
    """One check: what it expects and how it looks; returns what was seen or raises."""

    expected: str
    look: Callable[[Probe], Awaitable[str]]


CHECKS: dict[str, Check] = {
    "interface": Check("name, tasks(split), open(task, seed=...)", of_tasks.interface),
    "task list": Check("well-formed tasks, unique ids, a fixed order", of_tasks.task_list),
    "splits": Check("every named split listed, no task in two", of_tasks.splits),
    "unknown split": Check("ConfigError for a split that is not there", of_tasks.unknown_split),
    "foreign task": Check("an error for a task of another suite", of_tasks.foreign_task),
    "first observation": Check("text with the instruction", of_episodes.first_observation),
    "same start": Check("one first text for all attempts", of_episodes.same_start),
    "same again": Check("same task, seed, actions: same answers", of_episodes.same_again),
    "other process": Check("the same answers in another process", of_process.other_process),
    "step records": Check("well-formed steps", of_actions.step_records),
    "admissible actions": Check("every listed action carried out", of_actions.admissible),
    "bad actions": Check("an answer without reward, nothing executed", of_actions.bad_actions),
    "unicode": Check("an answer that can be written as UTF-8", of_actions.unicode_text),
    "long text": Check("an answer to a very long action", of_actions.long_text),
    "honest end": Check("no success for nothing, truncation at the limit", of_actions.honest_end),
    "single use": Check("FaultError outside start ... close", of_episodes.single_use),
    "close twice": Check("no error", of_episodes.close_twice),
    "side by side": Check("the records of episodes played alone", of_episodes.side_by_side),
    "global state": Check("nothing global changed", of_process.global_state),
}
"""Name -> check, in the order they run."""


def check_suite(
    suite: Suite, settings: CheckSettings | None = None, *, spec: str = ""
) -> CheckReport:
    """Run every check on a suite and return what each saw.

    `spec` names the suite as `dreamgym env check` does; with it the suite is also played in other
    processes.  In a test: `check_suite(MySuite()).raise_for_failures()`.
    Raises `UserError` when the suite has no such split or its data is missing.
    """
    probe = Probe(suite, settings or CheckSettings(), spec=spec)
    results = asyncio.run(_run_all(probe))
    return CheckReport(suite=str(suite.name), split=probe.split, results=tuple(results))


def check_named(
    name: str, suite: Suite, settings: CheckSettings | None = None, *, spec: str = ""
) -> CheckResult:
    """Run one check by name, e.g. to parametrise a test over `CHECKS`."""
    if name not in CHECKS:
        raise unknown_name("check", name, CHECKS)
    probe = Probe(suite, settings or CheckSettings(), spec=spec)
    return asyncio.run(_run_one(name, probe))


async def _run_all(probe: Probe) -> list[CheckResult]:
    return [await _run_one(name, probe) for name in CHECKS]


async def _run_one(name: str, probe: Probe) -> CheckResult:
    status: Status = "pass"
    try:
        seen = await CHECKS[name].look(probe)
    except Skipped as reason:
        status, seen = "skip", str(reason)
    except Failed as reason:
        status, seen = "fail", str(reason)
    except Exception as error:  # a broken suite may raise anything, and that is the finding
        status, seen = "fail", f"{type(error).__name__}: {error}"
    return CheckResult(name=name, status=status, expected=CHECKS[name].expected, seen=seen)
