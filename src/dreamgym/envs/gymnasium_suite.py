"""Any Gymnasium environment that can be played in text, as a suite (extra `gymnasium`).

Text spaces are passed through; other observations are shown as the environment's `ansi` picture
where it draws one, else as their values.  Discrete actions are taken by name or number.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from dreamgym.envs.gymnasium_shapes import read_reset, read_step
from dreamgym.errors import ConfigError, DataError, EnvError, MissingExtra, unknown_name
from dreamgym.seeds import derive_seed
from dreamgym.types import Observation, Step, Task

SPLITS = ("train", "test")
NOTHING = "Nothing happens."
WON_KEYS = ("won", "success", "is_success")
"""Where environments say whether the task was solved."""
ACTION_KEYS = ("admissible_commands", "available_actions", "actions")
"""Where text environments list what can be done."""

_ANSI = re.compile(r"\x1b\[([0-9;]*)m(.*?)\x1b\[0m", re.DOTALL)


class GymnasiumEnv:
    """One episode; the environment behind it is made at `start` and closed at `close`."""

    def __init__(self, suite: GymnasiumSuite, task: Task) -> None:
        """Nothing is made before `start`."""
        self._suite = suite
        self._task = task
        # Any: environments of any kind.
        self._env: Any = None
        self._state: Literal["new", "running", "over", "closed"] = "new"
        self._steps = 0
        self._return = 0.0
        self._last = Observation(text="")

    async def start(self) -> Observation:
        """Return the instruction and the first observation."""
        if self._state != "new":
            raise EnvError("a Gymnasium episode is used once; open a new one to start again")
        self._state = "running"
        self._env = self._suite.make()
        seed = derive_seed("gymnasium", self._suite.env_id, self._task.id) % 2**31
        try:
            seen, info = read_reset(self._env.reset(seed=seed))
        except Exception as error:
            raise EnvError(f"{self._suite.env_id} failed at reset: {error}") from error
        self._last = self._observe(seen, info)
        text = self._last.text
        if " ".join(self._task.instruction.split()) not in " ".join(text.split()):
            text = f"{self._task.instruction}\n{text}"
        return Observation(text=text, actions=self._last.actions)

    async def step(self, action: str) -> Step:
        """Take one action; one the action space does not know changes nothing."""
        if self._state != "running":
            raise EnvError("a Gymnasium episode was stepped before start or after its end")
        self._steps += 1
        chosen = self._suite.action(self._env, action)
        if chosen is None:
            seen = Observation(text=NOTHING, actions=self._last.actions)
            return self._end(seen, 0.0, terminated=False, truncated=False, won=False)
        try:
            outcome = read_step(self._env.step(chosen))
        except EnvError:
            raise
        except Exception as error:
            raise EnvError(f"{self._suite.env_id} failed at {action[:80]!r}: {error}") from error
        self._return += outcome.reward
        self._last = self._observe(outcome.observation, outcome.info)
        won = outcome.terminated and self._suite.is_won(outcome.info, self._return)
        return self._end(
            self._last,
            outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            won=won,
        )

    async def close(self) -> None:
        """Close the environment; calling it twice is fine."""
        self._state = "closed"
        if self._env is not None:
            env, self._env = self._env, None
            env.close()

    def _end(
        self, seen: Observation, reward: float, *, terminated: bool, truncated: bool, won: bool
    ) -> Step:
        truncated = not terminated and (truncated or self._steps >= self._suite.max_steps)
        if terminated or truncated:
            self._state = "over"
        return Step(
            observation=seen,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            success=won,
            flags=("no_effect", "invalid_action") if seen.text == NOTHING else (),
        )

    def _observe(self, seen: Any, info: dict[str, Any]) -> Observation:
        listed = next((info[key] for key in ACTION_KEYS if key in info), None)
        actions = tuple(str(a) for a in listed) if listed is not None else self._suite.names
        return Observation(text=self._suite.text(self._env, seen), actions=actions)


class GymnasiumSuite:
    """A Gymnasium environment by id (`FrozenLake-v1`) or `module:factory`.

    Task i of a split is the environment reset with a seed of its own.  `instruction` says what to
    do, `actions` names the discrete actions in order (a list, or "left,right"), `make` are keyword
    arguments for the environment.  An episode is a success when it terminated and the environment
    says so (`won`, `success` or `is_success` in its info), or else when its return reached
    `success_return`.
    """

    name = "gymnasium"
    splits = SPLITS

    def __init__(
        self,
        *,
        env_id: str = "",
        instruction: str = "",
        actions: Sequence[str] | str = (),
        make: dict[str, Any] | None = None,
        num_tasks: int = 20,
        max_steps: int = 100,
        success_return: float = 1.0,
    ) -> None:
        """Raises `ConfigError` for bad options; missing things show at `tasks`."""
        for name, value in (("num_tasks", num_tasks), ("max_steps", max_steps)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1")
        self.env_id = env_id
        self.max_steps = max_steps
        self._instruction = instruction or f"Play {env_id} and earn as much reward as you can."
        self._make = dict(make or {})
        self._factory: Callable[[], Any] | None = None
        self._num_tasks = num_tasks
        self._success_return = success_return
        listed = actions.split(",") if isinstance(actions, str) else actions
        self._names = tuple(name.strip() for name in listed if name.strip())
        self._space: Literal["text", "discrete"] = "text"

    def check_ready(self) -> None:
        """Look at the environment once. Raises `MissingExtra`, `ConfigError`, `EnvError`."""
        if self._factory is not None:
            return
        if not self.env_id:
            raise ConfigError(
                "the suite 'gymnasium' needs the option env_id, e.g. env_id=FrozenLake-v1 or "
                "env_id=my_package.my_env:MyEnv"
            )
        factory = _factory(self.env_id, self._make)
        self._space = self._look_inside(factory)
        self._factory = factory

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the discrete actions, None where actions are free text."""
        return self._names or None

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split. Raises `ConfigError`."""
        if split not in self.splits:
            raise unknown_name("split", split, self.splits)
        self.check_ready()
        return [
            Task(
                id=f"{self.env_id}-{split}-{number:05d}",
                suite=self.name,
                instruction=self._instruction,
                split=split,
                kind=self.env_id,
            )
            for number in range(self._num_tasks)
        ]

    def open(self, task: Task, *, seed: int) -> GymnasiumEnv:
        """Return a fresh episode; the task alone decides its reset, so `seed` changes nothing."""
        if task.suite != self.name or task.split not in self.splits or task.kind != self.env_id:
            raise DataError(f"task {task.id!r} of suite {task.suite!r} is no task of {self.env_id}")
        return GymnasiumEnv(self, task)

    def make(self) -> Any:
        """Return a new environment. Raises `EnvError`."""
        self.check_ready()
        assert self._factory is not None
        try:
            return self._factory()
        except Exception as error:
            raise EnvError(f"{self.env_id} cannot be made: {error}") from error

    def action(self, env: Any, text: str) -> Any:
        """Return the action a text means in the action space, None where it means none."""
        text = text.encode("utf-8", "replace").decode("utf-8").strip()
        if self._space == "text":
            space = env.action_space
            is_known = not hasattr(space, "contains") or space.contains(text)
            return text if text and is_known else None
        lowered = [name.casefold() for name in self._names]
        start = int(getattr(env.action_space, "start", 0))
        return start + lowered.index(text.casefold()) if text.casefold() in lowered else None

    def text(self, env: Any, seen: Any) -> str:
        """Return an observation as text."""
        if isinstance(seen, str):
            return seen.strip() or "(nothing is shown)"
        drawn = env.render() if getattr(env, "render_mode", None) == "ansi" else None
        picture = _ANSI.sub(_marked, drawn).strip() if isinstance(drawn, str) else ""
        return picture or json.dumps(_plain(seen), ensure_ascii=False)

    def is_won(self, info: dict[str, Any], total: float) -> bool:
        """Return whether a terminated episode was a success (being over is not)."""
        told = next((info[key] for key in WON_KEYS if key in info), None)
        return total >= self._success_return - 1e-6 if told is None else bool(told)

    def _look_inside(self, factory: Callable[[], Any]) -> Literal["text", "discrete"]:
        """Return the kind of action space; names discrete actions that have no names yet."""
        try:
            env = factory()
        except Exception as error:
            raise ConfigError(f"{self.env_id} cannot be made: {error}") from error
        try:
            kind = type(env.action_space).__name__
            if kind == "Text":
                return "text"
            if kind != "Discrete":
                raise ConfigError(
                    f"{self.env_id} has the action space {env.action_space}; expected Text or "
                    "Discrete actions, which can be given in text"
                )
            count, start = int(env.action_space.n), int(env.action_space.start)
            self._names = self._names or tuple(str(start + i) for i in range(count))
            if len(self._names) != count or len(set(map(str.casefold, self._names))) != count:
                raise ConfigError(
                    f"{self.env_id} has {count} actions; got {len(self._names)} name(s): "
                    f"{', '.join(self._names)}"
                )
        finally:
            env.close()
        return "discrete"


def _factory(env_id: str, options: dict[str, Any]) -> Callable[[], Any]:
    try:
        import gymnasium
    except ImportError as error:
        raise MissingExtra("gymnasium", "gymnasium") from error
    if ":" in env_id and not env_id.split(":")[1][:1].isdigit() and "-v" not in env_id:
        module, _, attribute = env_id.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"cannot load the environment {env_id!r}: {error}") from error
        return lambda: found(**options)
    try:
        spec = gymnasium.spec(env_id)
    except gymnasium.error.Error as error:
        raise ConfigError(f"Gymnasium does not know {env_id!r}: {error}") from error
    modes = getattr(_entry(spec), "metadata", {}).get("render_modes", ())
    if "ansi" in modes:
        options = {"render_mode": "ansi", **options}
    return lambda: gymnasium.make(env_id, **options)


def _entry(spec: Any) -> Any:
    """Return the class behind a Gymnasium id, None where it cannot be loaded."""
    point = spec.entry_point
    if not isinstance(point, str):
        return point
    module, _, attribute = point.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):  # `make` says what is missing
        return None


def _marked(match: re.Match[str]) -> str:
    """Return a coloured part of a picture; a background colour marks where the player is."""
    return f"[{match[2]}]" if "4" in {code[:1] for code in match[1].split(";")} else match[2]


def _plain(value: Any) -> Any:
    """Return an observation as JSON-able data: numbers, lists, dictionaries."""
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
