"""Scripted policies for collecting data: experts, explorers and random players."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from random import Random
from typing import TYPE_CHECKING, Protocol

from dreamgym.envs.base import Actor, Policy
from dreamgym.envs.household.game import HouseholdGame
from dreamgym.envs.household.planner import make_plan
from dreamgym.envs.household.searcher import Searcher
from dreamgym.errors import ConfigError, EnvError, unknown_name
from dreamgym.seeds import derive_random
from dreamgym.types import Completion, Observation, Task

if TYPE_CHECKING:
    from dreamgym.envs.household.world import World

POLICIES: dict[str, str] = {
    "expert": "knows the game and plays a short winning plan",
    "noisy": "the expert, with a random admissible action now and then (option p)",
    "random": "random admissible actions, some of them ill-formed or illegal (option illegal)",
    "searcher": "knows nothing hidden; searches plausible places, may fail (option slips)",
    "survey": "looks into every receptacle once, then finishes the task as the expert",
}
"""Built-in policy name -> one line of description."""

_ITEM = re.compile(r"\ba (\w+ \d+)")
_NUMBER = re.compile(r"\d+")
_NONSENSE = ("dance", "go to", "take from", "open the window", "put it there", "xyzzy", "")
_FORMS = (
    *("open {}", "close {}", "use {}", "go to {}", "take {} from {}", "move {} to {}"),
    *("heat {} with {}", "clean {} with {}", "cool {} with {}"),
)


class Worlds(Protocol):
    """Whatever can tell the game behind a task; `HouseholdSuite` does."""

    def world(self, task: Task) -> World:
        """Return the game of a task."""
        ...


class _Scripted:
    """Base of the actors that know the game: they play along on their own copy of it."""

    def __init__(self, world: World, random: Random) -> None:
        self.game = HouseholdGame(world)
        self.random = random

    async def act(self, observation: Observation) -> Completion:
        """Return the next command."""
        command = self.choose()
        self.game.step(command)
        return Completion(text=f"<action>{command}</action>")

    async def close(self) -> None:
        """Nothing is held."""

    def choose(self) -> str:
        """Return the next command, given `self.game`."""
        raise NotImplementedError


class _ExpertActor(_Scripted):
    def __init__(self, world: World, random: Random) -> None:
        super().__init__(world, random)
        self._plan: list[str] | None = None

    def choose(self) -> str:
        return self.planned()

    def planned(self) -> str:
        """Return the next command of the plan; the plan is remade after any detour."""
        if self._plan is None:
            self._plan = make_plan(self.game.state) or []
        return self._plan.pop(0) if self._plan else "look"

    def detour(self, command: str) -> str:
        """Return a command that is not part of the plan."""
        self._plan = None
        return command


class _NoisyActor(_ExpertActor):
    def __init__(self, world: World, random: Random, p: float) -> None:
        super().__init__(world, random)
        self._p = p

    def choose(self) -> str:
        if self.random.random() < self._p:
            return self.detour(self.random.choice(self.game.admissible()))
        return self.planned()


class _SurveyActor(_ExpertActor):
    def __init__(self, world: World, random: Random) -> None:
        super().__init__(world, random)
        self._left = list(range(len(world.receptacles)))
        random.shuffle(self._left)
        self._is_there = False

    def choose(self) -> str:
        if not self._left:
            return self.planned()
        state, current = self.game.state, self._left[-1]
        receptacle = state.world.receptacles[current]
        if self._is_there:  # and it is closed
            self._left.pop()
            self._is_there = False
            return self.detour(f"open {receptacle.name}")
        if receptacle.openable and current not in state.opened:
            self._is_there = True
        else:
            self._left.pop()
        going = f"go to {receptacle.name}"
        # a neighbour at the same location cannot be gone to, but examined
        return self.detour(going if state.find(going) else f"examine {receptacle.name}")


class _RandomActor:
    """Needs only what it is shown: the admissible list and the names in the texts."""

    def __init__(self, random: Random, illegal: float) -> None:
        self._random = random
        self._illegal = illegal
        self._names: list[str] = []

    async def act(self, observation: Observation) -> Completion:
        """Return a random command."""
        known = set(self._names)
        self._names.extend(n for n in _ITEM.findall(observation.text) if n not in known)
        actions = observation.actions or ()
        if not actions or self._random.random() < self._illegal:
            command = self._illegal_command(frozenset(actions))
        else:
            command = self._random.choice(actions)
        return Completion(text=f"<action>{command}</action>")

    async def close(self) -> None:
        """Nothing is held."""

    def _illegal_command(self, actions: Collection[str]) -> str:
        """Return nonsense or, more often, a well-formed command that is not admissible now."""
        pick = self._random.choice
        for _ in range(20):
            if not self._names or self._random.random() < 0.3:
                command = pick(_NONSENSE)
            else:
                one, two = pick(self._names), pick(self._names)
                command = pick(_FORMS).format(one, two)
            if command not in actions:
                return command
        return "dance"


class _Base:
    """Shared part of the policies: a name, the games, a generator per episode."""

    name = ""

    def __init__(self, suite: Worlds) -> None:
        self._suite = suite

    def _random(self, task: Task, seed: int) -> Random:
        return derive_random("household policy", self.name, task.id, seed)


class ExpertPolicy(_Base):
    """Plays a short plan with full knowledge of the game."""

    name = "expert"

    def start(self, task: Task, *, seed: int) -> Actor:
        """Return an actor for one episode."""
        return _ExpertActor(self._suite.world(task), self._random(task, seed))


class NoisyPolicy(_Base):
    """The expert that takes a random admissible action with probability `p`."""

    name = "noisy"

    def __init__(self, suite: Worlds, *, p: float = 0.3) -> None:
        super().__init__(suite)
        self._p = _probability("p", p)

    def start(self, task: Task, *, seed: int) -> Actor:
        """Return an actor for one episode."""
        return _NoisyActor(self._suite.world(task), self._random(task, seed), self._p)


class SurveyPolicy(_Base):
    """Looks into every receptacle once, then finishes the task."""

    name = "survey"

    def start(self, task: Task, *, seed: int) -> Actor:
        """Return an actor for one episode."""
        return _SurveyActor(self._suite.world(task), self._random(task, seed))


class RandomPolicy(_Base):
    """Random admissible actions; a share `illegal` of commands does nothing."""

    name = "random"

    def __init__(self, suite: Worlds, *, illegal: float = 0.12) -> None:
        super().__init__(suite)
        self._illegal = _probability("illegal", illegal)

    def start(self, task: Task, *, seed: int) -> Actor:
        """Return an actor for one episode."""
        return _RandomActor(self._random(task, seed), self._illegal)


class SearcherPolicy(_Base):
    """Searches plausible receptacles; when lost it acts at random.

    With probability `slips` it does something else than it meant to, without a thought: what it
    does next shows how to recover, which flawless episodes never show.  With probability `dawdles`
    it looks at what it knows already, as logged agents do: harmless, but it costs a turn.
    """

    name = "searcher"

    def __init__(self, suite: Worlds, *, slips: float = 0.0, dawdles: float = 0.0) -> None:
        super().__init__(suite)
        self._slips = _probability("slips", slips)
        self._dawdles = _probability("dawdles", dawdles)

    def start(self, task: Task, *, seed: int) -> Actor:
        """Return an actor for one episode."""
        random = self._random(task, seed)

        def anything(actions: Collection[str]) -> str:
            return random.choice(sorted(actions)) if actions else "look"

        def slip(command: str, actions: Collection[str]) -> str:
            if random.random() >= self._slips:
                return ""
            changed = _NUMBER.sub(lambda n: str(1 + int(n[0]) % 3), command, count=1)
            return changed if random.random() < 0.5 and changed != command else anything(actions)

        def dawdle(here: str, actions: Collection[str]) -> str:
            if random.random() >= self._dawdles:
                return ""
            looks = [a for a in ("look", "inventory", f"examine {here}") if a in actions]
            return random.choice(looks) if looks else ""

        return Searcher(task.instruction, anything, slip, dawdle)


_FACTORIES: dict[str, type[_Base]] = {
    policy.name: policy
    for policy in (ExpertPolicy, NoisyPolicy, RandomPolicy, SearcherPolicy, SurveyPolicy)
}


def make_policy(name: str, suite: Worlds, **options: object) -> Policy:
    """Return a policy by name; unknown names and options raise `ConfigError`."""
    if name not in _FACTORIES:
        raise unknown_name("household policy", name, _FACTORIES)
    factory = _FACTORIES[name]
    known = [option for option in inspect.signature(factory).parameters if option != "suite"]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of policy {name!r}", option, known)
    policy = factory(suite, **options)
    if not hasattr(policy, "start"):
        raise EnvError(f"policy {name!r} cannot start episodes")
    return policy


def _probability(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ConfigError(f"{name} is {value!r}; expected a number from 0 to 1")
    return float(value)
