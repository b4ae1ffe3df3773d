"""The rows of keys and values that sessions own, on the device, bounded in memory.

One row holds one session: the ids whose keys and values it has, and the tensors.  A batch needs
its rows side by side so that attention reads views instead of copies; `line_up` swaps the few
rows that are not.  Which tokens to compute is the engine's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

Ids = npt.NDArray[np.int64]
_FIRST_ROWS, _FIRST_SLOTS = 8, 256


class KVShape(NamedTuple):
    """What one token's keys and values look like."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Bytes per cached token, keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class KVPool:
    """Rows x slots of keys and values; grows on demand up to its bounds, evicts the least used."""

    def __init__(self, shape: KVShape, *, max_rows: int, max_context: int, max_bytes: int) -> None:
        self._shape = shape
        self._max_rows = max_rows
        self._max_context = max_context
        self._max_bytes = max_bytes
        self._clock = 0
        self._row_of: dict[str, int] = {}
        self._allocate(min(_FIRST_ROWS, max_rows), min(_FIRST_SLOTS, max_context))

    def _allocate(self, rows: int, slots: int) -> None:
        shape = self._shape
        size = (shape.layers, rows, shape.kv_heads, slots, shape.head_dim)
        # Zeros, not empty: a NaN in an unused slot would survive its zero attention weight.
        self.keys = torch.zeros(size, dtype=shape.dtype, device=shape.device)
        self.values = torch.zeros(size, dtype=shape.dtype, device=shape.device)
        self.ids: Ids = np.zeros((rows, slots), dtype=np.int64)
        self.lengths: Ids = np.zeros(rows, dtype=np.int64)
        self._used: Ids = np.zeros(rows, dtype=np.int64)
        self._owners: list[str | None] = [None] * rows

    @property
    def num_rows(self) -> int:
        """Rows allocated now."""
        return len(self._owners)

    @property
    def num_slots(self) -> int:
        """Tokens a row can hold now."""
        return int(self.ids.shape[1])

    @property
    def num_bytes(self) -> int:
        """Bytes of keys and values allocated now."""
        return self.num_rows * self.num_slots * self._shape.token_bytes

    def rows_allowed(self, slots: int) -> int:
        """Return how many rows of that many slots the memory bound allows, at least 1."""
        grown = self._grown_slots(slots)
        return max(1, min(self._max_rows, self._max_bytes // (grown * self._shape.token_bytes)))

    def _grown_slots(self, needed: int) -> int:
        if needed <= self.num_slots:
            return self.num_slots
        doubled = max(2 * self.num_slots, -(-needed // 64) * 64)
        return min(doubled, self._max_context)

    def assign(self, owners: Sequence[str], slots: int) -> list[int]:
        """Return a row for each owner (its own, a free one or the least recently used).

        Call with at most `rows_allowed(slots)` distinct owners.
        """
        self._fit(slots, set(owners))
        self._clock += 1
        for owner in owners:
            if owner in self._row_of:
                self._used[self._row_of[owner]] = self._clock
        # Free rows first (their stamp is 0), then by age; rows of this batch are stamped now.
        candidates = iter(np.lexsort((np.arange(self.num_rows), self._used)).tolist())
        for owner in owners:
            if owner in self._row_of:
                continue
            row = next(candidates)
            self.drop(row)
            self._owners[row], self._row_of[owner] = owner, row
            self._used[row] = self._clock
        return [self._row_of[owner] for owner in owners]

    def _fit(self, slots: int, wanted: set[str]) -> None:
        """Grow so that the wanted owners and the live sessions fit, as far as allowed."""
        live = {owner for owner in self._owners if owner is not None}
        needed = len(live | wanted)
        grown_slots, allowed = self._grown_slots(slots), self.rows_allowed(slots)
        rows = self.num_rows
        while rows < min(needed, allowed):
            rows = min(2 * rows, allowed)
        rows = min(rows, allowed)
        if rows == self.num_rows and grown_slots == self.num_slots:
            return
        for owner in wanted & live:
            self._used[self._row_of[owner]] = self._clock + 1
        kept = np.argsort(-self._used, kind="stable")[:rows]
        kept = np.sort(kept[self._used[kept] > 0])
        old_keys, old_values, old_ids = self.keys, self.values, self.ids
        old_lengths, old_used, old_owners = self.lengths, self._used, self._owners
        self._allocate(rows, grown_slots)
        count, width = len(kept), old_ids.shape[1]
        index = torch.from_numpy(kept).to(self._shape.device)
        self.keys[:, :count, :, :width] = old_keys[:, index]
        self.values[:, :count, :, :width] = old_values[:, index]
        self.ids[:count, :width] = old_ids[kept]
        self.lengths[:count], self._used[:count] = old_lengths[kept], old_used[kept]
        self._owners[:count] = [old_owners[row] for row in kept.tolist()]
        self._row_of = {owner: row for row, owner in enumerate(self._owners) if owner is not None}

    def line_up(self, rows: Sequence[int]) -> int:
        """Swap rows so that the given ones are consecutive; return the first.

        The window that already holds most of them is chosen.
        """
        inside = np.zeros(self.num_rows, dtype=np.int64)
        inside[list(rows)] = 1
        sums = np.convolve(inside, np.ones(len(rows), dtype=np.int64), mode="valid")
        start = int(sums.argmax())
        window = np.zeros(self.num_rows, dtype=bool)
        window[start : start + len(rows)] = True
        self.swap(np.flatnonzero(window & (inside == 0)), np.flatnonzero(~window & (inside == 1)))
        return start

    def swap(self, left: Ids, right: Ids) -> None:
        """Exchange rows pairwise."""
        if not len(left):
            return
        to, source = np.concatenate([left, right]), np.concatenate([right, left])
        depth = int(self.lengths[to].max()) + 1
        to_t = torch.from_numpy(to).to(self._shape.device)
        source_t = torch.from_numpy(source).to(self._shape.device)
        for tensor in (self.keys, self.values):
            tensor[:, to_t, :, :depth] = tensor[:, source_t, :, :depth]
        for array in (self.ids, self.lengths, self._used):
            array[to] = array[source]
        owners = [self._owners[row] for row in source.tolist()]
        for row, owner in zip(to.tolist(), owners, strict=True):
            self._owners[row] = owner
            if owner is not None:
                self._row_of[owner] = row

    def row_of(self, owner: str) -> int:
        """Return the row of an owner that has one."""
        return self._row_of[owner]

    def has_row(self, owner: str) -> bool:
        """Return whether the owner holds a row."""
        return owner in self._row_of

    def common_prefix(self, row: int, context: Ids) -> int:
        """Return how many leading ids of the context the row holds."""
        limit = min(int(self.lengths[row]), len(context))
        differs = np.flatnonzero(self.ids[row, :limit] != context[:limit])
        return int(differs[0]) if len(differs) else limit

    def best_donor(self, context: Ids) -> tuple[int, int]:
        """Return the row sharing the longest prefix with the context, and its length."""
        limit = min(self.num_slots, len(context))
        same = self.ids[:, :limit] == context[:limit]
        same &= np.arange(limit) < self.lengths[:, None]
        prefix = np.where(same.all(axis=1), limit, same.argmin(axis=1))
        row = int(prefix.argmax())
        return row, int(prefix[row])

    def copy_prefix(self, donor: int, row: int, length: int) -> None:
        """Make `row` hold the first `length` tokens of `donor`."""
        if donor != row:
            for tensor in (self.keys, self.values):
                tensor[:, row, :, :length] = tensor[:, donor, :, :length]
            self.ids[row, :length] = self.ids[donor, :length]
        self.lengths[row] = length

    def write(
        self,
        layer: int,
        rows_T: torch.Tensor,
        positions_T: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> None:
        """Store keys and values [T, kv_heads, head_dim] of tokens at (row, position)."""
        self.keys[layer][rows_T, :, positions_T] = keys
        self.values[layer][rows_T, :, positions_T] = values

    def window(
        self, layer: int, start: int, count: int, total: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views [count * kv_heads, total, head_dim] of consecutive rows."""
        span = slice(start, start + count)
        keys = self.keys[layer, span, :, :total].flatten(0, 1)
        return keys, self.values[layer, span, :, :total].flatten(0, 1)

    def select(
        self, layer: int, rows_B: torch.Tensor, total: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies [B * kv_heads, total, head_dim] of any rows."""
        keys = self.keys[layer, :, :, :total].index_select(0, rows_B).flatten(0, 1)
        return keys, self.values[layer, :, :, :total].index_select(0, rows_B).flatten(0, 1)

    def drop(self, row: int) -> None:
        """Free a row."""
        owner = self._owners[row]
        if owner is not None:
            del self._row_of[owner]
        self._owners[row] = None
        self.lengths[row] = self._used[row] = 0

    def scrub(self, row: int) -> None:
        """Free a row whose numbers cannot be trusted: a NaN must not reach its next owner."""
        self.drop(row)
        self.keys[:, row] = 0
        self.values[:, row] = 0

    def release(self, owner: str) -> None:
        """Free the row of an owner, if it has one."""
        if owner in self._row_of:
            self.drop(self._row_of[owner])

    def clear(self) -> None:
        """Free every row; the memory is kept."""
        for row in range(self.num_rows):
            self.drop(row)
