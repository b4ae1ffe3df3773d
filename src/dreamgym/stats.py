"""Intervals for the numbers we report, in pure Python.

Proportions get Wilson intervals, means over seeds Student-t ones, differences of proportions
Newcombe's.  All intervals are 95 % unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import comb, exp, fsum, isfinite, lgamma, log, log1p, sqrt

import msgspec

from dreamgym.errors import UserError

Z95 = 1.959963984540054


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A proportion with its Wilson interval; `value` is 0.0 and `ci95` (0, 1) for n = 0."""

    successes: int
    n: int
    value: float
    ci95: tuple[float, float]

    @classmethod
    def of(cls, successes: int, n: int) -> Rate:
        """Return the rate of `successes` in `n`.

        >>> Rate.of(17, 20).value
        0.85
        """
        interval = wilson(successes, n)
        return cls(successes=successes, n=n, value=successes / n if n else 0.0, ci95=interval)


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over seeds; `half_width` is None for fewer than two values: nothing is known."""

    value: float
    n: int
    half_width: float | None

    @property
    def ci95(self) -> tuple[float, float] | None:
        """The interval, None where it is not defined."""
        if self.half_width is None:
            return None
        return (self.value - self.half_width, self.value + self.half_width)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference of two proportions, first minus second."""

    value: float
    ci95: tuple[float, float]


class OverTasks(msgspec.Struct, frozen=True, kw_only=True):
    """A mean of per-task estimates; tasks with fewer than k trials are left out and counted."""

    value: float | None
    """None when no task has enough trials."""
    tasks: int
    too_few_trials: int


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a proportion; (0, 1) for n = 0."""
    _check_counts(successes, n)
    if n == 0:
        return (0.0, 1.0)
    p, z2 = successes / n, Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return (low, high)


def difference(first: Rate, second: Rate) -> Difference:
    """Return first - second with Newcombe's hybrid score interval (1998, method 10).

    The samples must be independent; for n = 0 on a side the interval is as wide as it can be.
    """
    p, (low_p, high_p) = first.value, first.ci95
    q, (low_q, high_q) = second.value, second.ci95
    if first.n == 0 or second.n == 0:
        return Difference(value=p - q, ci95=(-1.0, 1.0))
    low = p - q - sqrt((p - low_p) ** 2 + (high_q - q) ** 2)
    high = p - q + sqrt((high_p - p) ** 2 + (q - low_q) ** 2)
    return Difference(value=p - q, ci95=(max(-1.0, low), min(1.0, high)))


def mean_over_seeds(values: Sequence[float]) -> Mean:
    """Return the mean of one number per seed with its Student-t interval (n - 1 degrees).

    >>> round(mean_over_seeds([0.50, 0.60, 0.55]).half_width, 4)
    0.1242
    """
    if not values:
        raise UserError("a mean over seeds needs at least one value; got none")
    if not all(isfinite(value) for value in values):
        raise UserError(f"a mean over seeds needs finite values; got {list(values)}")
    n = len(values)
    mean = fsum(values) / n
    if n == 1:
        return Mean(value=mean, n=1, half_width=None)
    deviation = sqrt(fsum((value - mean) ** 2 for value in values) / (n - 1))
    return Mean(value=mean, n=n, half_width=t_quantile(0.975, n - 1) * deviation / sqrt(n))


def pass_at_k(n: int, successes: int, k: int) -> float | None:
    """Return the chance that k of n trials, drawn without return, hold a success; None if n < k.

    Unbiased estimator of (Chen et al., arXiv 2107.03374): 1 - C(n - c, k) / C(n, k).
    """
    _check_counts(successes, n)
    _check_k(k)
    return None if n < k else 1.0 - comb(n - successes, k) / comb(n, k)


def pass_hat_k(n: int, successes: int, k: int) -> float | None:
    """Return the chance that k of n trials, drawn without return, all succeed; None if n < k.

    This is pass^k (reliability), not pass@k: C(c, k) / C(n, k).
    """
    _check_counts(successes, n)
    _check_k(k)
    return None if n < k else comb(successes, k) / comb(n, k)


def over_tasks(
    estimate: Callable[[int, int, int], float | None],
    trials: Iterable[tuple[int, int]],
    *,
    k: int,
) -> OverTasks:
    """Return the mean of `pass_at_k` or `pass_hat_k` over tasks given as (trials, successes)."""
    found = [estimate(n, successes, k) for n, successes in trials]
    known = [value for value in found if value is not None]
    return OverTasks(
        value=fsum(known) / len(known) if known else None,
        tasks=len(known),
        too_few_trials=len(found) - len(known),
    )


def t_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution, accurate to about 1e-9.

    >>> round(t_quantile(0.975, 2), 4)
    4.3027
    """
    if not 0.0 < probability < 1.0 or degrees < 1:
        raise UserError(
            "t_quantile needs a probability in (0, 1) and at least 1 degree of freedom; "
            f"got {probability} and {degrees}"
        )
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while _t_below(high, degrees) < probability:
        low, high = high, 2.0 * high
    for _ in range(200):  # halving is slow but cannot fail; the bracket is exact long before
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if _t_below(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _t_below(t: float, degrees: int) -> float:
    """Return P(T <= t) for t >= 0."""
    return 1.0 - 0.5 * _incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of I_x(a, b) (DLMF 8.17.22), by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def _check_counts(successes: int, n: int) -> None:
    if not 0 <= successes <= n:
        raise UserError(f"need 0 <= successes <= n; got {successes} successes of {n}")


def _check_k(k: int) -> None:
    if k < 1:
        raise UserError(f"k must be at least 1; got {k}")
