"""A small correct suite, and one broken variant per check of the conformance checker."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from dreamgym.errors import DataError, EnvError, unknown_name
from dreamgym.types import Observation, Step, Task

NOTHING = "Nothing happens."


class Corridor:
    """One episode: walk along numbered rooms to the right one and open the chest there."""

    def __init__(self, task: Task, max_steps: int) -> None:
        self.task = task
        self.goal = int(task.id.rpartition("-")[2]) % 3 + 2
        self.max_steps = max_steps
        self.place, self.steps, self.state = 0, 0, "new"

    async def start(self) -> Observation:
        if self.state != "new":
            raise EnvError("used once")
        self.state = "running"
        return Observation(
            text=f"You are in room 0 of 5. Task: {self.task.instruction}", actions=self.actions()
        )

    async def step(self, action: str) -> Step:
        if self.state != "running":
            raise EnvError("not running")
        self.steps += 1
        text, won = self.apply(action)
        cut = not won and self.steps >= self.max_steps
        self.state = "over" if won or cut else "running"
        return Step(
            observation=Observation(text=text, actions=self.actions()),
            reward=float(won),
            terminated=won,
            truncated=cut,
            success=won,
            flags=("no_effect",) if text == NOTHING else (),
        )

    async def close(self) -> None:
        self.state = "closed"

    def actions(self) -> tuple[str, ...]:
        moves = ("go back",) * (self.place > 0) + ("go on",) * (self.place < 5)
        return (*moves, "say <words>", *(("open chest",) if self.place == self.goal else ()))

    def apply(self, action: str) -> tuple[str, bool]:
        if action.startswith("say ") and len(action) < 80:
            return f"Your voice echoes in room {self.place}.", False
        if action not in self.actions():
            return NOTHING, False
        if action == "open chest":
            return "The chest is open.", True
        self.place += 1 if action == "go on" else -1
        return f"You are in room {self.place}.", False


class CorridorSuite:
    """Walk along a corridor."""

    name = "corridor"
    splits: tuple[str, ...] = ("train", "test")
    env: Any = Corridor  # Any: broken variants put other classes here

    def __init__(self, *, num_tasks: int = 4, max_steps: int = 12) -> None:
        self.num_tasks, self.max_steps = num_tasks, max_steps

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise unknown_name("split", split, self.splits)
        return [self.task(split, i) for i in range(self.num_tasks)]

    def task(self, split: str, number: int) -> Task:
        goal = number % 3 + 2
        return Task(
            id=f"{split}-{number}",
            suite=self.name,
            instruction=f"open the chest in room {goal}",
            split=split,
        )

    def open(self, task: Task, *, seed: int) -> Any:
        if task.suite != self.name:
            raise DataError(f"task {task.id!r} is not of this suite")
        return self.env(task, self.max_steps)


def broken(**changed: Any) -> CorridorSuite:
    """Return a suite whose episodes have these methods instead of the right ones."""
    env = type("Broken", (Corridor,), changed)
    return type("BrokenSuite", (CorridorSuite,), {"env": env})()  # type: ignore[no-any-return]


def broken_suite(**changed: Any) -> CorridorSuite:
    """Return a suite with these attributes instead of the right ones."""
    return type("BrokenSuite", (CorridorSuite,), changed)()  # type: ignore[no-any-return]


class Nameless:
    """No `open`."""

    name = "nameless"

    def tasks(self, split: str) -> Sequence[Task]:
        return CorridorSuite().tasks("train")


def lists_twice(self: CorridorSuite, split: str) -> Sequence[Task]:
    return [*CorridorSuite.tasks(self, split), CorridorSuite.tasks(self, split)[0]]


_asked = [0]


def rotates(self: CorridorSuite, split: str) -> Sequence[Task]:
    tasks = list(CorridorSuite.tasks(self, split))
    _asked[0] += 1
    return tasks[_asked[0] % 2 :]


def same_ids(self: CorridorSuite, split: str) -> Sequence[Task]:
    return [replace(t, id=t.id.replace("test", "train")) for t in CorridorSuite.tasks(self, split)]


def any_split(self: CorridorSuite, split: str) -> Sequence[Task]:
    return [self.task("train", i) for i in range(3)]


def key_error(self: CorridorSuite, split: str) -> Sequence[Task]:
    return {name: CorridorSuite.tasks(self, name) for name in self.splits}[split]


def opens_anything(self: CorridorSuite, task: Task, *, seed: int) -> Any:
    return self.env(self.task("train", 1), self.max_steps)


def seeded_start(self: CorridorSuite, task: Task, *, seed: int) -> Any:
    env = CorridorSuite.open(self, task, seed=seed)
    env.place = seed % 2
    env.task = replace(
        task, instruction=f"{task.instruction} ({'even' if seed % 2 == 0 else seed})"
    )
    return env


def with_fault(self: CorridorSuite, task: Task, *, seed: int) -> Any:
    raise TypeError("cannot open")


async def vague_start(self: Corridor) -> Observation:
    await Corridor.start(self)
    return Observation(text="You are somewhere.", actions=self.actions())


async def noisy_step(self: Corridor, action: str) -> Step:
    step = await Corridor.step(self, action)
    return _with_text(step, f"{step.observation.text} {random.random():.6f}")


_counter = [0]


async def counting_start(self: Corridor) -> Observation:
    first = await Corridor.start(self)
    _counter[0] += 1
    return replace(first, text=f"{first.text} Game {_counter[0]}.")


async def hashing_step(self: Corridor, action: str) -> Step:
    step = await Corridor.step(self, action)
    return _with_text(step, f"{step.observation.text} {hash('corridor') % 1000}")


async def nan_step(self: Corridor, action: str) -> Step:
    return replace(await Corridor.step(self, action), reward=float("nan"))


async def early_success(self: Corridor, action: str) -> Step:
    return replace(await Corridor.step(self, action), success=True)


async def tuple_step(self: Corridor, action: str) -> Any:
    step = await Corridor.step(self, action)
    return step.observation.text, step.reward, step.terminated, {}


def boasting_actions(self: Corridor) -> tuple[str, ...]:
    return (*Corridor.actions(self), "fly to the moon")


def boasting_apply(self: Corridor, action: str) -> tuple[str, bool]:
    return (NOTHING, False) if action == "fly to the moon" else Corridor.apply(self, action)


def doubled_actions(self: Corridor) -> tuple[str, ...]:
    return (*Corridor.actions(self), "go on")


async def raising_step(self: Corridor, action: str) -> Step:
    if not action.strip():
        raise ValueError("empty action")
    return await Corridor.step(self, action)


async def generous_step(self: Corridor, action: str) -> Step:
    step = await Corridor.step(self, action)
    return replace(step, reward=1.0) if action == "click[" else step


async def executing_step(self: Corridor, action: str) -> Step:
    if action.startswith("__import__"):
        exec(action)  # the very mistake the check is for
    return await Corridor.step(self, action)


async def latin_step(self: Corridor, action: str) -> Step:
    action.encode("latin-1")
    return await Corridor.step(self, action)


async def surrogate_step(self: Corridor, action: str) -> Step:
    return _with_text(await Corridor.step(self, action), f"You said {action}.")


async def short_step(self: Corridor, action: str) -> Step:
    if len(action) > 1000:
        raise OverflowError("line too long")
    return await Corridor.step(self, action)


async def limit_terminates(self: Corridor, action: str) -> Step:
    step = await Corridor.step(self, action)
    return replace(step, terminated=step.terminated or step.truncated, truncated=False)


async def limit_wins(self: Corridor, action: str) -> Step:
    step = await Corridor.step(self, action)
    over = step.terminated or step.truncated
    return replace(step, terminated=over, truncated=False, success=over)


async def endless_step(self: Corridor, action: str) -> Step:
    self.steps = 0
    return await Corridor.step(self, action)


async def goes_on_after_the_end(self: Corridor, action: str) -> Step:
    self.state = "running" if self.state == "over" else self.state
    return await Corridor.step(self, action)


async def restarts(self: Corridor) -> Observation:
    self.state = "new"
    return await Corridor.start(self)


async def closes_once(self: Corridor) -> None:
    if self.state == "closed":
        raise RuntimeError("closed already")
    await Corridor.close(self)


_shared: list[Corridor] = []


async def shared_start(self: Corridor) -> Observation:
    _shared[:] = [self]
    return await Corridor.start(self)


async def shared_step(self: Corridor, action: str) -> Step:
    self.place = _shared[0].place
    step = await Corridor.step(self, action)
    _shared[0].place = self.place
    return step


async def seeding_start(self: Corridor) -> Observation:
    random.seed(233)
    return await Corridor.start(self)


async def numpy_start(self: Corridor) -> Observation:
    np.random.seed(1)  # the old global generator is what must not be touched
    return await Corridor.start(self)


async def argv_start(self: Corridor) -> Observation:
    sys.argv = ["translate.py", "domain", "task"]
    return await Corridor.start(self)


async def environ_start(self: Corridor) -> Observation:
    os.environ["CORRIDOR_DATA"] = "here"
    return await Corridor.start(self)


def _with_text(step: Step, text: str) -> Step:
    return replace(step, observation=replace(step.observation, text=text))
