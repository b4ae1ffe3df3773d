"""Which transitions a buffer of limited capacity holds, and which leave first.

Dreamt transitions leave in the order they came.  A real one leaves only when no dreamt one is
left, the oldest first, and is then remembered, so that seeding the same logs again is no change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal

from dreamgym.replay.store import Row
from dreamgym.types import Origin

Verdict = Literal["added", "duplicate", "full"]


class Members:
    """The rows held, at most `capacity` transitions."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: dict[Origin, OrderedDict[int, Row]] = {
            Origin.REAL: OrderedDict(),
            Origin.DREAM: OrderedDict(),
        }
        self._keys: set[str] = set()
        self.retired: dict[str, int] = {}
        """Content key -> number of real rows that had to leave."""

    @classmethod
    def of(cls, capacity: int, rows: Iterable[Row], retired: Iterable[Row]) -> Members:
        """Return members that hold these rows and remember the retired ones."""
        members = cls(capacity)
        for row in rows:
            members.add(row)
        members.retired |= {row.key: row.number for row in retired}
        return members

    def __len__(self) -> int:
        return len(self._keys)

    def count(self, origin: Origin) -> int:
        """Return how many rows of an origin are held."""
        return len(self._held[origin])

    def rows(self) -> list[Row]:
        """Return the rows in the order they came."""
        rows = [row for held in self._held.values() for row in held.values()]
        return sorted(rows, key=lambda row: row.number)

    def verdict(self, key: str, origin: Origin) -> Verdict:
        """Return what `add` would do with a row."""
        if key in self._keys or key in self.retired:
            return "duplicate"
        if origin is Origin.DREAM and self.count(Origin.REAL) >= self.capacity:
            return "full"
        return "added"

    def add(self, row: Row) -> tuple[Verdict, Row | None]:
        """Add a row and return the verdict with the row that had to leave for it, if any."""
        origin = row.transition.origin
        verdict = self.verdict(row.key, origin)
        if verdict != "added":
            return verdict, None
        evicted = self._make_room() if len(self) >= self.capacity else None
        self._held[origin][row.number] = row
        self._keys.add(row.key)
        return verdict, evicted

    def _make_room(self) -> Row:
        dreams = self._held[Origin.DREAM]
        held = dreams or self._held[Origin.REAL]
        _, row = held.popitem(last=False)
        self._keys.discard(row.key)
        if held is not dreams:
            self.retired[row.key] = row.number
        return row
