"""The interface between DreamGym and anything an agent can act in.

A real benchmark and a dream implement the same two small protocols, so rollout, training,
evaluation and sim-to-real do not know which of the two they are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol, runtime_checkable

from dreamgym.types import Completion, Observation, Step, Task, Transition


@runtime_checkable
class Env(Protocol):
    """One episode, used once. Faults of ours raise `FaultError`; a bad action never raises."""

    async def start(self) -> Observation:
        """Return the first observation (it contains the task instruction)."""
        ...

    async def step(self, action: str) -> Step:
        """Apply one action and return what follows."""
        ...

    async def close(self) -> None:
        """Release resources; calling it twice is fine."""
        ...


@runtime_checkable
class Suite(Protocol):
    """A named set of tasks and a way to open an episode of one."""

    name: str

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split in a fixed order; unknown splits raise `ConfigError`."""
        ...

    def open(self, task: Task, *, seed: int) -> Env:
        """Return a fresh single-use episode. Same task and seed -> same first observation."""
        ...


class Actor(Protocol):
    """A policy inside one episode."""

    async def act(self, observation: Observation) -> Completion:
        """Return the policy's turn for this observation (the first call sees the first one)."""
        ...

    async def close(self) -> None:
        """Release what the episode held (e.g. cache rows)."""
        ...


class Policy(Protocol):
    """Something that can play episodes; `start` gives a fresh actor per episode."""

    name: str

    def start(self, task: Task, *, seed: int) -> Actor:
        """Return an actor for one episode; all its randomness comes from `seed`."""
        ...


Facts = dict[str, str]
"""Known facts in text: entity -> what is true of it now, e.g. {"drawer 1": "closed: pen 1"}."""


class StateReader(Protocol):
    """What a suite tells DreamGym about reading its *text*; never the engine's rules.

    An implementation may know how observations and actions are worded and what a task sentence
    asks for.  It must not import the engine, look at hidden state, or decide what an action
    causes: it only reads what was said.
    """

    def initial(self, task: Task) -> Facts:
        """Return the facts at the start of a task with a scenario (first text + hidden facts)."""
        ...

    def hindsight(self, transitions: Sequence[Transition]) -> Facts:
        """Return facts about the *initial* state that logged episodes of one task reveal."""
        ...

    def update(self, facts: Facts, action: str, text: str) -> Facts:
        """Return the facts after `action` was answered by the observation `text`."""
        ...

    def relevant(self, facts: Facts, action: str) -> list[str]:
        """Return the fact lines that mention what the action mentions, plus place and inventory."""
        ...

    def conflicts(self, facts: Facts, action: str, text: str) -> list[str]:
        """Return sentences, one per known fact that the answer `text` contradicts."""
        ...

    def achieved(self, task: Task, facts: Facts) -> bool | None:
        """Return whether the facts satisfy the task sentence; None if it cannot be told."""
        ...

    def template(self, instruction: str) -> str:
        """Return what a task asks for whatever its wording; "" if it cannot be read."""
        ...

    def rearranged(self, facts: Facts, rng: Random) -> Facts:
        """Return the initial facts of another instance: the same places, their contents mixed."""
        ...

    def infeasible(self, instruction: str, facts: Facts, logged: Sequence[str]) -> str | None:
        """Return why a task cannot be played in a world with these facts, None if it can.

        `logged` are the sentences of logged tasks: what no log shows is not asked for.
        """
        ...

    def explain(self, task: Task, facts: Facts, action: str, text: str, success: bool) -> str:
        """Return a short rationale: relevant facts before, effect, facts after (rule-based)."""
        ...

    def canonical(self, text: str) -> str:
        """Return the observation in a form equal for equal states (listing order, header)."""
        ...

    def natural(self, text: str) -> str:
        """Return the observation in its own wording with listings in one order."""
        ...

    def learned(self, transitions: Sequence[Transition]) -> StateReader:
        """Return a reader that also knows what logged *real* transitions show (which places
        heat, cool or clean, for example); dreamt transitions are ignored."""
        ...

    def action_kind(self, action: str) -> str:
        """Return the verb class of an action, or `other`."""
        ...

    def is_no_effect(self, text: str) -> bool:
        """Return whether the observation says that nothing happened."""
        ...

    def negatives(self, transition: Transition) -> list[str]:
        """Return well-formed actions outside the logged admissible list: known to do nothing."""
        ...
