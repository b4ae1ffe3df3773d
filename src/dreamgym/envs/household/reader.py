"""`HouseholdReader`: reads the household's texts; knows none of its rules.

The parts: `readtext` (wordings), `readfacts` (known facts), `readback` (hindsight), `readcheck`
(contradictions), `readfree` (free negatives), `goals` (task sentences).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dreamgym.envs.base import Facts
from dreamgym.envs.household.goals import Goal, is_achieved, parse_goal, progress
from dreamgym.envs.household.readback import initial_facts
from dreamgym.envs.household.readcheck import Tools, find_conflicts, logged_tools
from dreamgym.envs.household.readfacts import (
    MIDDLE,
    NOTHING,
    Place,
    here,
    holding,
    near,
    object_states,
    places,
    reachable,
    start_facts,
    updated,
)
from dreamgym.envs.household.readfree import free_negatives
from dreamgym.envs.household.readtask import task_template, vocabulary_key, why_infeasible
from dreamgym.envs.household.readtext import (
    Reading,
    Request,
    canonical_text,
    entities,
    kind_of,
    natural_text,
    read_action,
    read_text,
)
from dreamgym.errors import DataError
from dreamgym.types import Origin, Task, Transition


class HouseholdReader:
    """The household's `StateReader`: text only."""

    failure_ends = False
    """No household episode ends by failing, so `done` without success is a model's mistake."""

    def __init__(self, tools: Tools | None = None) -> None:
        self._tools = tools

    def learned(self, transitions: Iterable[Transition]) -> HouseholdReader:
        """Return a reader that also refuses what no real log shows: heating with a desk.

        Give it *real* transitions only; a dream's own mistakes must not become evidence.
        """
        real = (t for t in transitions if t.origin is Origin.REAL)
        return HouseholdReader(logged_tools(real))

    def initial(self, task: Task) -> Facts:
        """Return the facts before the first action; raises `DataError` without a scenario."""
        if task.scenario is None:
            raise DataError(
                f"task {task.id!r} has no scenario, so nothing is known of its start; "
                "make one with dream.scenario.make_scenario"
            )
        return start_facts(task.scenario.first_observation, task.scenario.facts)

    def hindsight(self, transitions: Sequence[Transition]) -> Facts:
        """Return facts about the initial state that logged episodes of one task reveal."""
        return initial_facts(transitions)

    def update(self, facts: Facts, action: str, text: str) -> Facts:
        """Return the facts after `action` was answered by `text`."""
        return updated(facts, action, text)

    def relevant(self, facts: Facts, action: str) -> list[str]:
        """Return place, inventory and the lines of what the action mentions.

        >>> facts = {"at": "desk 1", "holding": "nothing", "desk 1": "surface: mug 1"}
        >>> HouseholdReader().relevant(facts, "take mug 1 from desk 1")
        ['at: desk 1', 'holding: nothing', 'desk 1: surface: mug 1']
        """
        lines = {name: facts.get(name, "") for name in ("at", "holding")}
        known, request = places(facts), read_action(action)
        at = facts.get("at", MIDDLE)
        for name in reachable(facts)[1:]:
            lines[f"near {at}"] = facts[f"near {at}"]
            if request.kind == "look":
                lines[name] = facts.get(name, "unknown")
        mentioned = entities(action)
        if request.kind in ("look", "use", "examine", "slice") and at in known:
            mentioned.append(at)
        if request.kind == "look" and at == MIDDLE:
            lines["places"] = ", ".join(known)
        if request.kind in ("take", "use"):
            mentioned += [item for item in here(facts) if "on" in object_states(facts, item)]
        for name in mentioned:
            if name in facts:
                lines[name] = facts[name]
            elif name == request.place:
                lines[name] = "not in this room"
        return [f"{name}: {value}" for name, value in lines.items()]

    def conflicts(self, facts: Facts, action: str, text: str) -> list[str]:
        """Return sentences on the known facts that the answer contradicts."""
        return find_conflicts(facts, action, text, self._tools)

    def achieved(self, task: Task, facts: Facts) -> bool | None:
        """Return whether the facts satisfy the task sentence; None if it cannot be read."""
        goal = parse_goal(task.instruction)
        return None if goal is None else is_achieved(goal, facts)

    def template(self, instruction: str) -> str:
        """Return what a task asks for whatever its wording; "" if it cannot be read."""
        return task_template(instruction)

    def infeasible(self, instruction: str, facts: Facts, logged: Sequence[str]) -> str | None:
        """Return why a task cannot be played in a world with these facts, None if it can."""
        known = frozenset(vocabulary_key(sentence) for sentence in logged)
        return why_infeasible(instruction, facts, known)

    def explain(self, task: Task, facts: Facts, action: str, text: str, success: bool) -> str:
        """Return the rationale: facts before, decision, facts after, and the goal where it moves.

        >>> task = Task(id="t", suite="household", instruction="put a mug in shelf.")
        >>> facts = {"at": "shelf 1", "holding": "mug 1", "shelf 1": "surface: nothing"}
        >>> HouseholdReader().explain(
        ...     task, facts, "move mug 1 to shelf 1", "You move the mug 1 to the shelf 1.", True)
        'at shelf 1. holding mug 1. shelf 1 surface. ok. holding nothing. mug 1 in shelf 1. \
needs mug in shelf. has mug in shelf. task done.'
        """
        request, reading = read_action(action), read_text(text)
        parts = [f"at {facts.get('at', MIDDLE)}", f"holding {holding(facts)}"]
        parts += _before(facts, request)
        if reading.kind == "none":
            parts.append(f"no effect: {_why_not(facts, request)}")
        else:
            after = updated(facts, action, text)
            parts += ["ok", *_changes(facts, after, reading)]
            goal = parse_goal(task.instruction)
            if goal is not None:
                parts += _goal_lines(goal, after, reading)
        if success:
            parts.append("task done")
        return ". ".join(parts) + "."

    def canonical(self, text: str) -> str:
        """Return the observation in a form equal for equal states and both dialects (ENV-06)."""
        return canonical_text(text)

    def natural(self, text: str) -> str:
        """Return the observation in its own dialect with listings sorted."""
        return natural_text(text)

    def action_kind(self, action: str) -> str:
        """Return the action's verb, `move` for every way to put something down, or `other`."""
        return read_action(action).kind

    def is_no_effect(self, text: str) -> bool:
        """Return whether the observation says that nothing happened."""
        return read_text(text).kind == "none"

    def negatives(self, transition: Transition) -> list[str]:
        """Return well-formed actions outside the logged admissible list."""
        return free_negatives(transition)


