"""Own games of all six task types: unlimited, seeded, every one proven solvable when made.

A game follows from its id alone (`small-s0-train-00017-pick_two_obj_and_place`): the id seeds a
private generator that picks a room of the split, a goal that room allows and a placement.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

import msgspec

from dreamgym.envs.household import tables
from dreamgym.envs.household.layouts import SIZES, SPLITS, Layout, layouts
from dreamgym.envs.household.planner import make_plan
from dreamgym.envs.household.state import HouseState
from dreamgym.envs.household.world import (
    CLEAN,
    COOL,
    HEAT,
    KINDS,
    LOOK,
    TWO,
    Goal,
    Process,
    Receptacle,
    Start,
    Thing,
    World,
)
from dreamgym.errors import DataError, EnvError, unknown_name
from dreamgym.seeds import derive_random

_MAX_TRIES = 200
_PROCESS: dict[str, tuple[Process, frozenset[str], str]] = {
    CLEAN: ("clean", tables.CLEANABLE, "sinkbasin"),
    HEAT: ("hot", tables.HEATABLE, "microwave"),
    COOL: ("cool", tables.COOLABLE, "fridge"),
}
_SENTENCES: dict[str, tuple[str, str]] = {
    "look_at_obj_in_light": ("look at {o} under the {r}.", "examine the {o} with the {r}."),
    "pick_and_place_simple": ("put a {o} in {r}.", "put some {o} on {r}."),
    CLEAN: ("put a clean {o} in {r}.", "clean some {o} and put it in {r}."),
    COOL: ("put a cool {o} in {r}.", "cool some {o} and put it in {r}."),
    HEAT: ("put a hot {o} in {r}.", "heat some {o} and put it in {r}."),
    TWO: ("put two {o} in {r}.", "find two {o} and put them in {r}."),
}
_UNPLEASANT_TARGETS = frozenset({"stoveburner", "toilet"})


class GameId(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a generated game's id."""

    size: str
    seed: int
    split: str
    index: int
    kind: str

    def __str__(self) -> str:
        return f"{self.size}-s{self.seed}-{self.split}-{self.index:05d}-{self.kind}"

    @classmethod
    def parse(cls, text: str) -> GameId:
        """Return the parts of an id. Raises `DataError` for text that is no such id."""
        parts = text.split("-")
        if len(parts) != 5 or not parts[1].startswith("s"):
            raise DataError(
                f"{text!r} is no id of a generated household game; expected for example "
                "'small-s0-train-00017-pick_two_obj_and_place'"
            )
        size, seed, split, index, kind = parts
        for what, value, known in (
            ("room size", size, SIZES),
            ("split", split, SPLITS),
            ("task type", kind, KINDS),
        ):
            if value not in known:
                raise unknown_name(what, value, known)
        try:
            return cls(size=size, seed=int(seed[1:]), split=split, index=int(index), kind=kind)
        except ValueError:
            raise DataError(f"{text!r} has no whole numbers as seed and index") from None


class GeneratedGame(msgspec.Struct, frozen=True):
    """A generated game: where it plays, the game, and the plan that proves it solvable."""

    layout: Layout
    world: World
    plan: tuple[str, ...]


@lru_cache(maxsize=4096)
def generate_game(game_id: str) -> GeneratedGame:
    """Return the game of an id; the same in every process.

    Raises `DataError` or `ConfigError` for ids that name no game.
    """
    parts = GameId.parse(game_id)
    if str(parts) != game_id:  # one game, one id
        raise DataError(f"{game_id!r} is not how this id is written; expected {str(parts)!r}")
    random = derive_random("household game", game_id)
    rooms = _rooms_for(parts.size, parts.split, parts.kind)
    for _ in range(_MAX_TRIES):
        layout = random.choice(rooms)
        goals = _goals(layout, parts.kind)
        goal = random.choice(goals)
        world = _furnish(layout, goal, parts.size, random)
        if world is None:
            continue
        state = HouseState(world)
        if state.is_won():
            continue
        plan = make_plan(state)
        if plan:
            return GeneratedGame(layout, world, tuple(plan))
    raise EnvError(f"no solvable game for {game_id!r} in {_MAX_TRIES} tries")


@lru_cache(maxsize=64)
def _rooms_for(size: str, split: str, kind: str) -> tuple[Layout, ...]:
    return tuple(layout for layout in layouts(size, split) if _goals(layout, kind))


