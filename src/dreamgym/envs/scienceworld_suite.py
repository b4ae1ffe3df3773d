"""ScienceWorld as a suite (extra `scienceworld`; needs Java, and says so)."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from dreamgym.envs.scienceworld_engine import (
    Reading,
    Simulation,
    check_installed,
    simulator,
)
from dreamgym.errors import ConfigError, DataError, EnvError, unknown_name
from dreamgym.types import Observation, Step, Task

VARIATIONS = {"train": "train", "valid_unseen": "dev", "test": "test"}
"""Split -> ScienceWorld's name for its variations."""
UNKNOWN = "No known action matches that input."
MAX_ACTION = 400


class ScienceworldEnv:
    """One episode of one variation; the simulator is asked in a thread, as it takes its time."""

    def __init__(self, spot: _Spot, instruction: str, *, max_steps: int, with_actions: bool):
        """Nothing is loaded before `start`."""
        self._spot = spot
        self._instruction = instruction
        self._max_steps = max_steps
        self._with_actions = with_actions
        self._state: Literal["new", "running", "over", "closed"] = "new"
        self._simulation: Simulation | None = None
        self._steps = 0
        self._score = 0.0

    async def start(self) -> Observation:
        """Return the task and what is seen around."""
        if self._state != "new":
            raise EnvError("a ScienceWorld episode is used once; open a new one to start again")
        self._state = "running"
        self._simulation, reading = await asyncio.to_thread(self._begin)
        self._score = reading.score
        text = f"{self._instruction}\n\n{reading.text}"
        return Observation(text=text, actions=reading.actions)

    async def step(self, action: str) -> Step:
        """Give one action; rewards add up to ScienceWorld's final score over 100 (-1: lost)."""
        if self._state != "running" or self._simulation is None:
            raise EnvError("a ScienceWorld episode was stepped before start or after its end")
        self._steps += 1
        reading = await asyncio.to_thread(
            self._simulation.act, _plain(action), with_actions=self._with_actions
        )
        gain, self._score = reading.score - self._score, reading.score
        truncated = not reading.is_over and self._steps >= self._max_steps
        if reading.is_over or truncated:
            self._state = "over"
        return Step(
            observation=Observation(text=reading.text or UNKNOWN, actions=reading.actions),
            reward=round(gain, 6),
            terminated=reading.is_over,
            truncated=truncated,
            success=reading.is_over and reading.score >= 1.0,
            flags=("no_effect",) if reading.text == UNKNOWN else (),
        )

    async def close(self) -> None:
        """Forget the simulation; calling it twice is fine."""
        self._state = "closed"
        self._simulation = None

    def _begin(self) -> tuple[Simulation, Reading]:
        simulation = simulator().open(*self._spot)
        return simulation, simulation.act("look around", with_actions=self._with_actions)


class ScienceworldSuite:
    """ScienceWorld's 30 task types and their variations.

    `kinds` keeps only these task types, `num_tasks` is the number of tasks per split, taken from
    the types in turn (None: all, which takes about a second each the first time),
    `simplification` e.g. "easy", `actions` False leaves out the admissible actions, which halves
    the time of a step.  Split `valid_unseen` is ScienceWorld's dev set.
    """

    name = "scienceworld"
    splits = tuple(VARIATIONS)

    def __init__(
        self,
        *,
        kinds: Sequence[str] | str | None = None,
        num_tasks: int | None = 10,
        simplification: str = "",
        max_steps: int = 100,
        actions: bool = True,
    ) -> None:
        """Starts nothing yet. Raises `ConfigError` for bad options."""
        for name, value in (("num_tasks", num_tasks), ("max_steps", max_steps)):
            if value is not None and (isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1")
        self.max_steps = max_steps
        self._kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds or ())
        self._num_tasks = num_tasks
        self._simplification = simplification
        self._with_actions = actions
        self._tasks: dict[str, dict[str, tuple[Task, _Spot]]] = {}

    def check_ready(self) -> None:
        """Raise `MissingExtra` without the package, `ConfigError` without Java."""
        check_installed()

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split. Raises `ConfigError`, `MissingExtra`, `EnvError`."""
        if split not in self.splits:
            raise unknown_name("split", split, self.splits)
        if split not in self._tasks:
            spots = list(itertools.islice(self._spots(split), self._num_tasks))
            sentences = _sentences(spots)
            self._tasks[split] = {
                spot.name: (self._task(spot, sentence, split), spot)
                for spot, sentence in zip(spots, sentences, strict=True)
            }
        return [task for task, _ in self._tasks[split].values()]

    def open(self, task: Task, *, seed: int) -> ScienceworldEnv:
        """Return a fresh episode. Variations are deterministic, so `seed` changes nothing."""
        if task.suite == self.name and task.split in self.splits:
            self.tasks(task.split)
        found = self._tasks.get(task.split, {}).get(task.id)
        if found is None or task.suite != self.name or task.generated:
            raise DataError(
                f"task {task.id!r} of suite {task.suite!r} is no variation of this suite"
            )
        return ScienceworldEnv(
            found[1], task.instruction, max_steps=self.max_steps, with_actions=self._with_actions
        )

    def _task(self, spot: _Spot, sentence: str, split: str) -> Task:
        return Task(
            id=spot.name, suite=self.name, instruction=sentence, split=split, kind=spot.kind
        )

    def _spots(self, split: str) -> Iterator[_Spot]:
        """Yield variations, one of each task type in turn."""
        known = simulator().kinds()
        for kind in self._kinds:
            if kind not in known:
                raise unknown_name("ScienceWorld task type", kind, known)
        kinds = self._kinds or known
        lists: dict[str, list[int]] = {}  # read when a type's turn comes: each takes a second
        for round_ in itertools.count():
            is_empty = True
            for kind in kinds:
                if kind not in lists:
                    lists[kind] = simulator().variations(kind, VARIATIONS[split])
                if round_ < len(lists[kind]):
                    is_empty = False
                    yield _Spot(kind, lists[kind][round_], self._simplification)
            if is_empty:
                return


class _Spot(NamedTuple):
    kind: str
    variation: int
    simplification: str

    @property
    def name(self) -> str:
        """Id of the task."""
        return "-".join(filter(None, (self.kind, f"{self.variation:04d}", self.simplification)))


def _sentences(spots: Sequence[_Spot]) -> list[str]:
    """Return the task sentences; read once and kept, as each costs a second."""
    path = _cache_path()
    known = _read(path)
    missing = [spot for spot in spots if spot.name not in known]
    for spot in missing:
        told = simulator().description(*spot)
        known[spot.name] = " ".join(told.removeprefix("Task Description:").split())
    if missing:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(known, indent=0, sort_keys=True), "utf-8")
        fresh.replace(path)
    return [known[spot.name] for spot in spots]


def _read(path: Path) -> dict[str, str]:
    try:
        kept = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):  # not there yet, or cut off: it is written anew
        return {}
    return {str(key): str(value) for key, value in kept.items()} if isinstance(kept, dict) else {}


def _cache_path() -> Path:
    chosen = os.environ.get("DREAMGYM_CACHE")
    root = Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "dreamgym"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot keep task sentences in {root}: {error.strerror}; set DREAMGYM_CACHE"
        ) from error
    return root / f"scienceworld-{simulator().version}.json"


def _plain(action: str) -> str:
    """Return an action the Java side can read: one line, valid Unicode, not endless."""
    text = " ".join(action.encode("utf-8", "replace").decode("utf-8").split())
    return "".join(c for c in text if c.isprintable())[:MAX_ACTION]
