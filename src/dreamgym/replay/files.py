"""The folder of a durable buffer: log, vectors and encoder name kept in step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from dreamgym.errors import DataError
from dreamgym.records import read_json, write_json_atomic
from dreamgym.replay.encode import Encoder, Vectors
from dreamgym.replay.store import Line, ReplayLog, VectorFile, text_digest
from dreamgym.types import SCHEMA_VERSION


class EncoderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which encoder a folder's buffer is searched with."""

    schema_version: int
    name: str
    dim: int


class BufferFiles:
    """Log, vector file and encoder name of one folder.

    Raises `DataError` when the folder was written with another encoder, unless `reencode`: the
    other encoder's vectors stay where they are, and this one's are computed.
    """

    def __init__(self, folder: Path, encoder: Encoder, *, reencode: bool) -> None:
        self._log = ReplayLog(folder)
        self._path = folder / "encoder.json"
        self._info = EncoderInfo(schema_version=SCHEMA_VERSION, name=encoder.name, dim=encoder.dim)
        self._is_new = reencode or not self._path.exists()
        if not self._is_new:
            try:
                self._check_encoder()
            except DataError:
                self._log.close()
                raise
        self._vectors = VectorFile(folder, encoder.name, encoder.dim)

    @property
    def num_quarantined(self) -> int:
        """Lines of the log that could not be read."""
        return self._log.num_quarantined

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from appending."""
        with self._log.lock():
            yield

    @property
    def next_number(self) -> int:
        """The number the next line of the log will get."""
        return self._log.next_number

    def read_new(self) -> list[tuple[int, Line]]:
        """Return (number, line) of what was appended since the last read."""
        return self._log.read_new()

    def read_all(self) -> list[tuple[int, Line]]:
        """Return (number, line) of the whole log."""
        self._log.rewind()
        return self._log.read_new()

    def load_vectors(self) -> dict[bytes, Vectors]:
        """Return the stored vectors by text digest."""
        rows, table = self._vectors.load()
        return {key: table[row] for key, row in rows.items()}

    def append_lines(self, lines: Sequence[Line]) -> int:
        """Append to the log and return the number of the first line."""
        return self._log.append(lines)

    def append_vectors(self, vectors: dict[str, Vectors]) -> None:
        """Append the vectors of texts that have none yet, and name their encoder."""
        if vectors:
            keys = [text_digest(text) for text in vectors]
            self._vectors.append(keys, np.stack(list(vectors.values())))
        if self._is_new:
            write_json_atomic(self._path, self._info)
            self._is_new = False

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _check_encoder(self) -> None:
        try:
            found = msgspec.convert(read_json(self._path), EncoderInfo)
        except msgspec.ValidationError as error:
            raise DataError(
                f"{str(self._path)!r} does not name an encoder ({error}); restore the file, or "
                "open the buffer with reencode=True"
            ) from error
        if (found.name, found.dim) != (self._info.name, self._info.dim):
            raise DataError(
                f"the buffer in {str(self._path.parent)!r} was written with encoder "
                f"{found.name!r} of dimension {found.dim}, now it is opened with "
                f"{self._info.name!r} of dimension {self._info.dim}; use the same encoder, or "
                "reencode=True to compute all vectors anew (nothing is lost)"
            )
