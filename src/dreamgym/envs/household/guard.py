"""A counter on the real engine and a way to forbid it.

Training in a dream must never touch the real environment.  Every episode start and every step
of `HouseholdGame` passes through here, so a test can prove that: it forbids the engine, trains,
and any use raises at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class _Meter:
    """Process-wide count of engine uses and the number of open prohibitions."""

    def __init__(self) -> None:
        self.calls = 0
        self.forbidden = 0


_METER = _Meter()


def note_engine_call(what: str) -> None:
    """Count one engine use; raise `RuntimeError` while the engine is forbidden."""
    if _METER.forbidden:
        raise RuntimeError(
            f"the real household engine was used ({what}) where it is forbidden; "
            "dream training must only see the experience model"
        )
    _METER.calls += 1


def engine_calls() -> int:
    """Return how many engine starts and steps this process has made so far."""
    return _METER.calls


@contextmanager
def engine_forbidden() -> Iterator[None]:
    """Make every engine start or step inside the block raise `RuntimeError`."""
    _METER.forbidden += 1
    try:
        yield
    finally:
        _METER.forbidden -= 1
