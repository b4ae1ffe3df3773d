"""A wall-clock limit on the environment's side of an episode only.

The policy's time does not count: a slow model must not look like a hanging environment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from dreamgym.errors import EnvError

T = TypeVar("T")


class EnvClock:
    """Spends at most `seconds` on all environment calls of one episode; None is no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.used = 0.0

    def spend(self, seconds: float) -> None:
        """Count time spent outside `wait`, e.g. in a synchronous constructor."""
        self.used += seconds

    async def wait(self, call: Awaitable[T], what: str) -> T:
        """Await an environment call; raises `EnvError` when the time is used up."""
        started = time.monotonic()
        left = None if self._seconds is None else max(self._seconds - self.used, 0.0)
        limit = asyncio.timeout(left)
        try:
            async with limit:
                return await call
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise EnvError(
                f"infrastructure timeout: the environment had {self._seconds:g} s for this "
                f"episode and used them up in {what}"
            ) from error
        finally:
            self.used += time.monotonic() - started
