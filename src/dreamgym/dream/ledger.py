"""The ledger of one dreamt episode: what is known, from the scenario and from what was said.

Any suite's `StateReader` does the reading.  The ledger decides nothing about the world; it only
remembers, and says when an answer contradicts what it remembers.
"""

from __future__ import annotations

from dreamgym.envs.base import Facts, StateReader
from dreamgym.types import Record, Task


class Entry(Record, frozen=True, kw_only=True):
    """One accepted answer, with the contradictions it was accepted in spite of."""

    action: str
    text: str
    conflicts: tuple[str, ...] = ()


class Ledger:
    """Known facts of one episode, updated by each accepted answer."""

    def __init__(self, reader: StateReader, task: Task) -> None:
        self._reader = reader
        self._facts = reader.initial(task)
        self._history: list[Entry] = []

    @property
    def facts(self) -> Facts:
        """A copy of what is known now."""
        return dict(self._facts)

    @property
    def history(self) -> tuple[Entry, ...]:
        """The accepted answers so far."""
        return tuple(self._history)

    def lines(self, action: str) -> list[str]:
        """Return the fact lines an answer to this action can be looked up in."""
        return self._reader.relevant(self._facts, action)

    def check(self, action: str, next_state: str) -> list[str]:
        """Return one sentence per known fact that this answer would contradict."""
        return self._reader.conflicts(self._facts, action, next_state)

    def apply(self, action: str, next_state: str) -> None:
        """Accept an answer: remember it and what it says."""
        conflicts = tuple(self.check(action, next_state))
        self._history.append(Entry(action=action, text=next_state, conflicts=conflicts))
        self._facts = self._reader.update(self._facts, action, next_state)
