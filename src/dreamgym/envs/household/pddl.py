"""Read the problem text of an official game into a `World`.

Only what this one domain uses is understood; anything else is a `DataError`, never a guess.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from dreamgym.envs.household.world import (
    CLEAN,
    COOL,
    HEAT,
    LOOK,
    SIMPLE,
    TWO,
    Goal,
    Process,
    Receptacle,
    Start,
    Thing,
    World,
)
from dreamgym.errors import DataError

_ATOM = re.compile(r"\(([^()]*)\)")
_COMMENT = re.compile(r";[^\n]*")
_PROCESSES: tuple[tuple[str, Process, str], ...] = (
    ("isclean", "clean", CLEAN),
    ("ishot", "hot", HEAT),
    ("iscool", "cool", COOL),
)

Facts = dict[str, list[tuple[str, ...]]]


def parse_problem(problem: str, task: str) -> World:
    """Return the game of a problem text and its task sentence.

    Raises `DataError` when a part is missing or the goal is none of the six task types.
    """
    text = _COMMENT.sub("", problem).lower()
    init, goal_text = _sections(text)
    facts: Facts = defaultdict(list)
    for atom in _ATOM.findall(init):
        words = atom.split()
        if words:
            facts[words[0]].append(tuple(words[1:]))
    _check_arity(facts)
    names = _entity_names(facts)
    world = _build(facts, names, parse_goal(goal_text), task)
    if not world.goal_objects:
        raise DataError(
            f"the goal asks for a {world.goal.object_kind}, but the game has none; "
            "expected at least one object of that type"
        )
    return world


def _sections(text: str) -> tuple[str, str]:
    begin, end = text.find("(:init"), text.find("(:goal")
    if begin < 0 or end < begin:
        missing = "(:init ...)" if begin < 0 else "(:goal ...)"
        raise DataError(
            f"a problem text of {len(text)} characters has no {missing} part "
            "in the expected order; expected an ALFWorld PDDL problem"
        )
    if text.count("(") != text.count(")"):
        raise DataError(
            f"a problem text has {text.count('(')} opening but {text.count(')')} closing brackets; "
            "the file seems cut off, fetch it again"
        )
    return text[begin + len("(:init") : end], text[end:]


_ARITY = {
    "receptacletype": 2,
    "receptacleatlocation": 2,
    "objecttype": 2,
    "objectatlocation": 2,
    "inreceptacle": 2,
    "inreceptacleobject": 2,
    "cancontain": 2,
    "atlocation": 2,
    "openable": 1,
    "opened": 1,
}


def _check_arity(facts: Facts) -> None:
    for predicate, count in _ARITY.items():
        for arguments in facts.get(predicate, ()):
            if len(arguments) != count:
                raise DataError(
                    f"the fact ({predicate} {' '.join(arguments)}) has {len(arguments)} arguments; "
                    f"expected {count}"
                )
    if len(facts.get("atlocation", ())) != 1:
        raise DataError(
            f"a problem states {len(facts.get('atlocation', ()))} agent locations; expected one"
        )


def _entity_names(facts: Facts) -> dict[str, str]:
    """Return id -> display name. In id order the first of n mugs is `mug n`, the last `mug 1`."""
    ids = sorted(
        {
            argument
            for predicate, rows in facts.items()
            if predicate not in ("distance", "=")
            for row in rows
            for argument in row
            if "_bar_" in argument
        }
    )

    def stem(entity: str) -> str:
        return entity.split("_bar_", 1)[0] + ("basin" if "basin" in entity else "")

    left = Counter(stem(entity) for entity in ids)
    names = {}
    for entity in ids:
        names[entity] = f"{stem(entity)} {left[stem(entity)]}"
        left[stem(entity)] -= 1
    return names


def _kind(type_name: str) -> str:
    return type_name.removesuffix("type")


def _flagged(facts: Facts, predicate: str) -> set[str]:
    return {row[0] for row in facts.get(predicate, ()) if row}


def _build(facts: Facts, names: dict[str, str], goal: Goal, task: str) -> World:
    place_of: dict[str, int] = {}

    def place(location: str) -> int:
        return place_of.setdefault(location, len(place_of))

    kinds = {r: _kind(t) for r, t in facts["receptacletype"]}
    located = [(r, place(where)) for r, where in facts["receptacleatlocation"]]
    if len({r for r, _ in located}) < len(located):
        raise DataError("a receptacle of the problem stands at two locations; expected one")
    openable = _flagged(facts, "openable")
    receptacle_ids = sorted(r for r, _ in located)
    where = dict(located)
    receptacles = [
        Receptacle(names[r], kinds.get(r, ""), where[r], r in openable) for r in receptacle_ids
    ]
    object_ids, things = _things(facts, names)
    index = {o: i for i, o in enumerate(object_ids)}
    contents: list[set[int]] = [set() for _ in receptacles]
    position = {r: i for i, r in enumerate(receptacle_ids)}
    for o, r in facts.get("inreceptacle", ()):
        if r in position:
            contents[position[r]].add(index[o])
    places: list[set[int]] = [set() for _ in things]
    for o, location in facts.get("objectatlocation", ()):
        places[index[o]].add(place(location))
    start = Start(
        contents=tuple(tuple(sorted(inside)) for inside in contents),
        place=place(facts["atlocation"][0][1]),
        opened=frozenset(position[r] for r in _flagged(facts, "opened") if r in position),
        object_places=tuple(frozenset(group) for group in places),
        clean=_indices(facts, "isclean", index),
        hot=_indices(facts, "ishot", index),
        cool=_indices(facts, "iscool", index),
        sliced=_indices(facts, "issliced", index),
        toggled=_indices(facts, "istoggled", index),
    )
    fits = [(_kind(r), _kind(o)) for r, o in facts.get("cancontain", ())]
    return World(
        task=task, receptacles=receptacles, things=things, goal=goal, start=start, fits=fits
    )


def _indices(facts: Facts, predicate: str, index: dict[str, int]) -> frozenset[int]:
    return frozenset(index[o] for o in _flagged(facts, predicate) if o in index)


def _things(facts: Facts, names: dict[str, str]) -> tuple[list[str], list[Thing]]:
    kinds = {o: _kind(t) for o, t in facts.get("objecttype", ())}
    ids = {row[0] for p in ("objecttype", "objectatlocation", "inreceptacle") for row in facts[p]}
    ids |= {o for row in facts.get("inreceptacleobject", ()) for o in row}
    ordered = sorted(ids)
    index = {o: i for i, o in enumerate(ordered)}
    inner: dict[str, list[int]] = defaultdict(list)
    for o, outer in facts.get("inreceptacleobject", ()):
        inner[outer].append(index[o])
    flags = {
        name: _flagged(facts, predicate)
        for name, predicate in (
            ("portable", "pickupable"),
            ("cleanable", "cleanable"),
            ("heatable", "heatable"),
            ("coolable", "coolable"),
            ("switchable", "toggleable"),
            ("sliceable", "sliceable"),
            ("vessel", "isreceptacleobject"),
        )
    }
    things = [
        Thing(
            names.get(o, o),
            kinds.get(o, ""),
            holds=tuple(sorted(inner[o])),
            **{name: o in members for name, members in flags.items()},
        )
        for o in ordered
    ]
    return ordered, things


def parse_goal(text: str) -> Goal:
    """Return the goal of a lower-cased `(:goal ...)` text; `DataError` for other shapes."""
    atoms = [tuple(atom.split()) for atom in _ATOM.findall(text)]
    object_types = [(a[1], _kind(a[2])) for a in atoms if a[:1] == ("objecttype",) and len(a) == 3]
    targets = {_kind(a[2]) for a in atoms if a[:1] == ("receptacletype",) and len(a) == 3}
    predicates = {a[0] for a in atoms if a}
    if {"istoggled", "holds"} <= predicates and len(object_types) == 2:
        lamp = next(a[1] for a in atoms if a[0] == "istoggled")
        kind_of = dict(object_types)
        wanted = next(a[2] for a in atoms if a[0] == "holds")
        if lamp in kind_of and wanted in kind_of and lamp != wanted:
            return Goal(kind=LOOK, object_kind=kind_of[wanted], target_kind=kind_of[lamp])
    wanted_kinds = {kind for _, kind in object_types}
    if "inreceptacle" in predicates and len(wanted_kinds) == 1 and len(targets) == 1:
        kind = SIMPLE
        process: Process = ""
        for predicate, name, task_kind in _PROCESSES:
            if predicate in predicates:
                kind, process = task_kind, name
        if len({variable for variable, _ in object_types}) == 2:
            kind = TWO
        return Goal(
            kind=kind,
            object_kind=wanted_kinds.pop(),
            target_kind=targets.pop(),
            process=process,
            sliced="issliced" in predicates,
        )
    shown = " ".join(text.split())[:120]
    raise DataError(f"the goal {shown!r} is none of the six known task types")
