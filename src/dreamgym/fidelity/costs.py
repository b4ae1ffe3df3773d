"""Is dreaming worth it here? Steps per second and money, against the real environment.

A dream costs its logs and its fit before the first step.  After that each dreamt step costs what
the experience model costs; whether that is less than a real step depends on the environment: a
game in memory is faster than any language model, a browser is not.
"""

from __future__ import annotations

import msgspec

from dreamgym.errors import UserError


class StepCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one environment step costs on one side."""

    steps: int
    """Steps measured."""
    seconds: float
    """Wall-clock seconds they took, at the concurrency measured."""
    concurrency: int
    tokens_per_step: float | None = None
    money_per_step: float | None = None
    """None: not known (an endpoint without a price), never a silent 0."""

    @property
    def steps_per_second(self) -> float | None:
        """Environment steps per second, None when nothing was measured."""
        return self.steps / self.seconds if self.steps and self.seconds > 0 else None


class BreakEven(msgspec.Struct, frozen=True, kw_only=True):
    """From how many training steps on the dream is the faster (or cheaper) one."""

    dream_steps_per_second: float | None
    real_steps_per_second: float | None
    speed_ratio: float | None
    """Dream over real steps per second."""
    fixed_seconds: float
    """Logging and fitting, before the first dreamt step."""
    fixed_transitions: int
    """Real transitions the dream was made from."""
    steps_in_time: float | None
    """Steps after which dreaming has taken less time, fixed part included; None: never."""
    real_seconds_needed: float | None
    """Seconds a real step must take for the dream to be as fast, the fixed part left aside."""
    steps_in_money: float | None
    """Steps after which dreaming has cost less; None: never, or a price is not known."""
    saves_transitions_after: int
    """Training steps after which dreaming has used fewer real transitions than real training."""


def break_even(
    dream: StepCost,
    real: StepCost,
    *,
    fixed_seconds: float,
    fixed_transitions: int,
    fixed_money: float | None = 0.0,
) -> BreakEven:
    """Return where the two sides meet.

    >>> dream = StepCost(steps=100, seconds=1.0, concurrency=64)
    >>> real = StepCost(steps=10, seconds=10.0, concurrency=1)
    >>> round(break_even(dream, real, fixed_seconds=99.0, fixed_transitions=50).steps_in_time)
    100
    """
    if fixed_seconds < 0 or fixed_transitions < 0:
        raise UserError("the fixed part of the costs must not be negative")
    fast, slow = dream.steps_per_second, real.steps_per_second
    in_time = None
    if fast and slow:
        in_time = _meet(fixed_seconds, 1 / slow - 1 / fast)
    in_money = None
    if None not in (dream.money_per_step, real.money_per_step, fixed_money):
        saved = (real.money_per_step or 0.0) - (dream.money_per_step or 0.0)
        in_money = _meet(fixed_money or 0.0, saved)
    return BreakEven(
        dream_steps_per_second=fast,
        real_steps_per_second=slow,
        speed_ratio=fast / slow if fast and slow else None,
        fixed_seconds=fixed_seconds,
        fixed_transitions=fixed_transitions,
        steps_in_time=in_time,
        real_seconds_needed=1 / fast if fast else None,
        steps_in_money=in_money,
        saves_transitions_after=fixed_transitions,
    )


def _meet(fixed: float, saved_per_step: float) -> float | None:
    """Return the steps that save what was spent at first; None when a step saves nothing."""
    return fixed / saved_per_step if saved_per_step > 0 else None
