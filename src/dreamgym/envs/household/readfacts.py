"""Known facts of the household world, kept as readable text and changed only by what was said.

    at: drawer 1                 holding: mug 1            desk 1: surface: pen 1
    drawer 1: closed: pen 2      cabinet 3: unknown        drawer 2: closed: unknown
    mug 1: clean, hot            desklamp 1: on            near cabinet 1: cabinet 2

`near` is said of receptacles the agent reaches from one spot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from dreamgym.envs.base import Facts
from dreamgym.envs.household.readtext import (
    Reading,
    View,
    by_name,
    read_action,
    read_text,
)

MIDDLE = "middle of the room"
NOTHING = "nothing"
UNKNOWN = "unknown"
_ORDER = ("clean", "hot", "cool", "sliced", "on")
_PLACE = re.compile(r"(unknown|closed|open|surface)(?::\s*(.*))?")

PlaceState = Literal["unknown", "closed", "open", "surface"]


class Place(msgspec.Struct, frozen=True):
    """What is known of a receptacle; not `is_complete` means that it may hold more than `items`."""

    state: PlaceState
    items: tuple[str, ...] = ()
    is_complete: bool = False

    def text(self) -> str:
        """Return the fact's text, e.g. `closed: pen 1`."""
        items = sorted(set(self.items), key=by_name)
        if self.state == UNKNOWN:
            return f"{UNKNOWN}: {', '.join(items)}" if items else UNKNOWN
        if not self.is_complete:
            items = [*items, UNKNOWN]
        return f"{self.state}: {', '.join(items) or NOTHING}"


@lru_cache(maxsize=1 << 16)
def read_place(value: str) -> Place | None:
    """Return what a fact says about a receptacle; None if it is a fact about something else."""
    match = _PLACE.fullmatch(value.strip().lower())
    if match is None:
        return None
    state, listed = match.group(1), match.group(2)
    words = [word.strip() for word in (listed or UNKNOWN).split(",") if word.strip()]
    items = tuple(sorted({w for w in words if w not in (UNKNOWN, NOTHING)}, key=by_name))
    complete = state != UNKNOWN and UNKNOWN not in words
    return Place(state, items, complete)  # type: ignore[arg-type]  # one of the pattern's words


def places(facts: Facts) -> dict[str, Place]:
    """Return the receptacles among the facts."""
    found = {}
    for name, value in facts.items():
        place = read_place(value)
        if place is not None and by_name(name)[1] >= 0 and not name.startswith("near "):
            found[name] = place
    return found


def holding(facts: Facts) -> str:
    """Return the held object or `nothing`."""
    return facts.get("holding", NOTHING)


def object_states(facts: Facts, item: str) -> tuple[str, ...]:
    """Return the known states of an object, e.g. ("clean", "hot")."""
    value = facts.get(item, "")
    return tuple(word for word in value.split(", ") if word in _ORDER)


def near(facts: Facts, place: str) -> tuple[str, ...]:
    """Return the receptacles known to be reached from the same spot."""
    value = facts.get(f"near {place}", "")
    return tuple(value.split(", ")) if value else ()


def reachable(facts: Facts) -> tuple[str, ...]:
    """Return the receptacle the agent stands at and those next to it."""
    at = facts.get("at", MIDDLE)
    return () if at == MIDDLE else (at, *near(facts, at))


def here(facts: Facts) -> tuple[str, ...]:
    """Return the objects known to be in reach (not the held one)."""
    known = places(facts)
    return tuple(item for name in reachable(facts) if name in known for item in known[name].items)


def location(facts: Facts, item: str, prefer: str = "") -> str:
    """Return the receptacle an object is known to be in, `hand`, or "" if unknown.

    Where several receptacles list it, `prefer` wins.
    """
    known = places(facts)
    if prefer in known and item in known[prefer].items:
        return prefer
    if holding(facts) == item:
        return "hand"
    return next((name for name, place in known.items() if item in place.items), "")


def ordered(facts: Facts) -> Facts:
    """Return the facts in their one order: agent, receptacles, neighbours, objects."""

    def key(name: str) -> tuple[int, tuple[str, int, str]]:
        if name in ("at", "holding"):
            return (0, (name, 0, ""))
        if name.startswith("near "):
            return (2, by_name(name))
        return (1 if read_place(facts[name]) else 3, by_name(name))

    return {name: facts[name] for name in sorted(facts, key=key)}


def start_facts(first_text: str, known: Facts) -> Facts:
    """Return the facts before the first action: listed receptacles, plus what is known of them."""
    facts: Facts = {"at": MIDDLE, "holding": NOTHING}
    facts |= dict.fromkeys(read_text(first_text).items, UNKNOWN)
    for name, value in known.items():
        place = read_place(value)
        facts[name] = place.text() if place is not None else value
    return ordered(facts)


