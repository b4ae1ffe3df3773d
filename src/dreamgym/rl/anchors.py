"""Anchor states: which turns of a group's attempts faced the same situation.

All attempts of a group play in one world, so they meet the same states again and again.  A key
stands for a state; turns with equal keys can be compared with each other (GiGPO).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from dreamgym.envs.base import StateReader
from dreamgym.rl.turns import acting_turns
from dreamgym.types import Observation, Rollout, RolloutGroup, Scenario, Task

Anchor = Literal["facts", "observation"]
"""What a state is recognised by; see `group_states`."""

SEPARATOR = "\x1f"


def group_states(
    group: RolloutGroup,
    reader: StateReader | None,
    *,
    anchor: Anchor = "facts",
    previous: int = 0,
) -> list[list[str | None]]:
    """Return a key per turn of every rollout; equal keys mean equal states.

    `facts`: the facts that the suite's reader has read so far, those of the task's scenario
    included: where the agent stands, what it holds, what is where.  A sentence such as "You open
    the drawer 1." looks the same with full and with empty hands; the facts do not.
    `observation`: the canonical text the turn started from with the admissible actions where they
    are listed; also what `facts` falls back to for suites without a reader.

    `previous` adds as many earlier states of the same rollout, for texts that do not tell the
    whole state.  A turn without a transition faced the state that the next one faced.  None
    stands for a state that was not recorded, which equals no other.
    """
    starts = (r.transitions[0].observation for r in group.rollouts if r.transitions)
    first = next(starts, None)
    if first is None and group.task.scenario is not None:
        first = Observation(text=group.task.scenario.first_observation)
    out: list[list[str | None]] = []
    for rollout in group.rollouts:
        if rollout.is_fault or first is None:
            out.append([None] * len(rollout.completions))
            continue
        if anchor == "facts" and reader is not None:
            states = _fact_states(rollout, reader, first)
        else:
            states = _text_states(rollout, reader, first)
        out.append(_per_turn(rollout, _with_previous(states, previous)))
    return out


def _fact_states(rollout: Rollout, reader: StateReader, first: Observation) -> list[str]:
    """Return the states before each transition and the one after the last."""
    facts = reader.initial(_known_start(rollout.task, first))
    states = [facts]
    for transition in rollout.transitions:
        facts = reader.update(facts, transition.action, transition.next_observation.text)
        states.append(facts)
    return [SEPARATOR.join(f"{name}: {value}" for name, value in sorted(s.items())) for s in states]


def _known_start(task: Task, first: Observation) -> Task:
    if task.scenario is not None:
        return task
    return replace(task, scenario=Scenario(first_observation=first.text))


def _text_states(rollout: Rollout, reader: StateReader | None, first: Observation) -> list[str]:
    seen = [first, *(t.next_observation for t in rollout.transitions)]
    return [
        SEPARATOR.join([_canonical(o.text, reader), *sorted(set(o.actions or ()))]) for o in seen
    ]


def _canonical(text: str, reader: StateReader | None) -> str:
    return " ".join(text.split()) if reader is None else reader.canonical(text)


def _with_previous(states: Sequence[str], previous: int) -> list[str]:
    return [(SEPARATOR * 2).join(states[max(0, i - previous) : i + 1]) for i in range(len(states))]


def _per_turn(rollout: Rollout, states: Sequence[str]) -> list[str | None]:
    """Return the state each turn faced: the one after all transitions before it."""
    acted = acting_turns(rollout)
    out: list[str | None] = []
    done = 0
    for turn in range(len(rollout.completions)):
        out.append(states[done])
        done += done < len(acted) and acted[done] == turn
    return out
