"""Files of a replay buffer: an append-only log of transitions, and a cache of their vectors.

    transitions.jsonl        header, then observations (each once), rows that refer to them, and
                             `live` lines that say which rows a restored checkpoint kept
    vectors-<encoder>.f32    fixed-size records (16-byte text digest, float32 vector)
    encoder.json             which encoder the buffer is read with
    lock                     held during every append

The log is the truth.  Vectors are found by the digest of their text, never by position, so one
that a killed process did not write is simply computed again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from dreamgym.errors import DataError, StoreError
from dreamgym.records import Header, decode_line, encode_line
from dreamgym.replay.encode import Vectors
from dreamgym.types import SCHEMA_VERSION, Observation, Transition

try:
    import fcntl
except ImportError:  # not a POSIX system: one writer at a time is then the user's promise
    fcntl = None  # type: ignore[assignment]

KIND = "replay"
_EMPTY = Observation(text="")
Ranges = list[tuple[int, int]]
"""Half-open ranges of line numbers."""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip  # noqa: E501
    """One line of the log: an observation, a row, or the rows that a restore kept."""

    name: str = ""
    """Of an observation: the hash rows refer to it by."""
    observation: Observation | None = None
    row: Transition | None = None
    """Its two observations are empty here; `before` and `after` name them."""
    before: str = ""
    after: str = ""
    live: Ranges | None = None
    retired: Ranges = []


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A stored transition. `number` is its line in the log, `key` the hash of its content."""

    number: int
    key: str
    transition: Transition


def digest(data: bytes) -> bytes:
    """Return the 16-byte hash everything here is named by."""
    return hashlib.blake2b(data, digest_size=16).digest()


def text_digest(text: str) -> bytes:
    """Return the digest of a text, lone surrogates included."""
    return digest(text.encode("utf-8", "surrogatepass"))