def updated(facts: Facts, action: str, text: str) -> Facts:
    """Return the facts after the answer `text`; wording that is not understood changes nothing."""
    reading = read_text(text)
    new = dict(facts)
    match reading.kind:
        case "arrive" if read_action(action).kind != "examine":
            new["at"] = reading.place
        case "view" if read_action(action).kind == "go":
            new["at"] = reading.place
        case "open" | "close":
            _set_state(new, reading.place, "open" if reading.kind == "open" else "closed")
        case "take":
            _remove(new, [reading.thing], unless_in=reading.place)
            new["holding"] = reading.thing
        case "move":
            new["holding"] = NOTHING
            _add(new, reading.place, reading.thing)
        case "inventory":
            _hold(new, reading)
        case "facing":
            _face(new, reading.facing)
        case "room":
            new["at"] = MIDDLE
            new = dict.fromkeys(reading.items, UNKNOWN) | new
        case _:
            _set_states(new, reading)
            if reading.kind in ("on", "off"):
                _locate(new, reading.thing)
    if reading.view is not None:
        _see(new, reading.view)
    return ordered(new)


def join_near(facts: Facts, group: Iterable[str]) -> None:
    """Note that the receptacles of a group are reached from one spot (in place)."""
    members = set(group)
    for name in tuple(members):
        members |= set(near(facts, name))
    for name in members:
        others = sorted(members - {name}, key=by_name)
        if others:
            facts[f"near {name}"] = ", ".join(others)


def _see(facts: Facts, view: View) -> None:
    known = read_place(facts.get(view.place, UNKNOWN)) or Place("unknown")
    if view.items is None:
        facts[view.place] = Place("closed", known.items, known.is_complete).text()
        return
    _remove(facts, set(view.items) - set(known.items))
    facts[view.place] = Place(view.state, view.items, True).text()


def _set_state(facts: Facts, name: str, state: PlaceState) -> None:
    known = read_place(facts.get(name, UNKNOWN)) or Place("unknown")
    facts[name] = Place(state, known.items, known.is_complete).text()


def _remove(facts: Facts, items: Iterable[str], unless_in: str = "") -> None:
    """Take objects out of wherever they were known to be.

    Official games list some objects in two receptacles at once (a pot on stoveburners 1 and 2),
    and taking it from one leaves it listed in the other: an object known to be in the receptacle
    it is taken from (`unless_in`) leaves that one only.
    """
    known = places(facts)
    gone = set(items)
    if facts.get("holding") in gone:
        facts["holding"] = NOTHING
    source = known.get(unless_in)
    only = unless_in if source is not None and gone <= set(source.items) else ""
    for name, place in known.items():
        if gone & set(place.items) and only in ("", name):
            left = tuple(item for item in place.items if item not in gone)
            facts[name] = Place(place.state, left, place.is_complete).text()


def _add(facts: Facts, name: str, item: str) -> None:
    known = read_place(facts.get(name, UNKNOWN)) or Place("unknown")
    facts[name] = Place(known.state, (*known.items, item), known.is_complete).text()


def _locate(facts: Facts, item: str) -> None:
    """An object just used is in reach: if only one receptacle there may hide it, it is there."""
    if location(facts, item):
        return
    known = places(facts)
    hiding = [n for n in reachable(facts) if n in known and not known[n].is_complete]
    if len(hiding) == 1:
        _add(facts, hiding[0], item)


def _hold(facts: Facts, reading: Reading) -> None:
    _remove(facts, reading.items)
    facts["holding"] = reading.items[0] if reading.items else NOTHING


def _face(facts: Facts, facing: tuple[str, ...]) -> None:
    if facing and facts.get("at") not in facing:
        facts["at"] = facing[0]
    if len(facing) > 1:
        join_near(facts, facing)


def _set_states(facts: Facts, reading: Reading) -> None:
    old = set(object_states(facts, reading.thing))
    match reading.kind:
        case "heat":
            new = (old - {"cool"}) | {"hot"}
        case "cool":
            new = (old - {"hot"}) | {"cool"}
        case "clean":
            new = old | {"clean"}
        case "slice":
            new = old | {"sliced"}
        case "on":
            new = old | {"on"}
        case "off":
            new = old - {"on"}
        case "object" if reading.states is not None:
            said = set(reading.states)
            new = (old | said) - {"on", "off"} if said & {"on", "off"} else said | (old & {"on"})
            new |= said & {"on"}
        case _:
            return
    if new:
        facts[reading.thing] = ", ".join(word for word in _ORDER if word in new)
    else:
        facts.pop(reading.thing, None)
