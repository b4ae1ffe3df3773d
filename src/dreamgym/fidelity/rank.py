"""Does the dream order policies as reality does? Kendall's tau and Spearman's rho."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec

from dreamgym.errors import MissingExtra, UserError

MIN_POLICIES = 4
"""Below this an agreement of ranks says next to nothing: three policies agree by chance one time
in six."""


Correlation = tuple[float | None, float | None]
"""(coefficient, p value)"""


class RankAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """How alike two orders of the same policies are; values are None where they do not exist."""

    num_policies: int
    is_enough: bool
    """At least `MIN_POLICIES` policies."""
    kendall: float | None
    """Kendall's tau-b (ties are neither for nor against)."""
    kendall_p: float | None
    spearman: float | None
    spearman_p: float | None
    pairs_agreeing: int
    pairs_reversed: int
    pairs_tied: int
    """Pairs of policies that dream and reality order alike, the other way round, or of which one
    of them sees no difference."""


def rank_agreement(dream: Mapping[str, float], real: Mapping[str, float]) -> RankAgreement:
    """Return how alike dream and reality order the policies, by their success.

    Raises `UserError` when the two hold different policies, and `MissingExtra` without scipy.
    """
    if set(dream) != set(real):
        odd = sorted(set(dream) ^ set(real))
        raise UserError(
            f"dream and reality must hold the same policies; only one of them has {', '.join(odd)}"
        )
    names = sorted(dream)
    first, second = [dream[name] for name in names], [real[name] for name in names]
    agreeing, reversed_, tied = count_pairs(first, second)
    tau: Correlation = (None, None)
    rho: Correlation = (None, None)
    if len(set(first)) > 1 and len(set(second)) > 1:  # a constant has no rank correlation
        tau, rho = _correlations(first, second)
    return RankAgreement(
        num_policies=len(names),
        is_enough=len(names) >= MIN_POLICIES,
        kendall=tau[0],
        kendall_p=tau[1],
        spearman=rho[0],
        spearman_p=rho[1],
        pairs_agreeing=agreeing,
        pairs_reversed=reversed_,
        pairs_tied=tied,
    )


def count_pairs(first: Sequence[float], second: Sequence[float]) -> tuple[int, int, int]:
    """Return the pairs (ordered alike, reversed, tied in one of the two).

    >>> count_pairs([1, 2, 3], [1, 3, 2])
    (2, 1, 0)
    """
    agreeing = reversed_ = tied = 0
    for i, j in combinations(range(len(first)), 2):
        product = (first[i] - first[j]) * (second[i] - second[j])
        agreeing += product > 0
        reversed_ += product < 0
        tied += product == 0
    return agreeing, reversed_, tied


def _correlations(
    first: Sequence[float], second: Sequence[float]
) -> tuple[Correlation, Correlation]:
    try:
        from scipy import stats
    except ImportError as error:
        raise MissingExtra("scipy", "report") from error
    tau, rho = stats.kendalltau(first, second), stats.spearmanr(first, second)
    return (
        (_number(tau.statistic), _number(tau.pvalue)),
        (_number(rho.statistic), _number(rho.pvalue)),
    )


def _number(value: float) -> float | None:
    """Return a number of numpy as our own, None for NaN (scipy's word for "not defined")."""
    return None if value != value else float(value)
