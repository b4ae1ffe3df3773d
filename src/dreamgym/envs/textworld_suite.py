"""TextWorld games as a suite (extra `textworld`): generated ones, or a folder of compiled games.

Commands that leave the story (`save`, `quit`, `restore`, TextWorld's own `tw-...`) never reach the
interpreter: `save` would write files, and the agent's text is not ours to trust.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dreamgym.errors import ConfigError, DataError, EnvError, MissingExtra, unknown_name
from dreamgym.seeds import derive_seed
from dreamgym.types import Observation, Step, Task

SPLITS = ("train", "test")
NOTHING = "Nothing happens."
MAX_COMMAND = 200
"""Longest command given to the interpreter, whose input buffer is small."""

_OUTSIDE = frozenset(
    {"save", "restore", "restart", "quit", "q", "undo", "verify", "version", "notify", "pronouns"}
    | {"script", "transcript", "unscript", "noscript", "recording", "record", "replay"}
    | {"brief", "superbrief", "verbose"}
)
_STATUS_LINE = re.compile(r"\n>[^\n]*(?:\n[^\n]*)?\Z")
_BANNER = re.compile(r"^[ _|\\/$]{20,}$", re.MULTILINE)
_BLANKS = re.compile(r"\n\s*\n+")


class TextworldEnv:
    """One episode of one compiled game."""

    def __init__(self, path: Path, *, max_steps: int) -> None:
        """Nothing is started before `start`."""
        self._path = path
        self._max_steps = max_steps
        # Any: the package ships no types.
        self._env: Any = None
        self._state: Literal["new", "running", "over", "closed"] = "new"
        self._steps = 0
        self._score = 0.0
        self._max_score = 1.0
        self._last: tuple[str, ...] = ()

    async def start(self) -> Observation:
        """Return the opening text and the admissible commands."""
        if self._state != "new":
            raise EnvError("a TextWorld episode is used once; open a new one to start again")
        textworld = _textworld()
        infos = textworld.EnvInfos(admissible_commands=True, won=True, lost=True, max_score=True)
        try:
            self._env = textworld.start(str(self._path), infos)
            state = self._env.reset()
        except Exception as error:
            raise EnvError(f"TextWorld cannot play {self._path.name}: {error}") from error
        self._state = "running"
        self._max_score = float(state.max_score or 1)
        self._last = tuple(state.admissible_commands)
        return Observation(text=tidy(state.feedback), actions=self._last)

    async def step(self, action: str) -> Step:
        """Give one command; the reward is the gain in score as a share of the highest score."""
        if self._state != "running":
            raise EnvError("a TextWorld episode was stepped before start or after its end")
        self._steps += 1
        command = plain_command(action)
        if command is None:
            return self._end(Observation(text=NOTHING, actions=self._last), 0.0, won=False)
        try:
            state, score, _ = self._env.step(command)
        except Exception as error:
            raise EnvError(f"TextWorld failed at {command!r}: {error}") from error
        gain, self._score = (float(score) - self._score) / self._max_score, float(score)
        self._last = tuple(state.admissible_commands)
        seen = Observation(text=tidy(state.feedback), actions=self._last)
        return self._end(seen, gain, won=bool(state.won), lost=bool(state.lost))

    async def close(self) -> None:
        """Stop the interpreter; calling it twice is fine."""
        self._state = "closed"
        if self._env is not None:
            env, self._env = self._env, None
            env.close()

    def _end(self, seen: Observation, gain: float, *, won: bool, lost: bool = False) -> Step:
        truncated = not (won or lost) and self._steps >= self._max_steps
        if won or lost or truncated:
            self._state = "over"
        return Step(
            observation=seen,
            reward=gain,
            terminated=won or lost,
            truncated=truncated,
            success=won,
            flags=("no_effect",) if seen.text == NOTHING else (),
        )


class TextworldSuite:
    """TextWorld games: generated ones, compiled once and kept, or those of a folder.

    `games` is a folder of `.z8` files, each with its `.json` (all are split `train`); without it
    `num_tasks` games a split are generated with so many `rooms`, `objects` and `quest_length`
    steps.  A new game takes some seconds, after that it is kept under $DREAMGYM_CACHE.
    """

    name = "textworld"

    def __init__(
        self,
        *,
        games: str | Path | None = None,
        num_tasks: int = 5,
        rooms: int = 3,
        objects: int = 6,
        quest_length: int = 3,
        max_steps: int = 50,
        seed: int = 0,
    ) -> None:
        """Raises `ConfigError` for bad options; missing things show at `tasks`."""
        given = {"num_tasks": num_tasks, "rooms": rooms, "objects": objects}
        for name, value in {**given, "quest_length": quest_length, "max_steps": max_steps}.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1")
        self.max_steps = max_steps
        self.splits = SPLITS[:1] if games is not None else SPLITS
        self._folder = None if games is None else Path(games).expanduser()
        self._num_tasks = num_tasks
        self._world = _World(rooms, objects, quest_length, seed)
        self._paths: dict[str, dict[str, Path]] = {}
        self._tasks: dict[str, tuple[Task, ...]] = {}

    def check_ready(self) -> None:
        """Raise `MissingExtra` or `DataError` for what is missing to play."""
        _textworld()
        if self._folder is not None and not self._folder.is_dir():
            raise DataError(f"{self._folder} is no folder; expected compiled TextWorld games there")

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the games of a split; missing ones are generated. Raises `ConfigError`."""
        if split not in self.splits:
            raise unknown_name("split", split, self.splits)
        if split not in self._tasks:
            self.check_ready()
            paths = self._found() if self._folder is not None else self._generated(split)
            self._paths[split] = paths
            self._tasks[split] = tuple(
                Task(id=name, suite=self.name, instruction=_objective(path), split=split)
                for name, path in paths.items()
            )
        return self._tasks[split]

    def open(self, task: Task, *, seed: int) -> TextworldEnv:
        """Return a fresh episode. Games are deterministic, so `seed` changes nothing."""
        if task.suite == self.name and task.split in self.splits:
            self.tasks(task.split)
        path = self._paths.get(task.split, {}).get(task.id)
        if path is None or task.suite != self.name or task.generated:
            raise DataError(f"task {task.id!r} of suite {task.suite!r} is no game of this suite")
        return TextworldEnv(path, max_steps=self.max_steps)

    def _found(self) -> dict[str, Path]:
        assert self._folder is not None
        paths = {path.stem: path for path in sorted(self._folder.glob("*.z8"))}
        if not paths:
            raise DataError(f"{self._folder} holds no .z8 file; make some with tw-make")
        for path in paths.values():
            if not path.with_suffix(".json").is_file():
                raise DataError(f"{path} lies without its .json, which holds the task; add it")
        return paths

    def _generated(self, split: str) -> dict[str, Path]:
        world = self._world
        names = [
            f"r{world.rooms}-o{world.objects}-q{world.quest_length}-s{world.seed}-{split}-{i:04d}"
            for i in range(self._num_tasks)
        ]
        return {name: _compiled(name, world) for name in names}


