"""The fixed part of a household game: entities, what fits where, the start and the goal.

A `World` is built once per game and shared by all episodes of it; what changes during an
episode is in `state.HouseState`.  Entities are referred to by index; both tables are sorted the
way the texts list them (by type, and inside a type by falling number).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

Process = Literal["", "clean", "hot", "cool"]

LOOK = "look_at_obj_in_light"
SIMPLE = "pick_and_place_simple"
CLEAN = "pick_clean_then_place_in_recep"
COOL = "pick_cool_then_place_in_recep"
HEAT = "pick_heat_then_place_in_recep"
TWO = "pick_two_obj_and_place"

KINDS: tuple[str, ...] = (LOOK, SIMPLE, CLEAN, COOL, HEAT, TWO)
"""The six task types, in alphabetical order."""

KNIVES = frozenset({"knife", "butterknife"})


class Receptacle(msgspec.Struct, frozen=True):
    """Something that can hold objects and that the agent can stand at."""

    name: str
    kind: str
    place: int
    """Index of the location it stands at; several receptacles may share one."""
    openable: bool = False


class Thing(msgspec.Struct, frozen=True):
    """An object and the fixed properties that decide what can be done with it."""

    name: str
    kind: str
    portable: bool = True
    cleanable: bool = False
    heatable: bool = False
    coolable: bool = False
    switchable: bool = False
    sliceable: bool = False
    vessel: bool = False
    """True for objects described as containers (`This is a normal mug 1. ...`)."""
    holds: tuple[int, ...] = ()
    """Objects described as lying inside this vessel (fixed; they cannot be taken out)."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What wins: `count` objects of a kind (processed) in one receptacle, or held under a lamp."""

    kind: str
    object_kind: str
    target_kind: str
    """Receptacle kind; for `look_at_obj_in_light` the kind of the lamp."""
    process: Process = ""
    sliced: bool = False

    @property
    def count(self) -> int:
        """How many objects must lie in the same receptacle."""
        return 2 if self.kind == TWO else 1


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The state an episode starts in. Indices refer to the world's tables."""

    contents: tuple[tuple[int, ...], ...]
    """Per receptacle, the objects in it, ascending."""
    place: int
    """Location of the agent; by default one without any receptacle."""
    opened: frozenset[int] = frozenset()
    object_places: tuple[frozenset[int], ...] = ()
    """Per object, the locations it is at."""
    clean: frozenset[int] = frozenset()
    hot: frozenset[int] = frozenset()
    cool: frozenset[int] = frozenset()
    sliced: frozenset[int] = frozenset()
    toggled: frozenset[int] = frozenset()


class World:
    """One game. Derived tables are computed here once so that steps stay cheap."""

    __slots__ = (
        "at_place",
        "fits",
        "go_commands",
        "goal",
        "goal_objects",
        "goal_receptacles",
        "knives",
        "places",
        "receptacles",
        "sliceables",
        "start",
        "task",
        "things",
    )

    def __init__(
        self,
        *,
        task: str,
        receptacles: Sequence[Receptacle],
        things: Sequence[Thing],
        goal: Goal,
        start: Start,
        fits: Iterable[tuple[str, str]],
    ) -> None:
        self.task = task
        """The task sentence, e.g. `put a clean mug in shelf.`"""
        self.receptacles = tuple(receptacles)
        self.things = tuple(things)
        self.goal = goal
        self.start = start
        self.fits = frozenset(fits)
        """Pairs (receptacle kind, object kind) that may be combined."""
        self.places = 1 + max([start.place, *(r.place for r in self.receptacles)])
        at_place: list[list[int]] = [[] for _ in range(self.places)]
        for index, receptacle in enumerate(self.receptacles):
            at_place[receptacle.place].append(index)
        self.at_place = tuple(tuple(group) for group in at_place)
        """Per location, the receptacles standing there."""
        self.go_commands = {f"go to {r.name}": i for i, r in enumerate(self.receptacles)}
        self.goal_objects = frozenset(
            i for i, thing in enumerate(self.things) if thing.kind == goal.object_kind
        )
        self.goal_receptacles = tuple(
            i for i, r in enumerate(self.receptacles) if r.kind == goal.target_kind
        )
        self.knives = frozenset(i for i, thing in enumerate(self.things) if thing.kind in KNIVES)
        self.sliceables = tuple(i for i, thing in enumerate(self.things) if thing.sliceable)

    def accepts(self, receptacle: int, thing: int) -> bool:
        """Return whether the object may be put into the receptacle (closed or not)."""
        return (self.receptacles[receptacle].kind, self.things[thing].kind) in self.fits
