"""What a task is worth for learning: the variance of its group's rewards.

The paper calls it reward entropy; its formula is the population variance (DreamGym, arXiv
2511.03773, Eq. 6-7).  It is 0 for a task always or never solved; for 0/1 rewards it is largest
at one half.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum, isfinite

import msgspec
from msgspec.structs import replace

from dreamgym.errors import UserError
from dreamgym.stats import Rate
from dreamgym.types import RolloutGroup

UNKNOWN_VALUE = 0.25
"""Assumed for a task not tried yet: the largest variance 0/1 rewards can have."""


def scored(rewards: Iterable[float | None]) -> list[float]:
    """Return the rewards that say something: no None (fault, unscorable), no NaN."""
    return [reward for reward in rewards if reward is not None and isfinite(reward)]


def task_value(rewards: Iterable[float | None]) -> float:
    """Return the population variance of the scored rewards; 0.0 for fewer than two.

    >>> task_value([1.0, 0.0, None, 1.0, 0.0])
    0.25
    """
    known = scored(rewards)
    if len(known) < 2:
        return 0.0
    mean = fsum(known) / len(known)
    return fsum((reward - mean) ** 2 for reward in known) / len(known)


def success_rate(rewards: Iterable[float | None], *, threshold: float = 1.0) -> Rate:
    """Return the share of scored rewards that reach `threshold`; unscored ones do not count."""
    known = scored(rewards)
    return Rate.of(sum(reward >= threshold for reward in known), len(known))


def informative_share(p: float, group_size: int) -> float:
    """Return the chance that a group's 0/1 rewards differ: 1 - p^G - (1 - p)^G.

    >>> round(informative_share(0.1819, 8), 3)
    0.799
    """
    if not 0.0 <= p <= 1.0 or group_size < 1:
        raise UserError(
            f"informative_share needs p in [0, 1] and a group size of at least 1; "
            f"got {p} and {group_size}"
        )
    return 1.0 - p**group_size - (1.0 - p) ** group_size


class TaskStats(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one task. `value` is a running mean over groups, newest counting half."""

    groups: int = 0
    """Groups with at least two scored attempts."""
    attempts: int = 0
    """Scored attempts."""
    successes: int = 0
    value: float = UNKNOWN_VALUE
    last_value: float | None = None
    zero_streak: int = 0
    """Groups in a row whose variance was below the threshold."""
    real_attempts: int = 0
    real_successes: int = 0

    def observed(self, group: RolloutGroup, *, min_value: float, keep: float = 0.5) -> TaskStats:
        """Return the statistics after one more group.

        A group with fewer than two scored attempts (faults) is no evidence about the task's
        value.  `keep` is the weight of the older groups in `value`.
        """
        known = [r for r in group.rollouts if not r.is_fault and scored([r.reward])]
        stats = replace(
            self,
            attempts=self.attempts + len(known),
            successes=self.successes + sum(r.success for r in known),
        )
        if len(known) < 2:
            return stats
        last = task_value(r.reward for r in known)
        mixed = last if self.groups == 0 else keep * self.value + (1.0 - keep) * last
        return replace(
            stats,
            groups=self.groups + 1,
            value=mixed,
            last_value=last,
            zero_streak=0 if last >= min_value else self.zero_streak + 1,
        )

    def reported(self, success: bool) -> TaskStats:
        """Return the statistics after one episode of this task in the real environment."""
        return replace(
            self,
            real_attempts=self.real_attempts + 1,
            real_successes=self.real_successes + int(success),
        )

    def disagrees(self, *, min_attempts: int) -> bool:
        """Return whether the task is solvable for real but never in the dream.

        That is an error of the experience model, not a hard task.
        """
        return self.real_successes > 0 and self.successes == 0 and self.attempts >= min_attempts