def content_key(line: Line) -> str:
    """Return the hash of what happened: equal for exact copies, whatever episode logged them."""
    row = line.row
    assert row is not None
    parts = (
        row.origin, row.suite, row.task_id, row.instruction, line.before, row.action, line.after,
        row.reward, row.terminated, row.truncated, row.success,
    )  # fmt: skip
    return digest(encode_line(parts)).hex()


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A transition taken apart for storage: a line, and the observations it names."""

    row: Line
    observations: dict[str, Observation]
    key: str


def pack(transition: Transition) -> Packed:
    """Take a transition apart.

    Everything goes through JSON and back: that checks the types, and leaves nothing the caller
    could still change.  Raises `DataError` for what cannot be stored, e.g. a NaN reward.
    """
    observations: dict[str, Observation] = {}
    names: list[str] = []
    for observation in (transition.observation, transition.next_observation):
        data = encode_line(observation)
        names.append(digest(data).hex())
        observations[names[-1]] = decode_line(data, Observation)
    row = replace(
        transition,
        task_id=str(transition.task_id),  # imported ids may be numbers: 4117 is "4117"
        episode_id=str(transition.episode_id),
        observation=_EMPTY,
        next_observation=_EMPTY,
    )
    line = decode_line(encode_line(Line(row=row, before=names[0], after=names[1])), Line)
    assert line.row is not None
    return Packed(row=line, observations=observations, key=content_key(line))


def to_row(number: int, line: Line, observations: Mapping[str, Observation]) -> Row | None:
    """Return the row a line holds, None if an observation it names is not known."""
    before, after = observations.get(line.before), observations.get(line.after)
    if line.row is None or before is None or after is None:
        return None
    transition = replace(line.row, observation=before, next_observation=after)
    return Row(number=number, key=content_key(line), transition=transition)


class ReplayLog:
    """The append-only log. All its methods but `lock` are called with the lock held."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "transitions.jsonl"
        self.num_quarantined = 0
        self._lock_path = folder / "lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._handle = os.open(self.path, flags, 0o644)
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(
                f"cannot open the replay buffer in {str(folder)!r}: {error}"
            ) from error
        self.rewind()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from appending (a POSIX record lock: not inherited by fork)."""
        if fcntl is not None:
            fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if fcntl is not None:
                fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def rewind(self) -> None:
        """Start reading at the first line again."""
        self._offset = 0
        self._next = 0
        self.num_quarantined = 0

    def read_new(self) -> list[tuple[int, Line]]:
        """Return (number, line) of what was appended since the last read, by any process.

        A torn last line moves to `transitions.jsonl.quarantine`; an unreadable line in the
        middle is counted and skipped.  Raises `DataError` for a file that is no replay log.
        """
        data = self._read()
        if self._offset == 0:
            data = self._check_header(data)
        found: list[tuple[int, Line]] = []
        for text in data.split(b"\n")[:-1]:
            try:
                found.append((self._next, decode_line(text, Line)))
            except DataError:
                self.num_quarantined += 1
            self._next += 1
        self._offset = os.fstat(self._handle).st_size
        return found

    def append(self, lines: Sequence[Line]) -> int:
        """Append lines with one write and return the number of the first; call `read_new` first."""
        first = self._next
        self._write(b"".join(map(encode_line, lines)))
        self._next += len(lines)
        return first

    @property
    def next_number(self) -> int:
        """The number the next line will get."""
        return self._next

    def close(self) -> None:
        """Close the files; calling it twice is fine."""
        for handle in (self._handle, self._lock):
            if handle >= 0:
                os.close(handle)
        self._handle = self._lock = -1

    def _read(self) -> bytes:
        try:
            size = os.fstat(self._handle).st_size
            if size < self._offset:
                raise StoreError(
                    f"{str(self.path)!r} became shorter while it was open; open the buffer again"
                )
            if size == self._offset:
                return b""
            data = _read_at(self._handle, self._offset, size - self._offset)
            torn = data[data.rfind(b"\n") + 1 :]
            if torn:
                with open(self.path.with_name(self.path.name + ".quarantine"), "ab") as stream:
                    stream.write(torn + b"\n")
                os.ftruncate(self._handle, size - len(torn))
                self.num_quarantined += 1
            return data[: len(data) - len(torn)]
        except OSError as error:
            raise StoreError(f"cannot read {str(self.path)!r}: {error}") from error

    def _check_header(self, data: bytes) -> bytes:
        if not data:
            self._write(encode_line(Header(schema_version=SCHEMA_VERSION, kind=KIND)))
            return b""
        first, _, rest = data.partition(b"\n")
        try:
            header = decode_line(first, Header)
        except DataError as error:
            raise DataError(
                f"{str(self.path)!r} is not the log of a replay buffer ({error}); choose another "
                "folder or restore the file"
            ) from error
        if header.kind != KIND or header.schema_version > SCHEMA_VERSION:
            raise DataError(
                f"{str(self.path)!r} holds {header.kind!r} records of schema version "
                f"{header.schema_version}; expected {KIND!r}, at most {SCHEMA_VERSION}"
            )
        return rest

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:  # one call unless the disk takes only part of it
                view = view[os.write(self._handle, view) :]
        except OSError as error:
            raise StoreError(f"cannot write to {str(self.path)!r}: {error}") from error
        self._offset = os.fstat(self._handle).st_size


class VectorFile:
    """Vectors by text digest, appended; called with the log's lock held."""

    def __init__(self, folder: Path, encoder_name: str, dim: int) -> None:
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", encoder_name)
        tag = text_digest(encoder_name).hex()[:8]  # two names may share a slug
        self.path = folder / f"vectors-{slug}-{tag}-{dim}.f32"
        self._type = np.dtype([("key", "V16"), ("vector", "<f4", (dim,))])

    def load(self) -> tuple[dict[bytes, int], Vectors]:
        """Return digest -> row, and the rows; damaged records are left out."""
        empty = np.zeros((0, *self._type["vector"].shape), np.float32)
        if not self.path.exists():
            return {}, empty
        try:
            size = self.path.stat().st_size // self._type.itemsize
            table = np.fromfile(self.path, self._type, count=size)
        except OSError as error:
            raise StoreError(f"cannot read {str(self.path)!r}: {error}") from error
        vectors = np.asarray(table["vector"], np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            lengths = np.einsum("nd,nd->n", vectors, vectors)
        good = np.isclose(lengths, 1.0, atol=1e-3) | (lengths == 0.0)
        keys = (key.tobytes() for key in table["key"])
        return {key: row for row, key in enumerate(keys) if good[row]}, vectors

    def append(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Append records; what a killed process left half-written is cut off first."""
        if not keys:
            return
        table = np.zeros(len(keys), self._type)
        table["key"] = np.frombuffer(b"".join(keys), "V16")
        table["vector"] = vectors
        try:
            with open(self.path, "ab") as stream:
                extra = stream.tell() % self._type.itemsize
                if extra:
                    stream.truncate(stream.tell() - extra)
                    stream.seek(0, os.SEEK_END)
                stream.write(table.tobytes())
        except OSError as error:
            raise StoreError(f"cannot write to {str(self.path)!r}: {error}") from error


def to_ranges(numbers: Sequence[int]) -> Ranges:
    """Return sorted numbers as half-open ranges.

    >>> to_ranges([0, 1, 2, 7])
    [(0, 3), (7, 8)]
    """
    ranges: Ranges = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1] = (ranges[-1][0], number + 1)
        else:
            ranges.append((number, number + 1))
    return ranges


def from_ranges(ranges: Sequence[Sequence[int]]) -> set[int]:
    """Return the numbers in half-open ranges."""
    return {number for start, stop in ranges for number in range(start, stop)}


def _read_at(handle: int, offset: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.pread(handle, size, offset)
        if not part:
            break
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)
