"""Is a confident answer a right one? Reliability bins, expected calibration error, Brier score.

Pure functions of (confidence, right) pairs; confidences lie in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from dreamgym.errors import UserError
from dreamgym.stats import Rate

NUM_BINS = 10


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of similar confidence."""

    low: float
    high: float
    """Lowest and highest confidence in the bin."""
    confidence: float
    """Mean confidence."""
    right: Rate
    """Share of right answers with its interval."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How confidence and accuracy go together; errors are None where nothing was confident."""

    n: int
    bins: tuple[Bin, ...]
    """Bins of equally many answers: most confidences lie near 1, where equal widths see little."""
    ece: float | None
    """Expected calibration error over ten bins of equal width (Naeini et al., 2015)."""
    adaptive_ece: float | None
    """The same over the bins of equally many answers."""
    brier: float | None
    """Mean squared difference of confidence and outcome."""
    auroc: float | None
    """Chance that a right answer is more confident than a wrong one; None if all are alike."""
    selective: tuple[tuple[float, float], ...]
    """(share of answers kept, their accuracy) when the least confident ones are dropped."""


def calibrate(pairs: Sequence[tuple[float, bool]], *, num_bins: int = NUM_BINS) -> Calibration:
    """Return the calibration of (confidence, right) pairs.

    >>> calibrate([(0.9, True), (0.9, False)]).ece
    0.4
    """
    for confidence, _ in pairs:
        if not 0.0 <= confidence <= 1.0:
            raise UserError(f"a confidence must lie in [0, 1]; got {confidence}")
    if num_bins < 1:
        raise UserError(f"num_bins must be at least 1; got {num_bins}")
    n = len(pairs)
    if not n:
        return Calibration(
            n=0, bins=(), ece=None, adaptive_ece=None, brier=None, auroc=None, selective=()
        )
    equal_mass = _equal_mass(sorted(pairs), num_bins)
    brier = sum((confidence - right) ** 2 for confidence, right in pairs) / n
    return Calibration(
        n=n,
        bins=tuple(map(_bin, equal_mass)),
        ece=round(_error(_equal_width(pairs, num_bins), n), 12),
        adaptive_ece=round(_error(equal_mass, n), 12),
        brier=brier,
        auroc=auroc(pairs),
        selective=selective_accuracy(pairs),
    )


def auroc(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """Return the chance that a right answer is more confident than a wrong one, ties a half.

    >>> auroc([(0.9, True), (0.8, True), (0.8, False)])
    0.75
    """
    ordered = sorted(pairs)
    num_right = sum(right for _, right in ordered)
    num_wrong = len(ordered) - num_right
    if not num_right or not num_wrong:
        return None
    rank_sum, start = 0.0, 0
    while start < len(ordered):
        end = start
        while end < len(ordered) and ordered[end][0] == ordered[start][0]:
            end += 1
        mean_rank = (start + end + 1) / 2  # ranks count from 1
        rank_sum += mean_rank * sum(right for _, right in ordered[start:end])
        start = end
    return (rank_sum - num_right * (num_right + 1) / 2) / (num_right * num_wrong)


def selective_accuracy(
    pairs: Sequence[tuple[float, bool]], shares: Sequence[float] = (1.0, 0.95, 0.9, 0.8, 0.5)
) -> tuple[tuple[float, float], ...]:
    """Return (share kept, accuracy) when only the most confident answers are kept."""
    ordered = sorted(pairs, key=lambda pair: -pair[0])
    found = []
    for share in shares:
        kept = ordered[: max(round(share * len(ordered)), 1)]
        found.append((share, sum(right for _, right in kept) / len(kept)))
    return tuple(found)


Pairs = Sequence[tuple[float, bool]]


def _equal_mass(ordered: Pairs, num_bins: int) -> list[Pairs]:
    edges = [round(i * len(ordered) / num_bins) for i in range(num_bins + 1)]
    return [ordered[a:b] for a, b in pairwise(edges) if b > a]


def _equal_width(pairs: Pairs, num_bins: int) -> list[Pairs]:
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(num_bins)]
    for confidence, right in pairs:
        bins[min(int(confidence * num_bins), num_bins - 1)].append((confidence, right))
    return [found for found in bins if found]


def _error(bins: Sequence[Pairs], n: int) -> float:
    return (
        sum(
            abs(sum(confidence for confidence, _ in found) - sum(right for _, right in found))
            for found in bins
        )
        / n
    )


def _bin(pairs: Pairs) -> Bin:
    confidences = [confidence for confidence, _ in pairs]
    return Bin(
        low=min(confidences),
        high=max(confidences),
        confidence=sum(confidences) / len(pairs),
        right=Rate.of(sum(right for _, right in pairs), len(pairs)),
    )
