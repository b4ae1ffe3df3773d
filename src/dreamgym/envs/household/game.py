"""`HouseholdGame`: one playable episode, synchronous and fast."""

from __future__ import annotations

from dreamgym.envs.household.dialect import to_admissible
from dreamgym.envs.household.guard import note_engine_call
from dreamgym.envs.household.state import NOTHING, HouseState
from dreamgym.envs.household.world import World

MAX_COMMAND = 400
"""Longer texts are never commands; they are not even looked at."""


class HouseholdGame:
    """The engine for one episode. Commands are looked up, never interpreted or executed.

    `dialects=False` accepts only the exact spelling, as the genuine engine does.
    """

    __slots__ = ("dialects", "state", "won")

    def __init__(self, world: World, *, dialects: bool = True) -> None:
        note_engine_call("start")
        self.state = HouseState(world)
        self.dialects = dialects
        self.won = False

    @property
    def world(self) -> World:
        """The game being played."""
        return self.state.world

    def first(self) -> str:
        """Return the first observation, with room and task."""
        return HouseState(self.state.world).introduction()

    def resolve(self, command: str) -> str | None:
        """Return the admissible command meant, None when nothing would happen."""
        if len(command) > MAX_COMMAND:
            return None
        if not self.dialects:
            stripped = command.strip()
            return stripped if self.state.find(stripped) else None
        return to_admissible(command, lambda text: self.state.find(text) is not None)

    def step(self, command: str) -> tuple[str, float, bool, bool]:
        """Apply a command; return (text, reward, done, won).

        Reward is 1.0 and `done` and `won` are True while the goal holds, else 0.0 and False.
        Anything that is not admissible answers `Nothing happens.` and changes nothing.
        """
        note_engine_call("step")
        move = self.state.find(command)
        if move is None:
            resolved = self.resolve(command)
            move = None if resolved is None else self.state.find(resolved)
        if move is None:
            text = NOTHING
        else:
            text = self.state.apply(move)
            self.won = self.state.is_won()
        return text, float(self.won), self.won, self.won

    def admissible(self) -> list[str]:
        """Return the commands that do something now, sorted."""
        return self.state.admissible()

    def copy(self) -> HouseholdGame:
        """Return an independent game in the same state."""
        note_engine_call("copy")
        twin = HouseholdGame.__new__(HouseholdGame)
        twin.state, twin.dialects, twin.won = self.state.copy(), self.dialects, self.won
        return twin
