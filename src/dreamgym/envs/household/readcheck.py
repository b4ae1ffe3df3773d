"""Where an answer contradicts what is known: comparisons of text with text, no rules of the world.

An answer claims things ("You pick up the pen 1 from the desk 1" claims that the agent is at desk
1, that the pen was in it, and that the hand was free); each claim is compared with the ledger.
Saying that nothing happened claims nothing and is always allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from dreamgym.envs.base import Facts
from dreamgym.envs.household.readfacts import (
    MIDDLE,
    NOTHING,
    Place,
    here,
    holding,
    location,
    object_states,
    places,
    reachable,
)
from dreamgym.envs.household.readtext import (
    Reading,
    Request,
    View,
    kind_of,
    read_action,
    read_text,
)
from dreamgym.types import Transition

_ANSWERS: dict[str, frozenset[str]] = {
    "go": frozenset({"arrive", "view"}),
    "examine": frozenset({"view", "arrive", "object"}),
    "use": frozenset({"on", "off"}),
    "look": frozenset({"facing", "room"}),
    "other": frozenset(),
}
"""Kinds of answer each kind of action can get; a kind not listed only gets its own."""

_USES_HAND = frozenset({"heat", "cool", "clean"})


Tools = Mapping[str, frozenset[str]]
"""Verb (heat, cool, clean) -> receptacle types, and `use` -> object types, that logs show."""


def logged_tools(transitions: Iterable[Transition]) -> Tools:
    """Return with what things were heated, cooled, cleaned, and what was used, in real logs."""
    found: dict[str, set[str]] = {verb: set() for verb in (*sorted(_USES_HAND), "use")}
    for transition in transitions:
        answered = read_text(transition.next_observation.text).kind != "none"
        taken = [transition.action] if answered else []
        for action in (*taken, *(transition.observation.actions or ())):
            request = read_action(action)
            if request.kind in found:
                found[request.kind].add(kind_of(request.place or request.thing))
    return {verb: frozenset(kinds) for verb, kinds in found.items() if kinds}


def find_conflicts(facts: Facts, action: str, text: str, tools: Tools | None = None) -> list[str]:
    """Return one sentence per known fact that the answer contradicts.

    `tools` is what logs show; a verb they never show is not judged.
    """
    reading, request = read_text(text), read_action(action)
    if reading.kind == "none":
        return []
    if reading.kind == "other":
        return ["the answer is not worded like this world."]
    if reading.kind not in _ANSWERS.get(request.kind, {request.kind}):
        return [f"the answer is about another action than {_short(action)}."]
    mismatch = list(_other_target(request, reading))
    if mismatch:
        return mismatch
    found = [
        *_unlisted(facts, reading),
        *_wrong_place(facts, request, reading),
        *_wrong_hand(facts, reading),
        *_wrong_receptacle(facts, reading),
        *_wrong_object(facts, reading),
        *_unseen_tool(reading, tools or {}),
    ]
    if reading.view is not None:
        found += _wrong_view(facts, reading.view, reading.kind)
    return list(dict.fromkeys(found))


def _other_target(request: Request, reading: Reading) -> Iterator[str]:
    """The answer names something else than the action, or its two sentences differ."""
    view = reading.view
    if request.kind == "examine":
        said = view.place if view is not None else reading.thing
        if said != request.thing:
            yield f"asked about {request.thing}, answered about {said}."
    else:
        for asked, said in (
            (request.place, reading.place),
            (request.thing, reading.thing),
            (request.tool, reading.tool),
        ):
            if asked and asked != said:
                yield f"asked about {asked}, answered about {said or NOTHING}."
    if view is not None and reading.place != view.place:
        yield f"the answer names {reading.place} and then {view.place}."
    if reading.kind == "open" and view is not None and view.state != "open":
        yield f"the answer opens {view.place} and calls it {view.state}."
    if reading.kind == "arrive" and view is None:
        yield f"the answer does not say what is at {reading.place}."


def _unlisted(facts: Facts, reading: Reading) -> Iterator[str]:
    known = places(facts)
    for place in (reading.place, *reading.facing):
        if place and place not in known:
            yield f"there is no {place}."


def _wrong_place(facts: Facts, request: Request, reading: Reading) -> Iterator[str]:
    """The answer does something at a receptacle while the agent is known to be elsewhere."""
    at, within = facts.get("at", MIDDLE), reachable(facts)
    acts = reading.kind in ("open", "close", "take", "move", *_USES_HAND)
    looks = request.kind == "examine" and reading.view is not None
    if (acts or looks) and reading.place not in within:
        yield f"at {at}, not at {reading.place}."
    if reading.kind == "facing" and at not in reading.facing:
        yield f"at {at}, not at {', '.join(reading.facing)}."
    if reading.kind == "room":
        if at != MIDDLE:
            yield f"at {at}, not in the {MIDDLE}."
        if reading.items and set(reading.items) != set(places(facts)):
            yield "the room has other receptacles."


def _wrong_hand(facts: Facts, reading: Reading) -> Iterator[str]:
    held = holding(facts)
    needed = reading.tool if reading.kind == "slice" else reading.thing
    if reading.kind == "take" and held != NOTHING:
        yield f"already holding {held}."
    if reading.kind in ("move", "slice", *_USES_HAND) and held != needed:
        yield f"holding {held}, not {needed}."
    if reading.kind == "inventory" and (reading.items or (NOTHING,)) != (held,):
        yield f"holding {held}."


def _wrong_receptacle(facts: Facts, reading: Reading) -> Iterator[str]:
    known = places(facts).get(reading.place)
    if known is None:
        return
    if reading.kind == "open" and known.state in ("open", "surface"):
        yield f"{reading.place} is known as {known.state}."
    if reading.kind == "close" and known.state in ("closed", "surface"):
        yield f"{reading.place} is known as {known.state}."
    if reading.kind in ("take", "move") and known.state == "closed":
        yield f"{reading.place} is closed."
    if reading.kind == "take":
        where = location(facts, reading.thing, reading.place)
        if where not in ("", reading.place, "hand"):
            yield f"{reading.thing} is in {where}."
        elif known.is_complete and reading.thing not in known.items:
            yield f"{reading.place} holds {_listed(known)}, not {reading.thing}."


def _wrong_object(facts: Facts, reading: Reading) -> Iterator[str]:
    """The answer acts on an object that is known not to be here, or in another state."""
    if reading.kind in ("on", "off", "slice", "object") and not _may_be_here(facts, reading.thing):
        where = location(facts, reading.thing)
        yield f"{reading.thing} is {f'in {where}' if where else 'not here'}."
    if reading.kind == "object" and reading.states is not None:
        known = set(object_states(facts, reading.thing))
        said = set(reading.states)
        if said & {"on", "off"}:
            if "off" in said and "on" in known:
                yield f"{reading.thing} is on."
        elif (known - {"on"}) - said:
            yield f"{reading.thing} is known as {', '.join(sorted(known))}."
        if {"hot", "cool"} <= said | known:
            yield f"{reading.thing} cannot be hot and cool."
    if reading.kind == "facing":
        for item in reading.items:
            if not _may_be_here(facts, item):
                yield f"{item} is not here."


def _unseen_tool(reading: Reading, tools: Tools) -> Iterator[str]:
    verb = "use" if reading.kind in ("on", "off") else reading.kind
    seen, kind = tools.get(verb), kind_of(reading.place or reading.thing)
    if seen is not None and kind not in seen:
        yield f"no log shows {verb} with {kind}."


def _wrong_view(facts: Facts, view: View, kind: str) -> Iterator[str]:
    known = places(facts).get(view.place, Place("unknown"))
    if kind != "open" and known.state not in ("unknown", view.state):
        yield f"{view.place} is known as {known.state}."
    if view.items is None:
        return
    said, listed = set(view.items), set(known.items)
    twice = sorted(item for item, count in Counter(view.items).items() if count > 1)
    for item in twice:
        yield f"{item} is listed twice."
    for item in view.items:
        where = location(facts, item, view.place)
        if where not in ("", view.place):
            yield f"{item} is in {where}."
    if (known.is_complete and said != listed) or not listed <= said:
        yield f"{view.place} holds {_listed(known)}."


def _may_be_here(facts: Facts, item: str) -> bool:
    """Return False only if the object is known to be elsewhere, or the place is fully known."""
    if item == holding(facts) or item in here(facts):
        return True
    if location(facts, item):
        return False
    known = places(facts)
    return any(name in known and not known[name].is_complete for name in reachable(facts))


def _listed(place: Place) -> str:
    return ", ".join(place.items) or NOTHING


def _short(action: str) -> str:
    return repr(action if len(action) <= 60 else action[:57] + "...")
