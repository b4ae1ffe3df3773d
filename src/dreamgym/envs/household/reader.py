"""`HouseholdReader`: reads the household's texts; knows none of its rules.

The parts: `readtext` (wordings), `readfacts` (known facts), `readback` (hindsight), `readcheck`
(contradictions), `readfree` (free negatives), `readshow` (prompt lines, rationales), `goals` (task
sentences).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from dreamgym.envs.base import Facts
from dreamgym.envs.household.goals import is_achieved, parse_goal
from dreamgym.envs.household.readback import initial_facts
from dreamgym.envs.household.readcheck import Tools, find_conflicts, logged_tools
from dreamgym.envs.household.readfacts import start_facts, updated
from dreamgym.envs.household.readfree import free_negatives
from dreamgym.envs.household.readshow import explanation, goal_lines, relevant_lines
from dreamgym.envs.household.readtask import (
    dealt_anew,
    task_template,
    vocabulary_key,
    why_infeasible,
)
from dreamgym.envs.household.readtext import (
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
        >>> HouseholdReader().relevant(facts, "take mug 1 from desk 1")[2:]
        ['mug 1: here, in desk 1', 'desk 1: here, surface: a mug 1']
        """
        return relevant_lines(facts, action)

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

    def rearranged(self, facts: Facts, rng: Random) -> Facts:
        """Return initial facts with the objects of fully known receptacles dealt out anew."""
        return dealt_anew(facts, rng)

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
        'holding mug 1. shelf 1 here, surface. mug 1 in hand. ok. holding nothing. \
mug 1 in shelf 1. needs mug in shelf. has mug in shelf. task done.'
        """
        reading, after = read_text(text), updated(facts, action, text)
        parts = explanation(facts, action, reading, after)
        goal = parse_goal(task.instruction)
        if goal is not None and reading.kind != "none":
            parts += goal_lines(goal, after, reading)
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


__all__ = ["HouseholdReader", "entities", "kind_of"]
