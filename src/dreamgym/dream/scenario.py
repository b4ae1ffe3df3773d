"""Scenarios: what is true of a task instance at its start, written once and shared by a group.

For logged tasks the hidden facts come from hindsight (what later steps revealed); what no log
revealed stays `unknown` until a filler, normally the experience model, writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dreamgym.envs.base import StateReader
from dreamgym.errors import DataError
from dreamgym.types import Scenario, Task, Transition

UNKNOWN = "unknown"

Filler = Callable[[str, str], str]
"""Takes an entity and what is known of it, returns the complete fact (or the same text)."""


def make_scenario(
    task: Task, episodes: Sequence[Sequence[Transition]], reader: StateReader
) -> Scenario:
    """Return a task's scenario in hindsight from all its logged episodes.

    Raises `DataError` when there is no first step, when an episode belongs to another task, or
    when episodes start differently: one task id must mean one instance.
    """
    transitions = [transition for episode in episodes for transition in episode]
    for transition in transitions:
        if transition.task_id != task.id:
            raise DataError(
                f"a scenario of task {task.id!r} needs episodes of that task; "
                f"got one of {transition.task_id!r}"
            )
    starts = {t.observation.text: t.episode_id for t in transitions if t.step == 0}
    if not starts:
        raise DataError(
            f"no logged episode of task {task.id!r} has a first step, so its first observation "
            "is not known; log at least one whole episode"
        )
    if len(starts) > 1:
        first, second, *_ = starts.values()
        raise DataError(
            f"task {task.id!r} starts differently in episodes {first!r} and {second!r}; "
            "give different task instances different ids"
        )
    return Scenario(
        first_observation=next(iter(starts)),
        facts=reader.hindsight(transitions),
        success_criterion=task.instruction,
    )


def is_known(value: str) -> bool:
    """Return whether a fact's text leaves nothing open.

    >>> is_known("closed: pen 1"), is_known("closed: unknown"), is_known("unknown: pen 1")
    (True, False, False)
    """
    words = value.replace(":", ",").split(",")
    return bool(value.strip()) and all(word.strip() != UNKNOWN for word in words)


def known_share(scenario: Scenario) -> float:
    """Return the share of facts that leave nothing open; 1.0 when there are none."""
    values = list(scenario.facts.values())
    return sum(map(is_known, values)) / len(values) if values else 1.0


def complete(scenario: Scenario, filler: Filler) -> Scenario:
    """Return the scenario with open facts written by `filler`, recorded in `written`.

    Known facts are never changed.  Where the filler's text leaves something open too, it counts
    only if it says more than before.
    """
    facts, written = dict(scenario.facts), list(scenario.written)
    for entity, value in scenario.facts.items():
        if is_known(value):
            continue
        text = " ".join(filler(entity, value).split())
        if text and text not in (value, UNKNOWN):
            facts[entity] = text
            written.append(entity)
    return msgspec.structs.replace(scenario, facts=facts, written=tuple(dict.fromkeys(written)))


def scenario_text(scenario: Scenario) -> str:
    """Return the hidden facts as compact lines for the experience model's prompt.

    Entities of which nothing is known share the last line.
    """
    lines = [f"{name}: {text}" for name, text in scenario.facts.items() if text != UNKNOWN]
    open_names = [name for name, text in scenario.facts.items() if text == UNKNOWN]
    if open_names:
        lines.append(f"{UNKNOWN}: {', '.join(open_names)}")
    return "\n".join(lines)


def pin(task: Task, scenario: Scenario) -> Task:
    """Return the task with its scenario; raises `DataError` if it has a different one already."""
    if task.scenario is not None and task.scenario != scenario:
        raise DataError(
            f"task {task.id!r} already has another scenario; a scenario is fixed once per task "
            "instance, so give the new instance its own id"
        )
    return msgspec.structs.replace(task, scenario=scenario)


class Pins:
    """Makes each group's scenario once: the same group always gets the same object."""

    def __init__(self) -> None:
        self._made: dict[str, Scenario] = {}

    def get(self, group: str, make: Callable[[], Scenario]) -> Scenario:
        """Return the group's scenario, made by `make` at the first call only."""
        if group not in self._made:
            self._made[group] = make()
        return self._made[group]
