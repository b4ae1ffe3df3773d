"""The replay buffer that grounds a dream: real transitions first, accepted dreamt ones later.

The unit is the *transition*: `capacity` counts transitions, whatever the episodes.  What leaves
first is in `members.py`, the files in `store.py` and `files.py`, the search in `index.py`.
Transitions of evaluation tasks never get in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from dreamgym.errors import ConfigError, DataError
from dreamgym.replay.contents import Contents
from dreamgym.replay.encode import Encoder
from dreamgym.replay.files import BufferFiles
from dreamgym.replay.guard import EvaluationGuard
from dreamgym.replay.index import Exclusions, Filter
from dreamgym.replay.members import Members
from dreamgym.replay.store import (
    Line,
    Packed,
    Row,
    digest,
    from_ranges,
    pack,
    to_ranges,
    to_row,
)
from dreamgym.replay.text import content_words, similarity
from dreamgym.types import SCHEMA_VERSION, Observation, Origin, Rollout, Transition

OnForbidden = Literal["raise", "skip"]
State = dict[str, Any]  # JSON


class Neighbour(msgspec.Struct, frozen=True):
    """A retrieved transition with its cosine similarity to the query, in [-1, 1]."""

    transition: Transition
    similarity: float


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for, and what must not be found; see `ReplayBuffer.query`."""

    state: str
    action: str
    suite: str
    exclude_task: str | None = None
    exclude_episode: str | None = None
    exclude_near_duplicates_of: str | None = None
    origin: Origin | None = None


