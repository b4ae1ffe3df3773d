"""What the experience model is shown of the known facts, and the rationale it learns to write.

    desk 1: here, surface: a mug 1, and a pen 2        mug 1: here, in desk 1
    drawer 2: away, closed: unknown                    pen 3: in hand, clean

Every line says how what it names stands to the agent (`here`, `away`, `shut`, `in hand`), so that
an answer is a look-up and not a comparison of lines, and listings are worded as observations word
them, so that they can be copied.
"""

from __future__ import annotations

from dreamgym.envs.base import Facts
from dreamgym.envs.household.goals import Goal, progress
from dreamgym.envs.household.readfacts import (
    MIDDLE,
    NOTHING,
    UNKNOWN,
    Place,
    here,
    holding,
    location,
    near,
    object_states,
    places,
    reachable,
    read_place,
)
from dreamgym.envs.household.readtext import Reading, Request, entities, listing, read_action

NOT_SEEN = "not seen"
NO_PLACE = "not in this room"
_HANDLING = ("take", "move", "heat", "cool", "clean", "slice")
"""Kinds of action for which it matters what is in the hand."""
_LOOKING_AROUND = ("look", "use", "examine", "slice")
"""Kinds of action whose answer depends on where the agent stands."""


def relevant_lines(facts: Facts, action: str) -> list[str]:
    """Return place, hand, and one line for everything that the action needs."""
    request, known = read_action(action), places(facts)
    at = facts.get("at", MIDDLE)
    lines = [f"at: {at}", f"holding: {holding(facts)}"]
    names = entities(action)
    if request.kind in _LOOKING_AROUND and at in known:
        names.append(at)
    if request.kind == "look":
        names += near(facts, at)
        if at == MIDDLE:
            lines.append(f"places: {', '.join(known)}")
    if request.kind in ("take", "use"):
        names += [item for item in here(facts) if "on" in object_states(facts, item)]
    for name in dict.fromkeys(names):
        is_place = name in known or name == request.place
        prefer = request.place if request.kind == "take" else ""
        lines.append(
            f"{name}: {_shown_place(facts, name) if is_place else whereabouts(facts, name, prefer)}"
        )
    return lines


def explanation(facts: Facts, action: str, reading: Reading, after: Facts) -> list[str]:
    """Return the parts of a rationale: what the action meets, the decision, what it changes."""
    request = read_action(action)
    parts = _met(facts, request)
    if reading.kind == "none":
        return [*parts, f"no effect: {_why_not(facts, request)}"]
    return [*parts, "ok", *_changes(facts, after, reading)]


def goal_lines(goal: Goal, after: Facts, reading: Reading) -> list[str]:
    """Compare need and have where the step could finish the task."""
    looking = reading.kind in ("take", "on", "off")
    if reading.kind == "move" if not goal.looking else looking:
        has = progress(goal, after, reading.thing, reading.place)
        return [f"needs {goal.phrase()}", f"has {has}"]
    return []


def whereabouts(facts: Facts, item: str, prefer: str = "") -> str:
    """Return where an object is, as seen from the agent, and its known states.

    >>> facts = {"at": "desk 1", "desk 1": "surface: mug 1", "mug 1": "clean"}
    >>> whereabouts(facts, "mug 1"), whereabouts(facts, "pen 2")
    ('here, in desk 1, clean', 'not seen')
    """
    where = location(facts, item, prefer)
    if where == "hand":
        words = ["in hand"]
    elif where:
        words = [_relation(facts, where), f"in {where}"]
    else:
        words = [NOT_SEEN]
    return ", ".join([*words, *object_states(facts, item)])


def _relation(facts: Facts, place: str) -> str:
    """Return how the objects in a place stand to the agent."""
    if place not in reachable(facts):
        return "away"
    known = read_place(facts[place])
    return "shut" if known is not None and known.state == "closed" else "here"


def _shown_place(facts: Facts, name: str) -> str:
    place = read_place(facts.get(name, ""))
    if place is None:
        return NO_PLACE
    return f"{_presence(facts, name)}, {place.state}: {_contents(place)}"


def _presence(facts: Facts, name: str) -> str:
    return "here" if name in reachable(facts) else "away"


def _contents(place: Place) -> str:
    if place.is_complete:
        return listing(place.items)
    return f"{listing(place.items)}, and more {UNKNOWN}" if place.items else UNKNOWN


def _met(facts: Facts, request: Request) -> list[str]:
    """The facts an answer to this action has to be looked up in."""
    place, known = read_place(facts.get(request.place, "")), places(facts)
    lines: list[str] = []
    if request.kind in _HANDLING:
        lines.append(f"holding {holding(facts)}")
    if request.place and place is None:
        return [*lines, f"{request.place} {NO_PLACE}"]
    if place is not None:
        lines.append(f"{request.place} {_presence(facts, request.place)}, {place.state}")
    thing = request.thing
    if thing in known:
        lines.append(f"{thing} {_presence(facts, thing)}, {known[thing].state}")
    elif thing:
        prefer = request.place if request.kind == "take" else ""
        lines.append(f"{thing} {whereabouts(facts, thing, prefer)}")
    return lines or [f"at {facts.get('at', MIDDLE)}"]


def _why_not(facts: Facts, request: Request) -> str:
    """Say which known fact stands against a logged failure, in general words where none does."""
    place, held = places(facts).get(request.place), holding(facts)
    kind = request.kind
    if kind == "other":
        return "no such action"
    if request.place and place is None:
        return f"{request.place} {NO_PLACE}"
    if kind == "go":
        is_there = request.place in reachable(facts)
        return f"already at {request.place}" if is_there else "not possible"
    if request.place and request.place not in reachable(facts):
        return f"not at {request.place}"
    if kind == "take" and held != NOTHING:
        return f"holding {held}"
    if kind in ("move", "heat", "cool", "clean") and held != request.thing:
        return f"not holding {request.thing}"
    if kind == "slice" and held != request.tool:
        return f"not holding {request.tool}"
    if place is not None and kind in ("take", "move", "close") and place.state == "closed":
        return f"{request.place} closed"
    if place is not None and kind in ("open", "close") and place.state in ("open", "surface"):
        return f"{request.place} {place.state}"
    if place is not None and kind == "take" and request.thing not in place.items:
        return f"{request.thing} not in {request.place}"
    if kind in ("use", "slice", "examine") and not _is_here(facts, request.thing):
        return f"{request.thing} not here"
    return "not possible"


def _is_here(facts: Facts, thing: str) -> bool:
    return thing == holding(facts) or thing in here(facts) or thing in reachable(facts)


def _changes(before: Facts, after: Facts, reading: Reading) -> list[str]:
    lines = [
        f"{name} {after[name]}" for name in ("at", "holding") if after.get(name) != before.get(name)
    ]
    if reading.kind in ("open", "close"):
        lines.append(f"{reading.place} {'open' if reading.kind == 'open' else 'closed'}")
    if reading.kind == "move":
        lines.append(f"{reading.thing} in {reading.place}")
    if reading.kind in ("heat", "cool", "clean", "slice", "on", "off"):
        states = ", ".join(object_states(after, reading.thing)) or "off"
        lines.append(f"{reading.thing} {states}")
    return lines
