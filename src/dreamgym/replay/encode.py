"""Text encoders for retrieval: character n-grams by default, any sentence encoder by choice.

Character n-grams retrieve as well as neural embeddings on text environments and cost
microseconds; they need no model, and equal text gives equal vectors on every machine.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dreamgym.errors import ConfigError, FaultError, ModelError

Vectors = NDArray[np.float32]

_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Encoder(Protocol):
    """Turns texts into vectors whose dot product is their cosine similarity."""

    name: str
    """Names the encoder and everything its vectors depend on; vectors of two names never meet."""
    dim: int

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return shape (number of texts, dim), float32, rows of length 1; zeros for empty text.

        Raises `FaultError` when the encoder cannot be reached or fails.
        """
        ...


class HashedNgramEncoder:
    """Counts character n-grams into `dim` buckets by hash, with sign, damped by square root.

    The sign makes two colliding n-grams cancel in expectation instead of adding a false
    similarity (feature hashing, Weinberger et al. 2009).  Case and spacing are ignored.  The
    last `cache` distinct texts are remembered.
    """

    def __init__(
        self, dim: int = 256, ngram: tuple[int, int] = (3, 5), *, cache: int = 8192
    ) -> None:
        low, high = ngram
        if dim < 1:
            raise ConfigError(f"dim must be at least 1; got {dim}")
        if not 1 <= low <= high:
            raise ConfigError(f"ngram must be (low, high) with 1 <= low <= high; got {ngram}")
        self.dim = dim
        self.name = f"hashed-ngram-{low}-{high}-v1"
        self._sizes = range(low, high + 1)
        self._cache: OrderedDict[str, Vectors] = OrderedDict()
        self._cache_size = max(cache, 0)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return shape (number of texts, dim); see `Encoder`."""
        result = np.zeros((len(texts), self.dim), np.float32)
        fresh: dict[str, list[int]] = {}
        for row, text in enumerate(texts):
            known = self._cache.get(text)
            if known is None:
                fresh.setdefault(text, []).append(row)
            else:
                self._cache.move_to_end(text)
                result[row] = known
        new = list(fresh)
        for start in range(0, len(new), 256):  # bounds the memory of one pass
            part = new[start : start + 256]
            for text, vector in zip(part, self._count(part), strict=True):
                result[fresh[text]] = vector
                self._remember(text, vector)
        return result

    def _count(self, texts: Sequence[str]) -> Vectors:
        padded = [f" {' '.join(text.lower().split())} " if text.strip() else "" for text in texts]
        lengths = np.array([len(text) for text in padded], np.int64)
        joined = "".join(padded).encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(joined, np.uint32).astype(np.uint64)
        owner = np.repeat(np.arange(len(texts), dtype=np.int64), lengths)
        counts = np.zeros(len(texts) * self.dim, np.float64)
        for size in self._sizes:
            if len(codes) < size:
                break
            last = len(codes) - size + 1
            keys = np.full(last, size, np.uint64)
            for offset in range(size):
                keys = (keys ^ codes[offset : offset + last]) * _PRIME
            keys ^= keys >> np.uint64(29)
            keys *= _MIX
            keys ^= keys >> np.uint64(32)
            signs = np.where(keys & np.uint64(1), 1.0, -1.0)
            # n-grams that would run from one text into the next count nothing
            signs[owner[:last] != owner[size - 1 :]] = 0.0
            buckets = ((keys >> np.uint64(1)) % np.uint64(self.dim)).astype(np.int64)
            buckets += owner[:last] * self.dim
            counts += np.bincount(buckets, weights=signs, minlength=len(counts))
        table = counts.reshape(len(texts), self.dim)
        return unit_rows(np.sign(table) * np.sqrt(np.abs(table)))

    def _remember(self, text: str, vector: Vectors) -> None:
        if self._cache_size:
            self._cache[text] = vector.copy()  # a view would keep the whole batch alive
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)


def unit_rows(table: NDArray[np.floating]) -> Vectors:
    """Return the rows scaled to length 1 as float32; zero rows stay zero."""
    lengths = np.sqrt(np.einsum("nd,nd->n", table, table, dtype=np.float64))
    lengths[lengths == 0] = 1.0
    result: Vectors = (table / lengths[:, None]).astype(np.float32)
    return result


def checked_encode(encoder: Encoder, texts: Sequence[str]) -> Vectors:
    """Encode, and insist on what `Encoder` promises: shape, finite numbers, rows of length 1.

    Raises `ModelError` where the encoder fails or breaks its promise, so that a bad vector
    never gets into an index.
    """
    try:
        vectors = np.asarray(encoder.encode(texts), np.float32)
    except FaultError:
        raise
    except Exception as error:  # an encoder may be any third-party model
        raise ModelError(f"encoder {encoder.name!r} failed: {error}") from error
    if vectors.shape != (len(texts), encoder.dim):
        raise ModelError(
            f"encoder {encoder.name!r} returned shape {vectors.shape} for {len(texts)} texts; "
            f"expected {(len(texts), encoder.dim)}"
        )
    if not np.isfinite(vectors).all():
        raise ModelError(f"encoder {encoder.name!r} returned NaN or infinite numbers")
    return unit_rows(vectors)
