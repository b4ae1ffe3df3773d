"""Top-k search over the rows of a buffer: exact cosine, filters, no surprises in ties.

The vector of a row is [sqrt(w) phi(action), sqrt(1 - w) phi(state)], so its cosine with a query
is a weighted mean of the two similarities.  Both parts are compared over *distinct* texts, which
repeat a lot in logs, and the sums are gathered per row.

Axes: N rows, T distinct texts, D encoder dimension, Q queries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from dreamgym.replay.encode import Vectors
from dreamgym.replay.store import Row
from dreamgym.types import Origin

_KEPT = 256
"""Similarity arrays remembered per table: the members of a group ask the same things."""
_DECIMALS = 5
"""Similarities are compared at this precision, below which matrix products may differ."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows may answer a query."""

    suite: str
    origin: Origin | None = None
    task: str | None = None
    """Rows of this task are left out."""
    episode: str | None = None
    """Rows of this episode are left out."""
    instructions: frozenset[str] = frozenset()
    """Rows with one of these instructions are left out."""


class Hit(msgspec.Struct, frozen=True):
    """A found row."""

    row: Row
    similarity: float


class Exclusions(msgspec.Struct, kw_only=True):
    """How many rows filters have kept out so far."""

    task: int = 0
    episode: int = 0
    near_duplicate: int = 0


class _Table:
    """Distinct texts with their vectors, and their similarity to a query text."""

    def __init__(self, dim: int) -> None:
        self.codes: dict[str, int] = {}
        self._vectors = np.zeros((64, dim), np.float32)
        self._kept: OrderedDict[str, Vectors] = OrderedDict()

    def code(self, text: str, vector: Vectors) -> int:
        """Return the text's number; a new text gets the next one."""
        code = self.codes.get(text)
        if code is None:
            code = len(self.codes)
            if code == len(self._vectors):
                self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
            self._vectors[code] = vector
            self.codes[text] = code
            self._kept.clear()
        return code

    def vector(self, text: str) -> Vectors | None:
        """Return the vector of a text of the table."""
        code = self.codes.get(text)
        return None if code is None else self._vectors[code]

    def is_empty(self, code: int) -> bool:
        """Return whether the vector of a text is zero."""
        return not self._vectors[code].any()

    def similarities(self, texts: Sequence[str], vectors: Vectors) -> list[Vectors]:
        """Return one array of shape (T,) per text, with one product for all new texts."""
        found = {text: self._kept[text] for text in texts if text in self._kept}
        fresh = {text: row for row, text in enumerate(texts) if text not in found}
        if fresh:
            product = vectors[list(fresh.values())] @ self._vectors[: len(self.codes)].T
            found |= dict(zip(fresh, product, strict=True))
        for text in dict.fromkeys(texts):
            self._kept[text] = found[text].copy() if text in fresh else found[text]
            self._kept.move_to_end(text)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return [found[text] for text in texts]


