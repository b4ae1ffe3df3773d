"""What a buffer holds in memory: rows, their search index, the observations they share."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dreamgym.replay.encode import Encoder, Vectors, checked_encode
from dreamgym.replay.index import SearchIndex
from dreamgym.replay.members import Members
from dreamgym.replay.store import Packed, Row, text_digest
from dreamgym.replay.text import embedding_text
from dreamgym.types import Observation, Origin, Transition

log = logging.getLogger(__name__)

VectorMap = dict[str, Vectors]
"""Embedding text -> vector of shape (D,)."""
TextPair = tuple[str, str]
"""What the encoder reads of (state, action)."""


class Contents:
    """Rows of at most `capacity`, searchable; knows nothing of files."""

    def __init__(
        self, encoder: Encoder, *, capacity: int, action_weight: float, max_chars: int
    ) -> None:
        self.encoder = encoder
        self.members = Members(capacity)
        self.observations: dict[str, Observation] = {}
        self._action_weight = action_weight
        self._max_chars = max_chars
        self._clear_index()

    def texts(self, state: str, action: str) -> TextPair:
        """Return what the encoder reads of a state and of an action."""
        return embedding_text(state, self._max_chars), embedding_text(action, self._max_chars)

    def row_texts(self, rows: Sequence[Row]) -> list[TextPair]:
        """Return what the encoder reads of each row."""
        return [self.texts(r.transition.observation.text, r.transition.action) for r in rows]

    def vectors(
        self, pairs: Iterable[TextPair], stored: Mapping[bytes, Vectors] | None = None
    ) -> tuple[VectorMap, VectorMap]:
        """Return the vectors of all texts of the pairs, and those of them that were computed.

        Known ones come from the index or from `stored` (by text digest).  Raises `FaultError`
        when the encoder fails.
        """
        found: VectorMap = {}
        missing: list[str] = []
        for text in dict.fromkeys(text for pair in pairs for text in pair):
            vector = self.index.vector(text)
            if vector is None and stored:
                vector = stored.get(text_digest(text))
            if vector is None:
                missing.append(text)
            else:
                found[text] = vector
        fresh: VectorMap = {}
        if missing:
            fresh = dict(zip(missing, checked_encode(self.encoder, missing), strict=True))
        return found | fresh, fresh

    def accepted(self, packed: Sequence[Packed], counters: Counter[str]) -> list[Packed]:
        """Return what would be new, in order; the rest is counted with its reason."""
        result: list[Packed] = []
        keys: set[str] = set()
        conflicts = 0
        num_real = self.members.count(Origin.REAL)
        for item in packed:
            assert item.row.row is not None
            origin = item.row.row.origin
            verdict = self.members.verdict(item.key, origin)
            if item.key in keys:
                verdict = "duplicate"
            elif verdict == "added" and origin is Origin.DREAM:
                verdict = "full" if num_real >= self.members.capacity else "added"
            if verdict != "added":
                counters[verdict] += 1
                continue
            keys.add(item.key)
            num_real += origin is Origin.REAL
            conflicts += self._ids.setdefault(_identity(item.row.row), item.key) != item.key
            result.append(item)
        if conflicts:
            counters["conflicting_ids"] += conflicts
            log.warning(
                "%d transitions share task, episode and step with another of different content; "
                "all are kept",
                conflicts,
            )
        return result

    def hold(
        self,
        rows: Sequence[Row],
        pairs: Sequence[TextPair],
        vectors: VectorMap,
        counters: Counter[str],
    ) -> None:
        """Hold rows whose texts and vectors are given, letting others go where there is no room."""
        for row, pair in zip(rows, pairs, strict=True):
            verdict, evicted = self.members.add(row)
            if verdict != "added":
                continue
            self._index_row(row, pair, vectors)
            if evicted is not None:
                counters[f"evicted_{evicted.transition.origin}"] += 1
                self.index.remove(evicted.number)
        if self.index.num_slots > 2 * len(self.index) + 1024:
            self._compact()

    def index_all(self, stored: Mapping[bytes, Vectors] | None = None) -> VectorMap:
        """Index the members anew; return the vectors that had to be computed."""
        rows = self.members.rows()
        pairs = self.row_texts(rows)
        vectors, fresh = self.vectors(pairs, stored)
        exclusions = self.index.exclusions
        self._clear_index()
        self.index.exclusions = exclusions
        for row, pair in zip(rows, pairs, strict=True):
            self._index_row(row, pair, vectors)
        return fresh

    def _compact(self) -> None:
        """Forget texts and observations that no row uses any more."""
        self.index_all()
        transitions = [row.transition for row in self.members.rows()]
        used = {id(t.observation) for t in transitions}
        used |= {id(t.next_observation) for t in transitions}
        self.observations = {n: o for n, o in self.observations.items() if id(o) in used}

    def _index_row(self, row: Row, pair: TextPair, vectors: VectorMap) -> None:
        state, action = pair
        self.index.add(row, state=state, action=action, vectors=vectors)
        self._ids.setdefault(_identity(row.transition), row.key)

    def _clear_index(self) -> None:
        self.index = SearchIndex(self.encoder.dim, action_weight=self._action_weight)
        self._ids: dict[tuple[str, str, str, str, int], str] = {}


def _identity(transition: Transition) -> tuple[str, str, str, str, int]:
    t = transition
    return (t.origin, t.suite, t.task_id, t.episode_id, t.step)
