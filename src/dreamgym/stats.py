"""Intervals for the numbers we report."""

from __future__ import annotations

from math import sqrt

import msgspec

Z95 = 1.959963984540054


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a proportion; (0, 1) for n = 0."""
    if n == 0:
        return (0.0, 1.0)
    p, z2 = successes / n, Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return (max(0.0, centre - half), min(1.0, centre + half))


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A proportion with its interval."""

    successes: int
    n: int
    value: float
    ci95: tuple[float, float]

    @classmethod
    def of(cls, successes: int, n: int) -> Rate:
        """Return the rate of `successes` in `n`."""
        return cls(
            successes=successes, n=n, value=successes / n if n else 0.0, ci95=wilson(successes, n)
        )
