"""Advantages as pure functions of plain numbers: group-relative (GRPO) and GAE (PPO).

No tensors here, so every number can be checked by hand.  Suffixes: `_G` one per rollout of a
group, `_T` one per token of a sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from dreamgym.errors import ConfigError, DataError

Scale = Literal["std", "mean", "loo"]
"""How a reward becomes an advantage; see `group_advantages`."""

GroupKind = Literal["informative", "all_fail", "all_pass", "tied", "unscored"]
"""Why a group teaches or does not; everything but `informative` is dead."""

SCALES: tuple[Scale, ...] = ("std", "mean", "loo")


class GroupAdvantages(msgspec.Struct, frozen=True, kw_only=True):
    """One advantage and one weight per rollout of a group."""

    advantages: tuple[float, ...]
    """0.0 for unscorable rollouts and in dead groups."""
    weights: tuple[float, ...]
    """1.0 for scored rollouts, 0.0 for unscorable ones."""
    dead: bool
    kind: GroupKind
    num_scored: int


class Gae(msgspec.Struct, frozen=True, kw_only=True):
    """Advantages and value targets per token, 0.0 where the token was not sampled."""

    advantages: tuple[float, ...]
    returns: tuple[float, ...]


def is_unscorable(reward: float | None) -> bool:
    """Return whether a reward is missing (None or NaN), which is not the same as 0."""
    return reward is None or math.isnan(reward)


def group_advantages(
    rewards: Sequence[float | None],
    *,
    scale: Scale = "std",
    ddof: int = 1,
    eps: float = 1e-6,
    dead_tolerance: float = 1e-6,
) -> GroupAdvantages:
    """Compare the attempts at one task instance with each other.

    With mean m and standard deviation s of the n scored rewards of this group:
    `std`: (r - m) / (s + eps), s with `ddof` (1 divides by n - 1, 0 by n);
    `mean`: r - m;
    `loo`: r minus the mean of the other n - 1 rewards.

    Statistics are over the group, never over the batch, and over scored rollouts only.  A group
    whose rewards differ by at most `dead_tolerance`, or with fewer than two scored rollouts, is
    dead: its advantages are exactly 0.  Note that `std` makes a small difference as strong as a
    large one: [0, 0, 0, -0.1] gives (0.5, 0.5, 0.5, -1.5).

    >>> group_advantages([1, 0, 0, 0], scale="mean").advantages
    (0.75, -0.25, -0.25, -0.25)
    """
    if scale not in SCALES:
        raise ConfigError(f"scale must be one of {', '.join(SCALES)}; got {scale!r}")
    if ddof not in (0, 1):
        raise ConfigError(f"ddof must be 0 or 1; got {ddof}")
    scored = [float(r) for r in rewards if r is not None and not math.isnan(r)]
    if not all(math.isfinite(r) for r in scored):
        raise DataError(f"rewards must be finite, or None where unscorable; got {list(rewards)}")
    kind = _kind(scored, dead_tolerance)
    weights = tuple(0.0 if is_unscorable(r) else 1.0 for r in rewards)
    if kind != "informative":
        advantages = tuple(0.0 for _ in rewards)
    else:
        centre, divisor = _centre_and_divisor(scored, scale, ddof, eps)
        advantages = tuple(
            0.0 if r is None or math.isnan(r) else (r - centre) / divisor for r in rewards
        )
    return GroupAdvantages(
        advantages=advantages,
        weights=weights,
        dead=kind != "informative",
        kind=kind,
        num_scored=len(scored),
    )


def _kind(scored_G: Sequence[float], tolerance: float) -> GroupKind:
    if not scored_G:
        return "unscored"
    if len(scored_G) > 1 and max(scored_G) - min(scored_G) > tolerance:
        return "informative"
    if all(abs(r) <= tolerance for r in scored_G):
        return "all_fail"
    if all(abs(r - 1.0) <= tolerance for r in scored_G):
        return "all_pass"
    return "tied"


def _centre_and_divisor(
    scored_G: Sequence[float], scale: Scale, ddof: int, eps: float
) -> tuple[float, float]:
    n = len(scored_G)
    mean = math.fsum(scored_G) / n
    if scale == "mean":
        return mean, 1.0
    if scale == "loo":
        # r - (sum - r) / (n - 1)  ==  (r - mean) * n / (n - 1)
        return mean, (n - 1) / n
    variance = math.fsum((r - mean) ** 2 for r in scored_G) / (n - ddof)
    return mean, math.sqrt(variance) + eps


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    mask: Sequence[int],
    *,
    gamma: float,
    lam: float,
    terminated: bool,
    bootstrap: float = 0.0,
) -> Gae:
    """Generalised advantage estimation over action tokens only, across turns.

    The successor of an action token is the next *action* token, so observation tokens between
    two turns neither discount nor enter with their (meaningless) values.  `rewards[t]` is paid
    for the token at t: the outcome reward belongs on the last sampled token itself (the
    end-of-turn token), not one later.  After the last action token the value is 0 if the episode
    `terminated`, else `bootstrap`, the estimate for the state it was cut off in.

    Returns are advantage + value.  Source: Schulman et al., arXiv 1506.02438, Eq. 16.
    """
    if not len(rewards) == len(values) == len(mask):
        raise DataError(
            "rewards, values and mask must have one entry per token; got lengths "
            f"{len(rewards)}, {len(values)}, {len(mask)}"
        )
    lost = [t for t, (r, m) in enumerate(zip(rewards, mask, strict=True)) if not m and r]
    if lost:
        raise DataError(f"a reward stands on token {lost[0]}, which the policy did not sample")
    if not terminated and not math.isfinite(bootstrap):
        raise DataError(f"bootstrap must be finite for a cut-off episode; got {bootstrap}")
    advantages, returns = [0.0] * len(mask), [0.0] * len(mask)
    next_value = 0.0 if terminated else bootstrap
    running = 0.0
    for t in reversed(range(len(mask))):
        if not mask[t]:
            continue
        delta = rewards[t] + gamma * next_value - values[t]
        running = delta + gamma * lam * running
        advantages[t] = running
        returns[t] = running + values[t]
        next_value = values[t]
    return Gae(advantages=tuple(advantages), returns=tuple(returns))


def last_action_index(mask: Sequence[int]) -> int:
    """Return the index of the last sampled token, wherever padding is.

    >>> last_action_index([0, 0, 1, 1, 1])
    4
    """
    for t in reversed(range(len(mask))):
        if mask[t]:
            return t
    raise DataError("the sequence has no sampled token")
