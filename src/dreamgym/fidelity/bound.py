"""Errors of reward and transition, weighted by behaviour, and the bound they put on the gap.

The paper bounds the gap between dream and reality by eps_R and eps_P, suprema over all states and
actions that cannot be measured (and total variation over free text is always 1).  What can be
measured: both errors on the steps a policy really takes, over canonical states.  Where reality
and the dream are deterministic given what the dream knows, the total variation of one step is 1
when the canonical next state (or the end of the episode) is wrong and 0 otherwise.

For a return in [0, 1] paid once, a policy's dreamt and real episode can be coupled so that they
differ only after a wrong transition: |gap| <= H * (eps_R + eps_P).  The general form for rewards
in [0, 1] at every step is |gap| <= H * eps_R + H^2 * eps_P.  Both hold for the policies the steps
were taken by, on the tasks they were taken in, and say nothing about a policy that has moved on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from math import sqrt

import msgspec

from dreamgym.errors import UserError
from dreamgym.stats import Z95


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A share of steps; the interval knows that steps of one episode are alike."""

    value: float
    ci95: tuple[float, float]
    n: int
    clusters: int
    """Episodes the steps came from."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What the measured errors say about the gap of success; shares in [0, 1]."""

    horizon: int
    eps_reward: Estimate
    eps_transition: Estimate
    gap_outcome: float
    """min(1, H * (eps_R + eps_P)), for one reward at the end."""
    gap_general: float
    """min(H, H * eps_R + H^2 * eps_P), for a reward in [0, 1] at every step."""
    gap_outcome_high: float
    """`gap_outcome` at the upper ends of both intervals."""
    is_vacuous: bool
    """The bound at the measured values excludes nothing."""


def clustered_share(values: Sequence[tuple[Hashable, float]]) -> Estimate:
    """Return the mean of (cluster, value in [0, 1]) with a 95 % interval.

    Wilson's interval at the effective number of values n / design effect, where the design effect
    is the variance of the clustered mean over that of independent values.  With no error (or
    nothing else) in sight it cannot be estimated, and every cluster counts as one value.

    >>> clustered_share([("a", 0.0), ("a", 1.0), ("b", 0.0), ("b", 1.0)]).value
    0.5
    """
    n = len(values)
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for key, value in values:
        if not 0.0 <= value <= 1.0:
            raise UserError(f"an error of one step must lie in [0, 1]; got {value}")
        groups[key].append(value)
    if not n:
        return Estimate(value=0.0, ci95=(0.0, 1.0), n=0, clusters=0)
    mean = sum(value for _, value in values) / n
    size = max(_effective_size(mean, n, list(groups.values())), 1.0)
    return Estimate(value=mean, ci95=_wilson(mean, size), n=n, clusters=len(groups))


def _effective_size(mean: float, n: int, groups: Sequence[Sequence[float]]) -> float:
    k, spread = len(groups), mean * (1.0 - mean)
    if k < 2 or spread == 0.0:
        return float(k)
    residuals = sum((sum(group) - len(group) * mean) ** 2 for group in groups)
    variance = k / (k - 1) * residuals / n**2
    if variance == 0.0:  # clusters that all have the same mean
        return float(n)
    return min(max(spread / variance, 1.0), float(n))


def _wilson(p: float, n: float) -> tuple[float, float]:
    z2 = Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low = 0.0 if p == 0.0 else max(0.0, centre - half)
    high = 1.0 if p == 1.0 else min(1.0, centre + half)
    return (low, high)


def bound(eps_reward: Estimate, eps_transition: Estimate, *, horizon: int) -> Bound:
    """Return the bound on |success in the dream - success in reality| over `horizon` steps."""
    if horizon < 1:
        raise UserError(f"horizon must be at least 1; got {horizon}")
    outcome = horizon * (eps_reward.value + eps_transition.value)
    high = horizon * (eps_reward.ci95[1] + eps_transition.ci95[1])
    general = horizon * eps_reward.value + horizon**2 * eps_transition.value
    return Bound(
        horizon=horizon,
        eps_reward=eps_reward,
        eps_transition=eps_transition,
        gap_outcome=min(1.0, outcome),
        gap_general=min(float(horizon), general),
        gap_outcome_high=min(1.0, high),
        is_vacuous=outcome >= 1.0,
    )