@lru_cache(maxsize=1024)
def _goals(layout: Layout, kind: str) -> tuple[Goal, ...]:
    """Return every goal of this type that the room's furniture allows."""
    kinds = [name for name, _ in layout.receptacles]
    available = [o for o in tables.ROOM_OBJECTS[layout.room_type] if _homes(layout, o)]
    if kind == LOOK:
        return tuple(
            Goal(kind=kind, object_kind=o, target_kind=lamp)
            for o in available
            for lamp in tables.LAMPS
            if _homes(layout, lamp) and layout.room_type in ("bedroom", "livingroom")
        )
    process: Process = ""
    if kind in _PROCESS:
        process, suitable, station = _PROCESS[kind]
        available = [o for o in available if o in suitable and layout.has(station)]
        kinds = [name for name in kinds if name != station]
    return tuple(
        Goal(kind=kind, object_kind=o, target_kind=target, process=process)
        for o in available
        for target in kinds
        if (target, o) in tables.FITS
        and target not in _UNPLEASANT_TARGETS
        and len(_homes(layout, o)) > 1
    )


def _homes(layout: Layout, thing: str) -> list[str]:
    """Return the kinds of receptacle of this room that suit an object."""
    return [kind for kind, _ in layout.receptacles if (kind, thing) in tables.FITS]


def _furnish(layout: Layout, goal: Goal, size: str, random: Random) -> World | None:
    """Place objects at random; None if the goal's objects found no place outside the target."""
    receptacles = _receptacles(layout)
    kinds = _draw_objects(layout, goal, size, random)
    placed: list[tuple[str, int]] = []
    for kind in kinds:
        homes = [
            i
            for i, receptacle in enumerate(receptacles)
            if (receptacle.kind, kind) in tables.FITS
            and not (kind == goal.object_kind and receptacle.kind == goal.target_kind)
        ]
        if not homes:
            return None
        placed.append((kind, random.choice(homes)))
    numbered = _number(placed, random)
    things = [_thing(kind, number) for kind, number, _ in numbered]
    contents: list[list[int]] = [[] for _ in receptacles]
    for index, (_, _, where) in enumerate(numbered):
        contents[where].append(index)
    start = Start(
        contents=tuple(map(tuple, contents)),
        place=len(receptacles),
        object_places=tuple(frozenset({receptacles[where].place}) for _, _, where in numbered),
    )
    lamp = goal.target_kind
    sentence = random.choice(_SENTENCES[goal.kind]).format(o=goal.object_kind, r=lamp)
    return World(
        task=sentence,
        receptacles=receptacles,
        things=things,
        goal=goal,
        start=start,
        fits=tables.FITS,
    )


def _receptacles(layout: Layout) -> list[Receptacle]:
    """Return the room's receptacles in listing order: by kind, numbers falling."""
    found: list[Receptacle] = []
    for kind, count in layout.receptacles:
        for number in range(count, 0, -1):
            found.append(Receptacle(f"{kind} {number}", kind, len(found), kind in tables.OPENABLE))
    return found


def _draw_objects(layout: Layout, goal: Goal, size: str, random: Random) -> list[str]:
    """Return object kinds for the room: what the goal needs first, then company."""
    _, (least, most), per_kind = tables.ROOM_SIZES[size]
    total = random.randint(least, most)
    chosen = [goal.object_kind] * goal.count
    if goal.kind == LOOK:
        chosen.append(goal.target_kind)
    elif layout.room_type in ("bedroom", "livingroom") and random.random() < 0.5:
        chosen.extend([lamp for lamp in tables.LAMPS if _homes(layout, lamp)][:1])
    pool = [o for o in tables.ROOM_OBJECTS[layout.room_type] if _homes(layout, o)]
    while len(chosen) < total:
        kind = random.choice(pool)
        if chosen.count(kind) < per_kind:
            chosen.append(kind)
        elif all(chosen.count(other) >= per_kind for other in pool):
            break
    return chosen


def _number(placed: list[tuple[str, int]], random: Random) -> list[tuple[str, int, int]]:
    """Give each object a number inside its kind, unrelated to where it lies; listing order."""
    numbered: list[tuple[str, int, int]] = []
    for kind in sorted({kind for kind, _ in placed}):
        places = [where for other, where in placed if other == kind]
        random.shuffle(places)
        numbered.extend(
            (kind, number, where)
            for number, where in zip(range(len(places), 0, -1), places, strict=True)
        )
    return numbered


def _thing(kind: str, number: int) -> Thing:
    is_lamp = kind in tables.LAMPS
    return Thing(
        f"{kind} {number}",
        kind,
        portable=not is_lamp,
        cleanable=kind in tables.CLEANABLE,
        heatable=kind in tables.HEATABLE,
        coolable=kind in tables.COOLABLE,
        switchable=is_lamp,
        sliceable=kind in tables.SLICEABLE,
        vessel=kind in tables.VESSELS,
    )