class _Names:
    """Strings as small numbers, so that a filter is one array comparison."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        """Return the number of a name, a new one if needed."""
        return self._codes.setdefault(name, len(self._codes))

    def find(self, name: str | None) -> int:
        """Return the number of a name, -1 if no row has it."""
        return -1 if name is None else self._codes.get(name, -1)

    def all(self) -> list[str]:
        """Return the names in the order of their numbers."""
        return list(self._codes)


_COLUMNS = ("action", "state", "suite", "task", "episode", "instruction", "shown")


class SearchIndex:
    """Rows with their vectors; `action_weight` is w above."""

    def __init__(self, dim: int, *, action_weight: float) -> None:
        self.dim = dim
        self.exclusions = Exclusions()
        self._weight = action_weight
        self._actions = _Table(dim)
        self._states = _Table(dim)
        self._names = {column: _Names() for column in _COLUMNS[2:]}
        self._rows: list[Row | None] = []
        self._slots: dict[int, int] = {}
        self._columns = {column: np.zeros(64, np.int64) for column in _COLUMNS}
        self._scale = np.zeros(64, np.float32)
        """1 / length of the row's vector; 0 for rows without text, which are never found."""
        self._is_real = np.zeros(64, np.bool_)
        self._alive = np.zeros(64, np.bool_)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def num_slots(self) -> int:
        """Rows held plus rows removed since the index was built."""
        return len(self._rows)

    def instructions(self) -> list[str]:
        """Return the distinct instructions of all rows so far."""
        return self._names["instruction"].all()

    def vector(self, text: str) -> Vectors | None:
        """Return the known vector of an embedding text."""
        vector = self._states.vector(text)
        return self._actions.vector(text) if vector is None else vector

    def add(self, row: Row, *, state: str, action: str, vectors: dict[str, Vectors]) -> None:
        """Add a row; `vectors` has the vectors of its embedding texts."""
        slot = len(self._rows)
        if slot == len(self._scale):
            self._grow()
        t = row.transition
        action_code = self._actions.code(action, vectors[action])
        state_code = self._states.code(state, vectors[state])
        shown = f"{state_code}\x1f{action_code}\x1f{t.next_observation.text}"
        values = {
            "action": action_code,
            "state": state_code,
            "suite": self._names["suite"].code(t.suite),
            "task": self._names["task"].code(t.task_id),
            "episode": self._names["episode"].code(t.episode_id),
            "instruction": self._names["instruction"].code(t.instruction),
            "shown": self._names["shown"].code(shown),
        }
        for column, value in values.items():
            self._columns[column][slot] = value
        length = self._length(
            not self._actions.is_empty(action_code), not self._states.is_empty(state_code)
        )
        self._scale[slot] = 1.0 / length if length else 0.0
        self._is_real[slot] = t.origin is Origin.REAL
        self._alive[slot] = length > 0
        self._rows.append(row)
        self._slots[row.number] = slot

    def remove(self, number: int) -> None:
        """Remove a row by its number."""
        slot = self._slots.pop(number)
        self._alive[slot] = False
        self._rows[slot] = None

    def search(
        self, texts: Sequence[tuple[str, str]], vectors: dict[str, Vectors],
        filters: Sequence[Filter], *, k: int,
    ) -> list[list[Hit]]:  # fmt: skip
        """Return up to k hits per (state, action) text, best first; at most Q products of D.

        Ties go to real rows, then to the older one.  Rows that would show the same state, action
        and next state are reported once.  A query without any text finds nothing.
        """
        if not self._slots or not texts:
            return [[] for _ in texts]
        states = [state for state, _ in texts]
        actions = [action for _, action in texts]
        state_sims = self._states.similarities(states, np.stack([vectors[s] for s in states]))
        action_sims = self._actions.similarities(actions, np.stack([vectors[a] for a in actions]))
        results: list[list[Hit]] = []
        for q, filter_ in enumerate(filters):
            length = self._length(bool(vectors[actions[q]].any()), bool(vectors[states[q]].any()))
            if not length:
                results.append([])
                continue
            n = len(self._rows)
            similarity = self._weight * action_sims[q][self._columns["action"][:n]]
            similarity += (1.0 - self._weight) * state_sims[q][self._columns["state"][:n]]
            similarity *= self._scale[:n] / np.float32(length)
            results.append(self._top(similarity, self._allowed(filter_), k))
        return results

    def _allowed(self, filter_: Filter) -> NDArray[np.bool_]:
        n = len(self._rows)
        allowed = self._alive[:n] & self._is_named("suite", filter_.suite)
        if filter_.origin is not None:
            allowed &= self._is_real[:n] == (filter_.origin is Origin.REAL)
        for field in ("task", "episode"):
            name = getattr(filter_, field)
            if name is not None:
                out = allowed & self._is_named(field, name)
                setattr(self.exclusions, field, getattr(self.exclusions, field) + int(out.sum()))
                allowed &= ~out
        if filter_.instructions:
            codes = [self._names["instruction"].find(name) for name in filter_.instructions]
            out = allowed & np.isin(self._columns["instruction"][:n], codes)
            self.exclusions.near_duplicate += int(out.sum())
            allowed &= ~out
        return allowed

    def _is_named(self, column: str, name: str) -> NDArray[np.bool_]:
        code = self._names[column].find(name)
        return np.equal(self._columns[column][: len(self._rows)], code)

    def _top(
        self, similarity: Vectors, allowed: NDArray[np.bool_], k: int
    ) -> list[Hit]:  # fmt: skip
        slots = np.flatnonzero(allowed)
        wanted = 4 * k + 16
        while True:
            best = self._ranked(slots, similarity, wanted)
            hits: list[Hit] = []
            seen: set[int] = set()
            for slot in best:
                shown = int(self._columns["shown"][slot])
                row = self._rows[slot]
                if shown not in seen and row is not None:
                    seen.add(shown)
                    hits.append(Hit(row, float(np.clip(similarity[slot], -1.0, 1.0))))
                if len(hits) == k:
                    return hits
            if len(best) == len(slots):
                return hits
            wanted *= 8

    def _ranked(
        self, slots: NDArray[np.intp], similarity: Vectors, wanted: int
    ) -> NDArray[np.intp]:
        values = np.round(similarity[slots], _DECIMALS)
        if wanted < len(slots):
            # everything as good as the last wanted one stays, so that ties are not cut at random
            least = np.partition(values, len(values) - wanted)[len(values) - wanted]
            keep = values >= least
            slots, values = slots[keep], values[keep]
        return slots[np.lexsort((slots, ~self._is_real[slots], -values))]

    def _length(self, has_action: bool, has_state: bool) -> float:
        return float(np.sqrt(self._weight * has_action + (1.0 - self._weight) * has_state))

    def _grow(self) -> None:
        for column, values in self._columns.items():
            self._columns[column] = np.concatenate([values, np.zeros_like(values)])
        self._scale = np.concatenate([self._scale, np.zeros_like(self._scale)])
        self._is_real = np.concatenate([self._is_real, np.zeros_like(self._is_real)])
        self._alive = np.concatenate([self._alive, np.zeros_like(self._alive)])
