"""Free negatives: well-formed actions outside a logged admissible list, known to do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from dreamgym.envs.household.goals import parse_goal
from dreamgym.envs.household.readtext import (
    Request,
    by_name,
    entities,
    kind_of,
    read_action,
    read_text,
)
from dreamgym.seeds import derive_random
from dreamgym.types import Transition

_PER_VERB = 8
_APPLIANCES = {
    "heat": ("microwave", "stoveburner", "toaster"),
    "cool": ("fridge",),
    "clean": ("sinkbasin", "bathtubbasin", "sink"),
}
"""Receptacles agents are seen to try each verb with; which of them work is not said here."""
_NEVER_THERE = ("bathroom 1", "garage 1", "window 9")
_IDLE = ("wait", "eat {}", "throw {}", "pull {}", "push {}")


def free_negatives(transition: Transition) -> list[str]:
    """Return up to `_PER_VERB` actions per verb that the log's admissible list leaves out.

    The order depends only on the transition; verbs alternate, so any prefix is diverse.  Empty
    when no admissible list was logged.
    """
    actions = transition.observation.actions
    if not actions:
        return []
    admissible = {_key(action) for action in actions}
    rng = derive_random("negatives", transition.episode_id, transition.step)
    by_verb = []
    for candidates in _Scene(transition, actions).candidates():
        pool = sorted({c for c in candidates if _key(c) not in admissible})
        by_verb.append(rng.sample(pool, min(_PER_VERB, len(pool))))
    return [action for row in zip_longest(*by_verb) for action in row if action is not None]


def _key(action: str) -> Request | str:
    """Return what an action asks for, so that two spellings of one action are the same."""
    request = read_action(action)
    return " ".join(action.lower().split()) if request.kind == "other" else request


class _Scene:
    """What a transition's own text and admissible list name: the material for wrong actions."""

    def __init__(self, transition: Transition, actions: tuple[str, ...]) -> None:
        requests = [read_action(action) for action in actions]
        reading = read_text(transition.observation.text)
        # `go to` lists every receptacle but the one the agent stands at.
        places = {r.place for r in requests if r.place}
        places |= set(reading.items) if reading.kind == "room" else set()
        places |= {reading.place} if reading.place else set()
        texts = (transition.observation.text, transition.next_observation.text, *actions)
        seen = {entity for text in texts for entity in entities(text)}
        goal = parse_goal(transition.instruction)
        wanted = [goal.thing, goal.place if goal.looking else goal.thing] if goal else []
        self.places = sorted(places, key=by_name)
        self.held = sorted({r.thing for r in requests if r.kind == "move"}, key=by_name)
        self.here = sorted(places - {r.place for r in requests if r.kind == "go"}, key=by_name)
        things = (seen - places) | {f"{kind} {n}" for kind in wanted for n in (1, 2)}
        things |= {read_action(transition.action).thing or self.places[0]} - places
        self.things = sorted(things - set(_NEVER_THERE), key=by_name)

    def candidates(self) -> Iterator[list[str]]:
        """Yield wrong and right actions verb by verb; the caller drops the admissible ones."""
        yield self._take()
        yield self._move()
        yield [f"go to {place}" for place in (*self.here, *self._unlisted())]
        yield [f"open {place}" for place in (*self.places, *self._unlisted()[:2])]
        yield [f"close {place}" for place in (*self.places, *self._unlisted()[:2])]
        for verb, appliances in _APPLIANCES.items():
            yield self._with(verb, appliances)
        yield [f"use {thing}" for thing in (*self.things, *self.here)]
        yield [f"examine {entity}" for entity in (*self.things, *self.places)]
        yield [f"slice {a} with {b}" for a in self.things for b in self.things if a != b]
        yield [form.format(thing) for form in _IDLE for thing in (self.things or ["door 1"])]

    def _take(self) -> list[str]:
        near = [f"take {thing} from {place}" for thing in self.things for place in self.here]
        far = [f"take {thing} from {place}" for thing in self.things for place in self.places]
        # Half of the pool is about where the agent stands: there the mistake is harder to see.
        return near if len(near) >= 2 * _PER_VERB else near + far

    def _move(self) -> list[str]:
        held = [f"move {thing} to {place}" for thing in self.held for place in self.places]
        other = [f"move {thing} to {place}" for thing in self.things for place in self.here]
        return held[: 4 * _PER_VERB] + other[: 4 * _PER_VERB]

    def _with(self, verb: str, appliances: tuple[str, ...]) -> list[str]:
        tools = [place for place in self.places if kind_of(place) in appliances]
        tools += self.here or self.places[:1]
        things = [*self.held, *self.things]
        return [f"{verb} {thing} with {tool}" for thing in things for tool in tools]

    def _unlisted(self) -> list[str]:
        last: dict[str, int] = {}
        for place in self.places:
            last[kind_of(place)] = max(last.get(kind_of(place), 0), by_name(place)[1])
        beyond = [f"{kind} {number + 1}" for kind, number in last.items()]
        return [*(p for p in _NEVER_THERE if p not in self.places), *beyond]