class _World(NamedTuple):
    rooms: int
    objects: int
    quest_length: int
    seed: int


def plain_command(action: str) -> str | None:
    """Return an action as the interpreter may get it; None for what does not belong to the story.

    >>> plain_command("  Open   the door\\n"), plain_command("save"), plain_command("tw-print x")
    ('Open the door', None, None)
    """
    words = action.encode("ascii", "replace").decode().split()
    text = "".join(c for c in " ".join(words) if c.isprintable())
    parts = {part.strip().partition(" ")[0] for part in re.split(r"[.,;]| then ", text.casefold())}
    if not text or len(text) > MAX_COMMAND or parts & _OUTSIDE:
        return None
    return None if any(part.startswith("tw-") for part in parts) else text


def tidy(feedback: str) -> str:
    """Return a text without banner, prompt, status line and empty lines."""
    text = _STATUS_LINE.sub("", _BANNER.sub("", feedback.rstrip()))
    return _BLANKS.sub("\n", text).strip() or "(no answer)"


def _compiled(name: str, world: _World) -> Path:
    """Return a game of the cache, made first where it is not there yet."""
    folder = _cache()
    path = folder / f"{name}.z8"
    if path.is_file() and path.with_suffix(".json").is_file():
        return path
    textworld = _textworld()
    options = textworld.GameOptions()
    options.nb_rooms, options.nb_objects = world.rooms, world.objects
    options.quest_length = world.quest_length
    options.seeds = derive_seed("textworld", name) % 2**31
    with tempfile.TemporaryDirectory(dir=folder) as made:
        options.path = str(Path(made) / f"{name}.z8")
        try:
            textworld.generator.compile_game(textworld.generator.make_game(options), options)
        except Exception as error:
            raise EnvError(f"TextWorld cannot make the game {name}: {error}") from error
        for suffix in (".json", ".z8"):  # the game last: it says that both are there
            (Path(made) / f"{name}{suffix}").replace(path.with_suffix(suffix))
    return path


def _cache() -> Path:
    chosen = os.environ.get("DREAMGYM_CACHE")
    root = Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "dreamgym"
    folder = root / "textworld"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot keep games in {folder}: {error.strerror}; set DREAMGYM_CACHE to a folder"
        ) from error
    return folder


def _objective(path: Path) -> str:
    try:
        game = _textworld().Game.load(str(path.with_suffix(".json")))
    except Exception as error:
        raise DataError(f"{path.with_suffix('.json')} is no TextWorld game: {error}") from error
    return " ".join(str(game.objective).split()) or "Explore."


def _textworld() -> Any:
    """Import TextWorld. Any: the package ships no types."""
    try:
        import textworld
        import textworld.generator
    except ImportError as error:
        raise MissingExtra("textworld", "textworld") from error
    return textworld
