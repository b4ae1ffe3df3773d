"""Hindsight: what logged episodes of one task reveal about the world before the first action.

An object counts as initially where it was seen, unless the agent had put it there before; a
receptacle's first reported state is its initial state, because only the agent opens and closes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dreamgym.envs.base import Facts
from dreamgym.envs.household.readfacts import (
    MIDDLE,
    Place,
    PlaceState,
    join_near,
    ordered,
    read_place,
)
from dreamgym.envs.household.readtext import Reading, View, read_action, read_text
from dreamgym.errors import DataError
from dreamgym.types import Transition


def initial_facts(transitions: Sequence[Transition]) -> Facts:
    """Return the facts about the initial state that the episodes reveal, merged.

    A receptacle never seen inside is `unknown` or `closed: unknown`.  Episodes without their
    first step reveal nothing about the start and are left out.  Raises `DataError` when two
    episodes contradict each other: then they were not the same task instance.
    """
    episodes: dict[str, list[Transition]] = {}
    for transition in transitions:
        episodes.setdefault(transition.episode_id, []).append(transition)
    merged: Facts = {}
    for name, steps in episodes.items():
        steps = sorted(steps, key=lambda transition: transition.step)
        if steps[0].step == 0:
            _merge(merged, _one_episode(steps), name)
    return ordered(merged)


class _Tracker:
    """Reads one episode and keeps what it says about the start."""

    def __init__(self, listed: Iterable[str]) -> None:
        self.listed = set(listed)
        self.at = MIDDLE
        self.states: dict[str, PlaceState] = {}
        self.contents: dict[str, set[str]] = {}
        self.complete: set[str] = set()
        self.brought: set[tuple[str, str]] = set()
        """(object, receptacle) pairs the agent made true."""
        self.touched: set[str] = set()
        """Objects whose state the agent may have changed."""
        self.object_states: Facts = {}
        self.near: Facts = {}

    def read(self, transition: Transition) -> None:
        reading = read_text(transition.next_observation.text)
        self._move_agent(reading, read_action(transition.action).kind)
        if reading.kind in ("open", "close"):
            state: PlaceState = "closed" if reading.kind == "open" else "open"
            self.states.setdefault(reading.place, state)
        if reading.view is not None:
            self._see(reading.view)
        if reading.kind == "take":
            self._first_seen(reading.thing, reading.place)
        if reading.kind == "move":
            self.brought.add((reading.thing, reading.place))
        self._note_states(reading)
        self._note_near(transition, reading)

    def facts(self) -> Facts:
        facts: Facts = {}
        for name in self.listed | set(self.states) | set(self.contents):
            place = Place(
                self.states.get(name, "unknown"),
                tuple(self.contents.get(name, ())),
                name in self.complete,
            )
            facts[name] = place.text()
        return facts | self.near | self.object_states

    def _move_agent(self, reading: Reading, kind: str) -> None:
        if reading.kind == "arrive" or (reading.kind == "view" and kind == "go"):
            self.at = reading.place
        elif reading.kind == "facing" and self.at not in reading.facing:
            self.at = reading.facing[0]

    def _see(self, view: View) -> None:
        self.states.setdefault(view.place, view.state)
        if view.items is None or view.place in self.complete:
            return
        self.complete.add(view.place)
        for item in view.items:
            self._first_seen(item, view.place)

    def _first_seen(self, item: str, place: str) -> None:
        if (item, place) not in self.brought:
            self.contents.setdefault(place, set()).add(item)

    def _note_states(self, reading: Reading) -> None:
        if reading.kind in ("heat", "cool", "clean", "slice", "on", "off"):
            self.touched.add(reading.thing)
        elif reading.kind == "object" and reading.states and reading.thing not in self.touched:
            known = [state for state in reading.states if state != "off"]
            if known:
                self.object_states[reading.thing] = ", ".join(known)

    def _note_near(self, transition: Transition, reading: Reading) -> None:
        if self.at == MIDDLE:
            return
        reached = set(reading.facing)
        if reading.kind in ("open", "close", "take", "move", "heat", "cool", "clean"):
            reached.add(reading.place)
        for action in transition.next_observation.actions or ():
            request = read_action(action)
            if request.kind == "examine" and request.thing in self.listed:
                reached.add(request.thing)
            elif request.kind not in ("go", "other") and request.place:
                reached.add(request.place)
                if request.kind == "take":
                    self._first_seen(request.thing, request.place)
        if reached - {self.at}:
            join_near(self.near, {self.at, *reached})


def _one_episode(steps: Sequence[Transition]) -> Facts:
    tracker = _Tracker(read_text(steps[0].observation.text).items)
    for transition in steps:
        tracker.read(transition)
    return tracker.facts()


def _merge(merged: Facts, new: Facts, episode: str) -> None:
    """Add the facts of one more episode (in place)."""
    for name, value in new.items():
        old, place = read_place(merged.get(name, "unknown")), read_place(value)
        if name.startswith("near "):
            join_near(merged, {name[5:], *value.split(", ")})
        elif place is None or old is None:
            merged[name] = value
        else:
            merged[name] = _joined(name, old, place, episode).text()


def _joined(name: str, old: Place, new: Place, episode: str) -> Place:
    states = {old.state, new.state} - {"unknown"}
    items = set(old.items) | set(new.items)
    wrong = (old.is_complete and items != set(old.items)) or (
        new.is_complete and items != set(new.items)
    )
    if len(states) > 1 or wrong:
        raise _contradiction(f"{name} starts as {old.text()!r} and as {new.text()!r}", episode)
    state: PlaceState = new.state if old.state == "unknown" else old.state
    return Place(state, tuple(items), old.is_complete or new.is_complete)


def _contradiction(what: str, episode: str) -> DataError:
    return DataError(
        f"logged episodes of one task disagree about its start: {what} (episode {episode!r}); "
        "give different task instances different ids"
    )
