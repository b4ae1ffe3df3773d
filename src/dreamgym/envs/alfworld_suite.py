"""Genuine ALFWorld behind the suite interface (extra `alfworld`), for those who want the original.

The household suite plays the same games with its own engine, hundreds of times faster; this one
is what that engine is compared with.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dreamgym.envs.alfworld_engine import (
    Engine,
    EnginePool,
    Turn,
    check_installed,
    checked_sentence,
)
from dreamgym.envs.household.official import OFFICIAL_SPLITS, OfficialGame, find_games
from dreamgym.errors import ConfigError, DataError, EnvError, unknown_name
from dreamgym.types import Observation, Step, Task

NOTHING = "Nothing happens."


class AlfworldEnv:
    """One episode of one game; its engine goes back to the pool when it is closed."""

    def __init__(self, game: OfficialGame, pool: EnginePool, *, max_steps: int) -> None:
        """Nothing is loaded before `start`."""
        self._game = game
        self._pool = pool
        self._max_steps = max_steps
        self._engine: Engine | None = None
        self._steps = 0
        self._state = "new"

    async def start(self) -> Observation:
        """Return the first observation: room, task, admissible commands."""
        if self._state != "new":
            raise EnvError("an ALFWorld episode is used once; open a new one to start again")
        self._state = "running"
        self._engine = self._pool.take()
        turn = self._engine.start(self._game.pddl_problem, self._game.task)
        return Observation(text=_tidy(turn), actions=turn.actions)

    async def step(self, action: str) -> Step:
        """Apply one command; at the step limit the episode is truncated, which is no success."""
        if self._engine is None or self._state != "running":
            raise EnvError("an ALFWorld episode was stepped before start or after its end")
        command = action.encode("utf-8", "replace").decode("utf-8")
        turn = self._engine.step(command)
        self._steps += 1
        truncated = not turn.won and self._steps >= self._max_steps
        if turn.won or truncated:
            self._state = "over"
        return Step(
            observation=Observation(text=_tidy(turn), actions=turn.actions),
            reward=1.0 if turn.won else 0.0,
            terminated=turn.won,
            truncated=truncated,
            success=turn.won,
            flags=("no_effect",) if turn.text.strip() == NOTHING else (),
        )

    async def close(self) -> None:
        """Give the engine back; calling it twice is fine."""
        self._state = "closed"
        if self._engine is not None:
            self._pool.give(self._engine)
            self._engine = None


class AlfworldSuite:
    """ALFWorld's official text games, played by its genuine engine.

    `data` is $ALFWORLD_DATA, its `json_2.1.1` or a pack of games (default: $ALFWORLD_DATA);
    `num_tasks` the tasks per split (None: all), `max_steps` truncates episodes.
    """

    name = "alfworld"
    splits = OFFICIAL_SPLITS

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        num_tasks: int | None = None,
        max_steps: int = 50,
    ) -> None:
        """Raises `ConfigError` for bad options; missing things show at `tasks`."""
        for name, value in (("num_tasks", num_tasks), ("max_steps", max_steps)):
            if value is not None and (isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1")
        self.max_steps = max_steps
        self._data = data
        self._num_tasks = num_tasks
        self._games: dict[str, dict[str, OfficialGame]] = {}
        self.pool = EnginePool()

    def check_ready(self) -> None:
        """Raise `ConfigError`, `DataError` or `MissingExtra` for whatever is missing to play."""
        self._folder()
        check_installed()

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the games of a split, sorted by id. Raises `ConfigError`, `DataError`."""
        if split not in self.splits:
            raise unknown_name("split", split, self.splits)
        if split not in self._games:
            games = find_games(self._folder(), split)[: self._num_tasks]
            self._games[split] = {game.id: game for game in games}
        return [
            Task(
                id=game.id,
                suite=self.name,
                instruction=game.task,
                split=split,
                kind=game.kind,
                room=game.room,
            )
            for game in self._games[split].values()
        ]

    def open(self, task: Task, *, seed: int) -> AlfworldEnv:
        """Return a fresh episode. Games are deterministic, so `seed` changes nothing."""
        if task.suite == self.name and task.split in self.splits and not task.generated:
            self.tasks(task.split)
        game = self._games.get(task.split, {}).get(task.id)
        if game is None or task.suite != self.name:
            raise DataError(
                f"task {task.id!r} of suite {task.suite!r} is no official ALFWorld game"
            )
        checked_sentence(game.task)
        check_installed()
        return AlfworldEnv(game, self.pool, max_steps=self.max_steps)

    def _folder(self) -> Path:
        chosen = self._data or os.environ.get("ALFWORLD_DATA")
        if not chosen:
            raise ConfigError(
                "the suite 'alfworld' needs ALFWorld's games; set the option data (a folder or a "
                "pack) or the environment variable ALFWORLD_DATA"
            )
        path = Path(chosen).expanduser()
        if not path.exists():
            raise DataError(f"{path} does not exist; expected ALFWorld's games there")
        return path


def _tidy(turn: Turn) -> str:
    return turn.text.strip()
