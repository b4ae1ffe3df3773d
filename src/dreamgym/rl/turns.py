"""Which turn led to which transition, what each turn was paid, and the return that follows.

A turn is one completion of the policy.  A turn without a readable action, or one that only
thinks, has no transition: it is paid nothing and leaves the state as it was.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

from dreamgym.errors import DataError
from dreamgym.rl.advantage import is_unscorable
from dreamgym.types import Rollout

RewardSource = Literal["outcome", "steps"]
"""`outcome`: the rollout's reward, paid on its last turn; `steps`: what each transition paid."""


def acting_turns(rollout: Rollout) -> tuple[int, ...]:
    """Return the index of the completion behind each transition, rising.

    Raises `DataError` for a rollout whose turns and transitions cannot be matched.
    """
    turns = rollout.turns or tuple(range(len(rollout.transitions)))
    rising = all(a < b for a, b in itertools.pairwise(turns))
    if len(turns) != len(rollout.transitions) or not rising or (turns and turns[0] < 0):
        raise DataError(
            f"rollout {rollout.id!r}: `turns` must name one completion per transition, rising; "
            f"got {len(turns)} for {len(rollout.transitions)} transitions"
        )
    if turns and turns[-1] >= len(rollout.completions):
        raise DataError(
            f"rollout {rollout.id!r}: transition {len(turns) - 1} came from completion "
            f"{turns[-1]}, but {len(rollout.completions)} completions were recorded"
        )
    return turns


def turn_rewards(rollout: Rollout, source: RewardSource = "outcome") -> list[float] | None:
    """Return what each turn was paid, None where that is not known.

    Not known are faults, unscorable rollouts and, with `steps`, rollouts with an unscorable step.
    """
    if rollout.is_fault or is_unscorable(rollout.reward):
        return None
    paid = [0.0] * len(rollout.completions)
    if source == "outcome":
        if paid:
            paid[-1] = rollout.reward or 0.0
        return paid
    for turn, transition in zip(acting_turns(rollout), rollout.transitions, strict=True):
        if transition.reward is None or math.isnan(transition.reward):
            return None
        paid[turn] = transition.reward
    return paid


def episode_return(rollout: Rollout, source: RewardSource = "outcome") -> float | None:
    """Return the undiscounted sum of what the turns were paid; None where it is not known."""
    if source == "outcome":
        return None if rollout.is_fault else rollout.reward
    paid = turn_rewards(rollout, source)
    return None if paid is None else math.fsum(paid)


def returns_to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return per turn the discounted sum of its own and all later rewards.

    >>> returns_to_go([0.0, 0.0, 1.0], 0.5)
    [0.25, 0.5, 1.0]
    """
    out = [0.0] * len(rewards)
    running = 0.0
    for turn in reversed(range(len(rewards))):
        running = rewards[turn] + gamma * running
        out[turn] = running
    return out
