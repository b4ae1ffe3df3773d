"""Wordings of the household text world: what an action asks for, what an observation says.

Pure text.  Nothing here knows what an action causes; both dialects of the original benchmark
("You arrive at desk 1. On the desk 1, ..." and the older "On the desk 1, ...") are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

ENTITY = r"[a-z]+ \d+"
_ENTITY = re.compile(rf"\b{ENTITY}\b")
_LIST = rf"nothing|an? {ENTITY}(?:(?:,|, and| and) an? {ENTITY})*"
_VIEW = (
    rf"(?:on the (?P<on>{ENTITY}), you see (?P<on_list>{_LIST})\."
    rf"|the (?P<opened>{ENTITY}) is open\. in it, you see (?P<in_list>{_LIST})\."
    rf"|the (?P<closed>{ENTITY}) is closed\.)"
)
_HEADER = re.compile(r"^\s*-=.*?=-\s*", re.S)

TextKind = Literal[
    "none", "arrive", "view", "open", "close", "take", "move", "heat", "cool", "clean", "slice",
    "on", "off", "object", "inventory", "facing", "room", "help", "other",
]  # fmt: skip

_TEXTS: tuple[tuple[TextKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))  # type: ignore[misc]  # mypy widens the literals of the table
    for kind, pattern in (
        ("none", r"nothing happens\.?"),
        ("arrive", rf"you arrive at (?P<place>{ENTITY})\.(?: {_VIEW})?"),
        ("view", _VIEW),
        ("open", rf"you open the (?P<place>{ENTITY})\.(?: {_VIEW})?"),
        ("close", rf"you close the (?P<place>{ENTITY})\."),
        ("take", rf"you pick up the (?P<thing>{ENTITY}) from the (?P<place>{ENTITY})\."),
        ("move", rf"you move the (?P<thing>{ENTITY}) to the (?P<place>{ENTITY})\."),
        ("move", rf"you put the (?P<thing>{ENTITY}) (?:in/on|in|on) the (?P<place>{ENTITY})\."),
        ("heat", rf"you heat the (?P<thing>{ENTITY}) using the (?P<place>{ENTITY})\."),
        ("cool", rf"you cool the (?P<thing>{ENTITY}) using the (?P<place>{ENTITY})\."),
        ("clean", rf"you clean the (?P<thing>{ENTITY}) using the (?P<place>{ENTITY})\."),
        ("slice", rf"you sliced? the (?P<thing>{ENTITY}) with the (?P<tool>{ENTITY})\."),
        ("on", rf"you turn on the (?P<thing>{ENTITY})\."),
        ("off", rf"you turn off the (?P<thing>{ENTITY})\."),
        ("object", rf"there's nothing special about (?P<thing>{ENTITY})\."),
        ("object", rf"this is an? normal (?P<thing>{ENTITY})\. in it, you see (?P<has>{_LIST})\."),
        ("object", rf"this (?P<thing>{ENTITY}) is (?P<states>on|off)\."),
        (
            "object",
            r"this is an? (?P<states>(?:hot|cool|cold|clean|sliced)"
            rf"(?: (?:and )?(?:hot|cool|cold|clean|sliced))*) (?P<thing>{ENTITY})\.",
        ),
        ("inventory", rf"you are carrying: (?P<list>{_LIST})\."),
        ("inventory", r"you are not carrying anything\."),
        (
            "facing",
            rf"you are facing the (?P<facing>{ENTITY}(?:(?:,|, and| and) {ENTITY})*)\."
            rf" next to it, you see (?P<list>{_LIST})\.",
        ),
        (
            "room",
            rf"you are in the middle of a room\. looking quickly around you, you see"
            rf" (?P<list>{_LIST})\.(?: your task is to: .*)?",
        ),
        ("help", r"available commands:.*"),
    )
)

ActionKind = Literal[
    "go", "open", "close", "take", "move", "examine", "use", "heat", "cool", "clean", "slice",
    "look", "inventory", "help", "other",
]  # fmt: skip

_ACTIONS: tuple[tuple[ActionKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))  # type: ignore[misc]  # mypy widens the literals of the table
    for kind, pattern in (
        ("go", rf"go to (?P<place>{ENTITY})"),
        ("open", rf"open (?P<place>{ENTITY})"),
        ("close", rf"close (?P<place>{ENTITY})"),
        ("take", rf"take (?P<thing>{ENTITY}) from (?P<place>{ENTITY})"),
        (
            "move",
            rf"(?:put|move|place) (?P<thing>{ENTITY}) (?:in/on|into|onto|in|on|to)"
            rf" (?P<place>{ENTITY})",
        ),
        ("examine", rf"examine (?P<thing>{ENTITY})"),
        ("use", rf"use (?P<thing>{ENTITY})"),
        ("heat", rf"heat (?P<thing>{ENTITY}) with (?P<place>{ENTITY})"),
        ("cool", rf"cool (?P<thing>{ENTITY}) with (?P<place>{ENTITY})"),
        ("clean", rf"clean (?P<thing>{ENTITY}) with (?P<place>{ENTITY})"),
        ("slice", rf"slice (?P<thing>{ENTITY}) with (?P<tool>{ENTITY})"),
        ("look", r"look"),
        ("inventory", r"inventory"),
        ("help", r"help"),
    )
)


class View(msgspec.Struct, frozen=True):
    """What an observation says about one receptacle; `items` None when it is shut."""

    place: str
    state: Literal["surface", "open", "closed"]
    items: tuple[str, ...] | None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One observation, read."""

    kind: TextKind
    thing: str = ""
    place: str = ""
    tool: str = ""
    view: View | None = None
    items: tuple[str, ...] = ()
    """Listed entities (inventory, room, next to the agent)."""
    facing: tuple[str, ...] = ()
    states: tuple[str, ...] | None = None
    """States an examined object is said to have; None where the wording does not tell."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One action, read."""

    kind: ActionKind
    thing: str = ""
    place: str = ""
    tool: str = ""


