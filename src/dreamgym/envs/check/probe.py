"""What the checks share: settings, playing recorded walks, and how a check says no."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import msgspec

from dreamgym.envs.base import Env, Suite
from dreamgym.errors import ConfigError, FaultError
from dreamgym.seeds import derive_random
from dreamgym.types import Observation, Step, Task

T = TypeVar("T")

NONSENSE = "flibber the wug 7"
"""An action no environment knows."""

_PLACEHOLDER = re.compile(r"<[^<>]+>")
_GENERIC = ("look", "help", "inventory", "go north", "1", "next")


class Failed(Exception):
    """What was seen is not what was expected."""


class Skipped(Exception):
    """The check cannot be made here; says why."""


class CheckSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is played."""

    split: str = ""
    """Split to play; "" is `train` where the suite has it, else its first."""
    num_tasks: int = 3
    """Tasks played (the first ones of the split)."""
    num_steps: int = 8
    """Steps of each recorded walk."""
    num_admissible: int = 60
    """Admissible actions tried per task."""
    max_end: int = 120
    """Steps of nonsense after which a suite without `max_steps` is taken to have no limit."""
    seconds: float = 60.0
    """Longest wait for one start, step or close; a longer one fails the check."""
    actions: tuple[str, ...] = ()
    """Actions to walk with, for suites that list no admissible ones."""

    def __post_init__(self) -> None:
        """Refuse settings under which nothing would be played."""
        for name in ("num_tasks", "num_steps", "num_admissible", "max_end", "seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be positive; got {getattr(self, name)}")


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded episode: `steps[i]` answered `actions[i]`."""

    task: Task
    seed: int
    actions: tuple[str, ...]
    first: Observation
    steps: tuple[Step, ...]


class Probe:
    """A suite under examination."""

    def __init__(self, suite: Suite, settings: CheckSettings, *, spec: str = "") -> None:
        """Take the first tasks of the split. Raises what the suite says about it."""
        self.suite = suite
        self.settings = settings
        self.spec = spec
        self.split = settings.split or default_split(suite)
        self.tasks = list(suite.tasks(self.split))[: settings.num_tasks]
        if not self.tasks:
            raise ConfigError(
                f"split {self.split!r} of suite {suite.name!r} has no tasks; name another split"
            )

    async def within(self, waiting: Awaitable[T], what: str) -> T:
        """Await with the time limit of the settings."""
        try:
            return await asyncio.wait_for(waiting, self.settings.seconds)
        except TimeoutError as error:
            raise Failed(f"{what} took longer than {self.settings.seconds:g} seconds") from error

    async def start(self, task: Task, *, seed: int = 0) -> tuple[Env, Observation]:
        """Return a started episode and its first observation."""
        env = self.suite.open(task, seed=seed)
        return env, await self.within(env.start(), "start")

    async def step(self, env: Env, action: str) -> Step:
        """Take one step within the time limit."""
        return await self.within(env.step(action), f"step({shorten(action)})")

    async def close(self, env: Env) -> None:
        """Close within the time limit."""
        await self.within(env.close(), "close")

    async def walk(self, task: Task, *, seed: int = 0, num_steps: int | None = None) -> Walk:
        """Play an episode of random admissible actions and record it."""
        random = derive_random("check walk", task.id, seed)
        env, first = await self.start(task, seed=seed)
        taken: list[str] = []
        steps: list[Step] = []
        observation = first
        try:
            while len(steps) < (num_steps or self.settings.num_steps):
                action = random.choice(self.choices(task, observation))
                step = await self.step(env, action)
                taken.append(action)
                steps.append(step)
                observation = step.observation
                if step.terminated or step.truncated:
                    break
        finally:
            await self.close(env)
        return Walk(task=task, seed=seed, actions=tuple(taken), first=first, steps=tuple(steps))

    async def replay(self, walk: Walk, *, num_steps: int | None = None) -> Walk:
        """Play the actions of a walk again and record what is answered now."""
        env, first = await self.start(walk.task, seed=walk.seed)
        steps = []
        try:
            for action in walk.actions[:num_steps]:
                steps.append(await self.step(env, action))
                if steps[-1].terminated or steps[-1].truncated:
                    break
        finally:
            await self.close(env)
        taken = walk.actions[: len(steps)]
        return Walk(task=walk.task, seed=walk.seed, actions=taken, first=first, steps=tuple(steps))

    def choices(self, task: Task, observation: Observation) -> Sequence[str]:
        """Return actions worth taking here; placeholders are filled from the instruction."""
        listed = observation.actions or self.settings.actions or _GENERIC
        return [fill(action, task) for action in listed]


def default_split(suite: Suite) -> str:
    """Return `train` where the suite has it, else the first split it names."""
    splits = tuple(getattr(suite, "splits", ()))
    return "train" if not splits or "train" in splits else str(splits[0])


def fill(action: str, task: Task) -> str:
    """Return an action with its `<placeholder>`s replaced by a word of the instruction.

    >>> fill("search[<keywords>]", Task(id="a", suite="s", instruction="buy red shoes"))
    'search[shoes]'
    """
    words = re.findall(r"\w+", task.instruction) or ["thing"]
    return _PLACEHOLDER.sub(max(words, key=len), action)


def difference(one: Walk, other: Walk) -> str:
    """Return where two recordings of the same walk part, "" if they are equal."""
    if one.first != other.first:
        return f"first observations differ: {_fields(one.first, other.first)}"
    for place, (a, b) in enumerate(zip(one.steps, other.steps, strict=False)):
        if a != b:
            return f"step {place} ({shorten(one.actions[place])}) differs: {_fields(a, b)}"
    if len(one.steps) != len(other.steps):
        return f"{len(one.steps)} steps, then {len(other.steps)}"
    return ""


async def refused(waiting: Awaitable[object], what: str) -> None:
    """Await what must raise `FaultError`; anything else fails the check."""
    try:
        await waiting
    except FaultError:
        return
    except Exception as error:
        raise Failed(
            f"{what} raised {type(error).__name__}, which is no FaultError: {error}"
        ) from error
    raise Failed(f"{what} was allowed")


def shorten(text: str, limit: int = 60) -> str:
    """Return a text quoted and cut to a length fit for one line."""
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def _fields(one: msgspec.Struct, other: msgspec.Struct) -> str:
    for name in one.__struct_fields__:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, msgspec.Struct) and isinstance(b, msgspec.Struct) and a != b:
            return _fields(a, b)
        if a != b:
            return f"{name} {shorten(str(a))} against {shorten(str(b))}"
    return "of another type"
