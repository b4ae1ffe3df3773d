"""Record files: one JSON object a line, a header line first, and nothing is ever lost silently.

A line is written with one system call and ends with a newline, so a killed process can at most
leave one torn last line; reopening moves it to `<file>.quarantine`.  Reading never stops at a bad
line: it is counted with file, line and reason, and the rest loads.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from dreamgym.errors import DataError, StoreError
from dreamgym.types import SCHEMA_VERSION

T = TypeVar("T")

_LFS = b"version https://git-lfs.github.com/spec/"
_BOM = b"\xef\xbb\xbf"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a record file."""

    schema_version: int
    kind: str
    provenance: dict[str, Any] = {}  # free-form JSON: seeds, suite, policy, ...


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A line that could not be used."""

    file: str
    line: int
    """1-based."""
    reason: str


class ReadResult(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What a record file held; `header` is None for files DreamGym did not write."""

    records: list[T]
    quarantined: list[Quarantined]
    header: Header | None = None


def encode_line(record: object) -> bytes:
    """Return the record as one JSON line; raises `DataError` for NaN and infinities.

    Lone surrogates (half an emoji, as models do produce) are written as escapes.
    """
    plain = msgspec.to_builtins(record)
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise DataError(
            f"a {type(record).__name__} holds a number that is not finite (NaN or infinity), "
            "which JSON cannot hold; use None for an unknown reward"
        ) from error
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return json.dumps(plain, separators=(",", ":")).encode("ascii") + b"\n"


def decode_line(line: bytes, record_type: type[T]) -> T:
    """Return the record on a line; raises `DataError` with the reason."""
    try:
        return msgspec.json.decode(line, type=record_type)
    except (msgspec.DecodeError, UnicodeError):
        pass  # the slower path below accepts lone surrogates, or says what is wrong
    try:
        plain = json.loads(line.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
        return msgspec.convert(plain, type=record_type)
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8: byte 0x{line[error.start]:02X} at position {error.start}"
        ) from error
    except msgspec.ValidationError as error:
        raise DataError(f"not a {record_type.__name__}: {error}") from error
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}") from error


def read_records(
    path: str | Path, record_type: type[T], *, kind: str | None = None
) -> ReadResult[T]:
    """Read a record file, or any JSONL file without a header.

    Raises `DataError` when the file is missing, is a Git LFS pointer, has a newer schema, or
    holds another kind than `kind`.
    """
    file = Path(path)
    records: list[T] = []
    quarantined: list[Quarantined] = []
    header: Header | None = None
    for number, line in _lines(file):
        found = _as_header(line)
        if found is not None:
            _check_header(found, kind, file)
            header = header or found
            continue
        try:
            records.append(decode_line(line, record_type))
        except DataError as error:
            quarantined.append(Quarantined(file=str(file), line=number, reason=str(error)))
    return ReadResult(records=records, quarantined=quarantined, header=header)


class RecordWriter:
    """Appends records to one file; use as a context manager or call `close`.

    Opening an existing file checks that it holds the same kind.  `fsync` also survives a power
    cut, at the price of a disk flush per record.
    """

    def __init__(
        self,
        path: str | Path,
        kind: str,
        provenance: Mapping[str, Any] | None = None,
        *,
        fsync: bool = False,
    ) -> None:
        self.path = Path(path)
        self.num_written = 0
        self._fsync = fsync
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                _mend_tail(self.path)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._handle = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise StoreError(f"cannot open record file {str(self.path)!r}: {error}") from error
        try:
            self._ensure_header(kind, dict(provenance or {}))
        except BaseException:
            self.close()
            raise

    def write(self, record: object) -> None:
        """Append one record; raises `DataError` (not finite) or `StoreError` (disk)."""
        self._append(encode_line(record))
        self.num_written += 1

    def close(self) -> None:
        """Close the file; calling it twice is fine."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ensure_header(self, kind: str, provenance: dict[str, Any]) -> None:
        if os.fstat(self._handle).st_size == 0:
            version = SCHEMA_VERSION
            self._append(
                encode_line(Header(schema_version=version, kind=kind, provenance=provenance))
            )
            return
        first = next(_lines(self.path), None)
        header = _as_header(first[1]) if first else None
        if header is None:
            raise DataError(f"{str(self.path)!r} is not a DreamGym record file; choose a new name")
        _check_header(header, kind, self.path)

    def _append(self, line: bytes) -> None:
        if self._handle < 0:
            raise StoreError(f"record file {str(self.path)!r} is closed")
        view = memoryview(line)
        try:
            while view:  # one call unless the disk takes only part of it
                view = view[os.write(self._handle, view) :]
            if self._fsync:
                os.fsync(self._handle)
        except OSError as error:
            raise StoreError(f"cannot write to {str(self.path)!r}: {error}") from error


def write_json_atomic(path: str | Path, value: object) -> None:
    """Replace a JSON file so that a reader or a crash sees the old or the new one, whole."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        data = json.dumps(msgspec.to_builtins(value), indent=2, allow_nan=False)
    except ValueError as error:
        raise DataError(f"{str(target)!r} cannot hold NaN or infinity; use None") from error
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "w", encoding="ascii", newline="\n") as stream:
            stream.write(data + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreError(f"cannot write {str(target)!r}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: str | Path) -> Any:  # whatever JSON holds
    """Read a JSON file; raises `DataError` naming it when it is missing or broken."""
    try:
        return json.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{str(path)!r} is not valid JSON: {error}") from error


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a rename in it survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (1-based number, line) split at newline bytes only; U+2028 is data."""
    try:
        with open(file, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                text = line.removeprefix(_BOM) if number == 1 else line
                if number == 1 and text.startswith(_LFS):
                    raise DataError(
                        f"{str(file)!r}: Git LFS pointer, data not present; run `git lfs pull`"
                    )
                if text.strip():
                    yield number, text.strip(b" \t\r\n")
    except OSError as error:
        raise DataError(f"cannot read {str(file)!r}: {error.strerror}") from error


def _as_header(line: bytes) -> Header | None:
    if b'"schema_version"' not in line[:200]:
        return None
    try:
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _check_header(header: Header, kind: str | None, file: Path) -> None:
    if header.schema_version > SCHEMA_VERSION:
        raise DataError(
            f"{str(file)!r} has schema version {header.schema_version}, this DreamGym reads up to "
            f"{SCHEMA_VERSION}; upgrade dreamgym"
        )
    if kind is not None and header.kind != kind:
        raise DataError(f"{str(file)!r} holds {header.kind!r} records; expected {kind!r}")


def _mend_tail(path: Path) -> None:
    """Complete the last line where only its newline is missing, else quarantine what is torn."""
    with open(path, "rb+") as stream:
        start = end = stream.seek(0, os.SEEK_END)
        tail = b""
        while start > 0 and b"\n" not in tail:
            step = min(1 << 16, start)
            start = stream.seek(start - step)
            tail = stream.read(step) + tail
        tail = tail[tail.rfind(b"\n") + 1 :]
        if not tail:
            return
        if _is_object(tail):
            stream.seek(end)
            stream.write(b"\n")
            return
        with open(path.with_name(path.name + ".quarantine"), "ab") as quarantine:
            quarantine.write(tail + b"\n")
        stream.truncate(end - len(tail))


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(name: str) -> float:
    raise DataError(f"{name} is not a number a record may hold")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise DataError(f"{text} is too large for a number")
    return value