def entities(text: str) -> list[str]:
    """Return the numbered entities of a text, each once, in order of appearance.

    >>> entities("On the desk 1, you see a pen 2, and a mug 1. The desk 1 is nice.")
    ['desk 1', 'pen 2', 'mug 1']
    """
    return list(dict.fromkeys(_ENTITY.findall(squeeze(text))))


def kind_of(entity: str) -> str:
    """Return an entity's type: its name without the number."""
    return entity.rsplit(" ", 1)[0]


def by_name(entity: str) -> tuple[str, int, str]:
    """Sort key that puts drawer 2 before drawer 10."""
    name, _, number = entity.rpartition(" ")
    return (name, int(number), "") if number.isdigit() and name else (entity, -1, entity)


def squeeze(text: str) -> str:
    """Return the text in lower case on one line, without the welcome header."""
    return " ".join(_HEADER.sub("", text).lower().split())


@lru_cache(maxsize=1 << 16)
def read_action(action: str) -> Request:
    """Return what an action asks for; `other` where the wording is unknown."""
    line = " ".join(action.lower().split())
    for kind, pattern in _ACTIONS:
        match = pattern.fullmatch(line)
        if match:
            return Request(kind=kind, **match.groupdict())
    return Request(kind="other")


@lru_cache(maxsize=1 << 16)
def read_text(text: str) -> Reading:
    """Return what an observation says; `other` where the wording is unknown."""
    line = squeeze(text)
    for kind, pattern in _TEXTS:
        match = pattern.fullmatch(line)
        if match:
            return _reading(kind, {k: v for k, v in match.groupdict().items() if v is not None})
    return Reading(kind="other")


def canonical_text(text: str) -> str:
    """Return a form that is equal for equal states (listing order, header, dialect).

    A bare view becomes an arrival, because the older dialect answers `go to` with the view alone.

    >>> canonical_text("On the desk 1, you see a pen 2, a mug 1.")
    'You arrive at desk 1. On the desk 1, you see a mug 1, and a pen 2.'
    """
    line = " ".join(natural_text(_HEADER.sub("", text)).split())
    reading = read_text(line)
    if reading.kind == "view" and reading.view is not None:
        return f"You arrive at {reading.view.place}. {line}"
    if reading.kind == "arrive" and reading.view is not None:
        return f"You arrive at {reading.view.place}. {line.split('. ', 1)[1]}"
    if reading.kind == "move":
        return f"You move the {reading.thing} to the {reading.place}."
    if reading.kind == "none":
        return "Nothing happens."
    return line


_LISTING = re.compile(rf"(?<=you see )an? {ENTITY}(?:(?:,|, and| and) an? {ENTITY})+")


def natural_text(text: str) -> str:
    """Return the text with every listing sorted and worded one way, else unchanged."""
    return _LISTING.sub(lambda match: listing(_items(match.group(0))), text)


def listing(items: Iterable[str]) -> str:
    """Return entities as an observation lists them, sorted.

    >>> listing(["pen 2", "mug 1"])
    'a mug 1, and a pen 2'
    """
    names = [f"a {item}" for item in sorted(items, key=by_name)]
    if len(names) < 2:
        return names[0] if names else "nothing"
    return ", ".join(names[:-1]) + ", and " + names[-1]


def _items(text: str) -> tuple[str, ...]:
    return tuple(_ENTITY.findall(text))


def _reading(kind: TextKind, groups: dict[str, str]) -> Reading:
    view = _view(groups)
    place = groups.get("place", "")
    if view is not None and (not place or kind_of(place) == "loc"):
        place = view.place
    states: tuple[str, ...] | None = None
    if kind == "object" and "has" not in groups:
        words = groups.get("states", "").replace(" and ", " ").replace("cold", "cool").split()
        states = tuple(words)
    return Reading(
        kind=kind,
        thing=groups.get("thing", ""),
        place=place,
        tool=groups.get("tool", ""),
        view=view,
        items=_items(groups.get("list", "")),
        facing=_items(groups.get("facing", "")),
        states=states,
    )


def _view(groups: dict[str, str]) -> View | None:
    if "on" in groups:
        return View(groups["on"], "surface", _items(groups["on_list"]))
    if "opened" in groups:
        return View(groups["opened"], "open", _items(groups["in_list"]))
    if "closed" in groups:
        return View(groups["closed"], "closed", None)
    return None
