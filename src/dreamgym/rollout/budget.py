"""The budget of real transitions: sim-to-real is only worth its name if every step is counted."""

from __future__ import annotations

from dreamgym.errors import ConfigError


class TransitionBudget:
    """Counts executed transitions against a limit, over all concurrent episodes.

    A turn is reserved before the policy is asked and settled after the step, so that concurrent
    episodes never exceed the limit together.
    """

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise ConfigError(f"budget of transitions must not be negative; got {limit}")
        self.limit = limit
        self.used = 0
        self._reserved = 0

    @property
    def remaining(self) -> int:
        """Transitions not executed yet (reserved ones included)."""
        return max(self.limit - self.used, 0)

    def reserve(self) -> bool:
        """Reserve one transition; False when all are used or reserved."""
        if self.used + self._reserved >= self.limit:
            return False
        self._reserved += 1
        return True

    def settle(self, spent: bool) -> None:
        """Give a reservation back, counting it as used if its step was executed."""
        self._reserved -= 1
        self.used += int(spent)