def _before(facts: Facts, request: Request) -> list[str]:
    """The facts an answer to this action has to be looked up in, beyond place and hand."""
    place = places(facts).get(request.place)
    lines: list[str] = []
    if request.place and place is None:
        return [f"{request.place} not in this room"]
    if place is not None and request.kind in ("open", "close"):
        lines.append(f"{request.place} {place.text()}")
    elif place is not None and request.kind in ("go", "take", "move"):
        lines.append(f"{request.place} {place.state}")
    if place is not None and request.kind == "take":
        lines.append(_membership(request.thing, place, request.place))
    if request.kind in ("use", "slice", "examine") and request.thing not in places(facts):
        lines.append(f"{request.thing} {'here' if _is_here(facts, request.thing) else 'not here'}")
    states = object_states(facts, request.thing)
    if states and request.kind in ("move", "heat", "cool", "clean", "examine"):
        lines.append(f"{request.thing} {', '.join(states)}")
    return lines


def _membership(thing: str, place: Place, name: str) -> str:
    if thing in place.items:
        return f"{thing} in {name}"
    return f"{thing} {'not' if place.is_complete else 'not known'} in {name}"


def _is_here(facts: Facts, thing: str) -> bool:
    return thing == holding(facts) or thing in here(facts)


def _why_not(facts: Facts, request: Request) -> str:
    """Say which known fact stands against a logged failure, in general words where none does."""
    place, held = places(facts).get(request.place), holding(facts)
    kind = request.kind
    if kind == "other":
        return "no such action"
    if request.place and place is None:
        return f"{request.place} not in this room"
    if kind == "go":
        at = facts.get("at", MIDDLE)
        is_there = request.place == at or request.place in near(facts, at)
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


def _goal_lines(goal: Goal, after: Facts, reading: Reading) -> list[str]:
    """Compare need and have where the step could finish the task."""
    looking = reading.kind in ("take", "on", "off")
    if reading.kind == "move" if not goal.looking else looking:
        has = progress(goal, after, reading.thing, reading.place)
        return [f"needs {goal.phrase()}", f"has {has}"]
    return []


__all__ = ["HouseholdReader", "entities", "kind_of"]
