"""Checks of what a suite lists: names, splits, tasks."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from dreamgym.envs.base import Suite
from dreamgym.envs.check.probe import Failed, Probe, Skipped, shorten
from dreamgym.errors import FaultError, UserError
from dreamgym.types import Task

UNKNOWN_SPLITS = ("no such split", "", "Train ")


async def interface(probe: Probe) -> str:
    """The suite has a name, `tasks` and `open`."""
    if not isinstance(probe.suite, Suite):
        raise Failed("an attribute of `Suite` is missing: name, tasks or open")
    if not isinstance(probe.suite.name, str) or not probe.suite.name.strip():
        raise Failed(f"name is {probe.suite.name!r}")
    return f"name {probe.suite.name!r}, tasks and open"


async def task_list(probe: Probe) -> str:
    """The tasks are well-formed, in a fixed order, with ids that occur once."""
    tasks = list(probe.suite.tasks(probe.split))
    for task in tasks:
        _check_task(probe, task)
    ids = [task.id for task in tasks]
    if len(set(ids)) < len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise Failed(f"id {twice!r} occurs more than once in split {probe.split!r}")
    if list(probe.suite.tasks(probe.split)) != tasks:
        raise Failed("asked twice, the tasks or their order differ")
    return f"{len(tasks)} task(s) in {probe.split!r}, the same twice"


async def splits(probe: Probe) -> str:
    """Every split named in `splits` can be listed and no task is in two of them."""
    names = tuple(getattr(probe.suite, "splits", ()))
    if not names:
        raise Skipped("the suite does not name its splits; give it an attribute `splits`")
    owner: dict[str, str] = {}
    for name in names:
        for task in probe.suite.tasks(name):
            if owner.setdefault(task.id, name) != name:
                raise Failed(f"task {task.id!r} is in {owner[task.id]!r} and in {name!r}")
    return f"{', '.join(names)}: {len(owner)} tasks, none in two"


async def unknown_split(probe: Probe) -> str:
    """A split that does not exist is refused by name."""
    for name in UNKNOWN_SPLITS:
        try:
            tasks = probe.suite.tasks(name)
        except UserError:
            continue
        except Exception as error:
            raise Failed(f"tasks({name!r}) raised {type(error).__name__}: {error}") from error
        raise Failed(f"tasks({name!r}) returned {len(tasks)} task(s)")
    return f"{len(UNKNOWN_SPLITS)} unknown names refused"


async def foreign_task(probe: Probe) -> str:
    """A task that is not the suite's is refused, never played as another one."""
    foreign = replace(probe.tasks[0], id="no-such-task", suite="elsewhere")
    try:
        env = probe.suite.open(foreign, seed=0)
        try:
            first = await probe.within(env.start(), "start")
        finally:
            await probe.close(env)
    except (UserError, FaultError) as error:
        return f"refused: {error}"
    except Failed:
        raise
    except Exception as error:
        raise Failed(f"raised {type(error).__name__}: {error}") from error
    raise Failed(f"it was played: {shorten(first.text)}")


def _check_task(probe: Probe, task: Task) -> None:
    if not isinstance(task, Task):
        raise Failed(f"a task is a {type(task).__name__}")
    if task.suite != probe.suite.name:
        raise Failed(f"task {task.id!r} says suite {task.suite!r}")
    if task.split != probe.split:
        raise Failed(f"task {task.id!r} of split {probe.split!r} says split {task.split!r}")
    if not task.id or not task.instruction.strip():
        raise Failed(f"task {task.id!r} has the instruction {task.instruction!r}")
    try:
        again = msgspec.json.decode(msgspec.json.encode(task), type=Task)
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError) as error:
        raise Failed(f"task {shorten(task.id)} cannot be written as JSON: {error}") from error
    if again != task:
        raise Failed(f"task {task.id!r} is another one after a trip through JSON")
