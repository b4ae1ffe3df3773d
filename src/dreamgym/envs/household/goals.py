"""Task sentences of the household world: what they ask for, and whether facts satisfy it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from dreamgym.envs.base import Facts
from dreamgym.envs.household.readfacts import (
    here,
    holding,
    object_states,
    places,
)
from dreamgym.envs.household.readtext import entities, kind_of, squeeze
from dreamgym.types import Task

State = Literal["", "clean", "hot", "cool"]

_STATES: dict[str, State] = {
    "clean": "clean", "hot": "hot", "cool": "cool", "cold": "cool", "heat": "hot",
    "cleaned": "clean", "heated": "hot", "cooled": "cool",
}  # fmt: skip
_IN = r"(?:in/on|in|on)(?: the| a| some)?"
_FORMS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"put (?P<two>two) (?P<thing>[a-z]+) {_IN} (?P<place>[a-z]+)",
        rf"find (?P<two>two) (?P<thing>[a-z]+) and put them {_IN} (?P<place>[a-z]+)",
        rf"(?P<state>clean|heat|cool) (?:some|an?|the) (?P<thing>[a-z]+) and put it {_IN}"
        r" (?P<place>[a-z]+)",
        r"put (?:some|an?|the) (?P<state>clean|cleaned|hot|heated|cool|cooled|cold) "
        rf"(?P<thing>[a-z]+) {_IN} (?P<place>[a-z]+)",
        rf"put (?:some|an?|the) (?P<thing>[a-z]+) {_IN} (?P<place>[a-z]+)",
        r"(?:look at|examine)(?: the| an?| some)? (?P<thing>[a-z]+) (?:under|with)"
        r"(?: the| an?)? (?P<lamp>[a-z]*lamp)",
    )
)


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What a task sentence asks for, in types (names without numbers).

    `place` is a receptacle type, or the lamp's type where `looking`.
    """

    thing: str
    place: str
    state: State = ""
    count: int = 1
    looking: bool = False

    def phrase(self) -> str:
        """Return the goal in few words, e.g. `clean mug in desk`."""
        if self.looking:
            return f"{self.thing} under {self.place}"
        words = ["two" if self.count == 2 else "", self.state, self.thing, "in", self.place]
        return " ".join(word for word in words if word)


@lru_cache(maxsize=4096)
def parse_goal(sentence: str) -> Goal | None:
    """Return the goal of a task sentence, or None if it is worded in an unknown way.

    >>> parse_goal("put a hot apple in fridge.")
    Goal(thing='apple', place='fridge', state='hot', count=1, looking=False)
    """
    line = squeeze(sentence).rpartition("your task is to:")[2].strip().rstrip(".").strip()
    for form in _FORMS:
        match = form.fullmatch(line)
        if match:
            groups = match.groupdict()
            return Goal(
                thing=groups["thing"],
                place=groups.get("lamp") or groups["place"],
                state=_STATES.get(groups.get("state") or "", ""),
                count=2 if groups.get("two") else 1,
                looking="lamp" in groups,
            )
    return None


def goal_sentence(goal: Goal) -> str:
    """Return a task sentence that asks for the goal; `parse_goal` reads it back."""
    if goal.looking:
        return f"look at {goal.thing} under the {goal.place}."
    if goal.count == 2:
        return f"put two {goal.thing} in {goal.place}."
    if goal.state:
        return f"put a {goal.state} {goal.thing} in {goal.place}."
    return f"put a {goal.thing} in {goal.place}."


def is_achieved(goal: Goal, facts: Facts) -> bool:
    """Return whether the facts satisfy the goal."""
    if goal.looking:
        return kind_of(holding(facts)) == goal.thing and has_light(goal, facts)
    for name, place in places(facts).items():
        if kind_of(name) == goal.place:
            fitting = [item for item in place.items if _fits(goal, facts, item)]
            if len(fitting) >= goal.count:
                return True
    return False


def has_light(goal: Goal, facts: Facts) -> bool:
    """Return whether a lamp of the goal's type is on where the agent stands."""
    return any(
        kind_of(item) == goal.place and "on" in object_states(facts, item) for item in here(facts)
    )


def progress(goal: Goal, facts: Facts, thing: str, place: str) -> str:
    """Return what there is now, in the words of `Goal.phrase`, after `thing` went to `place`.

    Equal to the goal's phrase exactly when this object at this place satisfies the goal.
    """
    if goal.looking:
        held = kind_of(holding(facts))
        return f"{held} {'under' if has_light(goal, facts) else 'without'} {goal.place}"
    state = goal.state if goal.state in object_states(facts, thing) else ""
    target = places(facts).get(place)
    alike = [i for i in (target.items if target else ()) if kind_of(i) == kind_of(thing)]
    number = "two" if goal.count == 2 and len(alike) >= 2 else ""
    words = [number, state, kind_of(thing), "in", kind_of(place)]
    return " ".join(word for word in words if word)


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """Types that occur in a set of tasks, sorted."""

    things: tuple[str, ...]
    places: tuple[str, ...]


def vocabulary(tasks: Iterable[Task]) -> Vocabulary:
    """Return the object and receptacle types of task sentences, first texts and scenarios."""
    things: set[str] = set()
    receptacles: set[str] = set()
    for task in tasks:
        goal = parse_goal(task.instruction)
        if goal is not None:
            things |= {goal.thing, goal.place} if goal.looking else {goal.thing}
            receptacles |= set() if goal.looking else {goal.place}
        if task.scenario is not None:
            receptacles |= {kind_of(e) for e in entities(task.scenario.first_observation)}
            for place in places(task.scenario.facts).values():
                things |= {kind_of(item) for item in place.items}
    return Vocabulary(things=tuple(sorted(things)), places=tuple(sorted(receptacles)))


def _fits(goal: Goal, facts: Facts, item: str) -> bool:
    return kind_of(item) == goal.thing and (
        not goal.state or goal.state in object_states(facts, item)
    )