class ReplayBuffer:
    """Transitions to retrieve by similarity of (state, action); durable if `folder` is given.

    `forbidden_tasks` are ids of evaluation tasks, `forbidden_splits` names of evaluation splits:
    a transition whose task id is one, or has a split's name as one of its parts, is refused
    (`on_forbidden` "raise") or counted and left out ("skip").  `action_weight` is the share of
    the action in the similarity; 0.7 is a measured choice: on household logs it finds more alike
    outcomes than 0.5, and more weight gains little.  `max_chars` bounds what the encoder reads;
    the stored text is whole.  `reencode` accepts a folder written with another encoder and
    computes its vectors anew.
    """

    def __init__(
        self,
        folder: str | Path | None,
        encoder: Encoder,
        *,
        capacity: int,
        forbidden_tasks: Iterable[str] = (),
        forbidden_splits: Iterable[str] = (),
        on_forbidden: OnForbidden = "raise",
        action_weight: float = 0.7,
        max_chars: int = 1000,
        near_threshold: float = 0.9,
        reencode: bool = False,
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity must be at least 1 transition; got {capacity}")
        for name, share in (("action_weight", action_weight), ("near_threshold", near_threshold)):
            if not 0.0 <= share <= 1.0:
                raise ConfigError(f"{name} must be in [0, 1]; got {share}")
        self.encoder = encoder
        self.capacity = capacity
        self.counters: Counter[str] = Counter()
        self._guard = EvaluationGuard(
            forbidden_tasks, forbidden_splits, skip=on_forbidden == "skip"
        )
        self._weight, self._max_chars = action_weight, max_chars
        self._near_threshold = near_threshold
        self._similarity_sum = 0.0
        self._next = 0
        self._contents = self._empty()
        self._files: BufferFiles | None = None
        if folder is not None:
            self._files = BufferFiles(Path(folder), encoder, reencode=reencode)
            with self._files.lock():
                self._load(self._files.read_new(), self._files)

    def __len__(self) -> int:
        return len(self._contents.members)

    @property
    def transitions(self) -> list[Transition]:
        """The transitions held, in the order they came."""
        return [row.transition for row in self._contents.members.rows()]

    def add(self, transitions: Iterable[Transition]) -> int:
        """Add transitions and return how many are new; exact copies are dropped.

        Everything is checked and encoded before anything is written.  Raises `UserError` for a
        transition of an evaluation task, `DataError` for one that cannot be stored (NaN reward),
        `FaultError` when the encoder or the disk fails.
        """
        packed = [pack(t) for t in transitions if self._allows(str(t.task_id))]
        if not packed:
            return 0
        if self._files is None:
            return self._admit(packed)
        with self._files.lock():
            self._catch_up(self._files)
            return self._admit(packed)

    def add_rollouts(self, rollouts: Iterable[Rollout]) -> int:
        """Add the transitions of episodes; faults are left out, evaluation splits are refused."""
        found: list[Transition] = []
        for rollout in rollouts:
            count = len(rollout.transitions)
            if self._allows(rollout.task.id, split=rollout.task.split, count=count):
                found.extend(() if rollout.is_fault else rollout.transitions)
        return self.add(found)

    def refresh(self) -> None:
        """Take in what other processes have appended to the folder since."""
        if self._files is not None:
            with self._files.lock():
                self._catch_up(self._files)

    def query(
        self,
        state: str,
        action: str,
        *,
        k: int,
        suite: str,
        exclude_task: str | None = None,
        exclude_episode: str | None = None,
        exclude_near_duplicates_of: str | None = None,
        origin: Literal["real", "dream"] | Origin | None = None,
    ) -> list[Neighbour]:
        """Return up to k transitions of a suite most similar to (state, action), best first.

        Only what exists is returned: fewer than k, or none, from a small or empty buffer.
        `exclude_near_duplicates_of` is a task instruction: transitions of tasks worded nearly
        like it are left out, whatever their id.  Ties go to real ones, then to older ones.
        """
        query = Query(
            state=state, action=action, suite=suite, exclude_task=exclude_task,
            exclude_episode=exclude_episode, origin=None if origin is None else Origin(origin),
            exclude_near_duplicates_of=exclude_near_duplicates_of,
        )  # fmt: skip
        return self.query_many([query], k=k)[0]

    def query_many(self, queries: Sequence[Query], *, k: int) -> list[list[Neighbour]]:
        """Return what `query` returns for each; one encoding and one product for all."""
        if k < 1:
            raise ConfigError(f"k must be at least 1; got {k}")
        self.counters["queries"] += len(queries)
        if not len(self):
            return [[] for _ in queries]
        texts = [self._contents.texts(query.state, query.action) for query in queries]
        vectors, _ = self._contents.vectors(texts)
        filters = [self._filter(query) for query in queries]
        found = self._contents.index.search(texts, vectors, filters, k=k)
        for hits in found:
            self.counters["retrieved"] += len(hits)
            self._similarity_sum += sum(hit.similarity for hit in hits)
        return [[Neighbour(hit.row.transition, hit.similarity) for hit in hits] for hits in found]

    def metrics(self) -> dict[str, float]:
        """Return sizes, counters and the mean similarity of what was retrieved."""
        counted, out = self.counters, self._contents.index.exclusions
        return {
            "size": float(len(self)),
            "real": float(self._contents.members.count(Origin.REAL)),
            "dream": float(self._contents.members.count(Origin.DREAM)),
            "queries": float(counted["queries"]),
            "mean_similarity": self._similarity_sum / max(counted["retrieved"], 1),
            "excluded/task": float(out.task),
            "excluded/episode": float(out.episode),
            "excluded/near_duplicate": float(out.near_duplicate),
            "refused/evaluation": float(self._guard.num_skipped),
            "refused/duplicate": float(counted["duplicate"]),
            "refused/full": float(counted["full"]),
            "evicted/real": float(counted["evicted_real"]),
            "evicted/dream": float(counted["evicted_dream"]),
            "conflicting_ids": float(counted["conflicting_ids"]),
            "quarantined": float(self._files.num_quarantined if self._files else 0),
        }

    def state_dict(self) -> State:
        """Return JSON-able state for a checkpoint.

        With a folder, line numbers of its log; without one, the transitions themselves.
        """
        members = self._contents.members
        rows = members.rows()
        state: State = {
            "schema_version": SCHEMA_VERSION,
            "encoder": self.encoder.name,
            "keys": _keys_digest(rows),
            "live": [list(pair) for pair in to_ranges([row.number for row in rows])],
            "retired": dict(members.retired),
            "counters": dict(self.counters),
            "skipped": self._guard.num_skipped,
            "similarity_sum": self._similarity_sum,
            "exclusions": msgspec.to_builtins(self._contents.index.exclusions),
        }
        if self._files is None:
            state["transitions"] = [msgspec.to_builtins(row.transition) for row in rows]
        return state

    def load_state_dict(self, state: State) -> None:
        """Hold exactly what was held at `state_dict`, and note so in the log.

        Raises `DataError` when the log is not the one the state was taken from.
        """
        if self._files is None:
            self._load_memory(state)
        else:
            with self._files.lock():
                self._load_durable(state, self._files)
        self.counters = Counter(state["counters"])
        self._guard.num_skipped = int(state["skipped"])
        self._similarity_sum = float(state["similarity_sum"])
        self._contents.index.exclusions = msgspec.convert(state["exclusions"], Exclusions)

    def close(self) -> None:
        """Close the files; the buffer can still be queried."""
        if self._files is not None:
            self._files.close()

    def _admit(self, packed: Sequence[Packed]) -> int:
        """Encode, write, then hold: a fault on the way changes nothing in memory."""
        contents = self._contents
        accepted = contents.accepted(packed, self.counters)
        lines: list[Line] = []
        places: list[int] = []
        named: dict[str, Observation] = {}
        for item in accepted:
            for name, observation in item.observations.items():
                if name not in contents.observations and name not in named:
                    named[name] = observation
                    lines.append(Line(name=name, observation=observation))
            places.append(len(lines))
            lines.append(item.row)
        known = {**contents.observations, **named} if named else contents.observations
        rows = [to_row(self._next + place, lines[place], known) for place in places]
        held = [row for row in rows if row is not None]
        pairs = contents.row_texts(held)
        vectors, fresh = contents.vectors(pairs)
        if self._files is not None and lines:
            self._files.append_vectors(fresh)  # first: a vector without a row does no harm
            self._files.append_lines(lines)
        self._next += len(lines)
        contents.observations = known
        contents.hold(held, pairs, vectors, self.counters)
        return len(held)

    def _catch_up(self, files: BufferFiles) -> None:
        """Apply lines of the log this process has not seen."""
        lines = files.read_new()
        if not lines:
            return
        if any(line.live is not None for _, line in lines):
            self._load(files.read_all(), files)
            return
        contents = self._contents
        rows = _rows(lines, contents.observations)
        if any(row is None for row in rows.values()):  # it names an observation dropped since
            rows = {n: row for n, row in _rows(files.read_all(), {}).items() if n in rows}
        found = [row for row in rows.values() if row is not None]
        pairs = contents.row_texts(found)
        vectors, fresh = contents.vectors(pairs)
        files.append_vectors(fresh)
        contents.hold(found, pairs, vectors, self.counters)
        self._next = files.next_number

    def _load(self, lines: Sequence[tuple[int, Line]], files: BufferFiles) -> None:
        """Hold what the whole log says; vectors that are missing are computed and appended."""
        contents = self._empty()
        found = _rows(lines, contents.observations)
        rows = {number: row for number, row in found.items() if row is not None}
        start = 0
        for number, line in lines:
            if line.live is not None:
                contents.members = Members.of(
                    self.capacity,
                    [rows[n] for n in sorted(from_ranges(line.live)) if n in rows],
                    [rows[n] for n in sorted(from_ranges(line.retired)) if n in rows],
                )
                start = number
        for number, row in rows.items():
            if number >= start:
                contents.members.add(row)
        files.append_vectors(contents.index_all(files.load_vectors()))
        contents.index.exclusions = self._contents.index.exclusions
        self._contents = contents
        self._next = files.next_number

    def _load_durable(self, state: State, files: BufferFiles) -> None:
        rows = _rows(files.read_all(), {})
        live = to_ranges(sorted(from_ranges(state["live"])))
        kept = [row for n in sorted(from_ranges(live)) if (row := rows.get(n)) is not None]
        if _keys_digest(kept) != state["keys"]:
            raise DataError(
                "the replay buffer's log is not the one this checkpoint was made with "
                f"({len(kept)} of its transitions were found); restore the run folder as a whole"
            )
        retired = to_ranges(sorted(int(number) for number in state["retired"].values()))
        files.append_lines([Line(live=live, retired=retired)])
        self._load(files.read_all(), files)

    def _load_memory(self, state: State) -> None:
        if "transitions" not in state:
            raise DataError(
                "this checkpoint's replay buffer lives in a folder, but the buffer it is loaded "
                "into has none; open the buffer with the run's folder"
            )
        self._contents = self._empty()
        self._admit([pack(msgspec.convert(t, Transition)) for t in state["transitions"]])
        self._contents.members.retired = {str(k): int(n) for k, n in state["retired"].items()}

    def _filter(self, query: Query) -> Filter:
        near: frozenset[str] = frozenset()
        if query.exclude_near_duplicates_of is not None:
            words = content_words(query.exclude_near_duplicates_of)
            near = frozenset(
                other
                for other in self._contents.index.instructions()
                if other == query.exclude_near_duplicates_of
                or similarity(words, content_words(other)) >= self._near_threshold
            )
        return Filter(
            suite=query.suite, origin=query.origin, task=query.exclude_task,
            episode=query.exclude_episode, instructions=near,
        )  # fmt: skip

    def _allows(self, task_id: str, *, split: str = "", count: int = 1) -> bool:
        return self._guard.allows(task_id, where="the replay buffer", split=split, count=count)

    def _empty(self) -> Contents:
        return Contents(
            self.encoder, capacity=self.capacity, action_weight=self._weight,
            max_chars=self._max_chars,
        )  # fmt: skip


def _rows(
    lines: Sequence[tuple[int, Line]], observations: dict[str, Observation]
) -> dict[int, Row | None]:
    """Return the rows by line number; `observations` takes in those met on the way."""
    rows: dict[int, Row | None] = {}
    for number, line in lines:
        if line.observation is not None:
            observations.setdefault(line.name, line.observation)
        elif line.row is not None:
            rows[number] = to_row(number, line, observations)
    return rows


def _keys_digest(rows: Sequence[Row]) -> str:
    return digest("\n".join(row.key for row in rows).encode()).hex()
