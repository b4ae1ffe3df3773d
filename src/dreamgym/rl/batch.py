"""Token sequences to padded tensors, in micro-batches by token budget.

Always padded on the right: with causal attention no sampled token ever looks at padding, so no
attention mask is needed at all, and lengths (not ids) say what is padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dreamgym.errors import ConfigError, DataError


class MaskedTokens(Protocol):
    """A token sequence and which of its tokens are trained."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The sequence."""
        ...

    @property
    def mask(self) -> tuple[int, ...]:
        """1 at trained tokens."""
        ...


GROUP_COST = 256
"""What another pass over the model costs besides its tokens, in tokens (small models, CPU)."""


@dataclass(frozen=True)
class TokenBatch:
    """Padded sequences: ids [B, T] and mask [B, T] (bool, true at trained tokens)."""

    ids: Tensor
    mask: Tensor
    num_real: int
    """Tokens that are not padding."""


def check_row(row: MaskedTokens) -> None:
    """Refuse a sequence that cannot be trained on."""
    if len(row.token_ids) != len(row.mask):
        raise DataError(
            f"token_ids and mask must have the same length; got {len(row.token_ids)} and "
            f"{len(row.mask)}"
        )
    if row.mask and row.mask[0]:
        raise DataError("the first token of a sequence cannot be trained: nothing predicts it")


def trim(row: MaskedTokens) -> int:
    """Return the length up to the last trained token; what follows teaches nothing."""
    for t in reversed(range(len(row.mask))):
        if row.mask[t]:
            return t + 1
    return 0


def micro_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Return indices grouped by similar length, each group of at most `batch_tokens` padded tokens.

    Longest first; the cuts are those with the least padding, a further group counting as
    `GROUP_COST` tokens.  A sequence longer than the budget gets a group of its own.

    >>> micro_batches([3, 9, 4, 8], 18)
    [[1, 3], [2, 0]]
    """
    if batch_tokens < 1:
        raise ConfigError(f"batch_tokens must be at least 1; got {batch_tokens}")
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    cost = [0.0] + [float("inf")] * len(order)
    start_of = [0] * (len(order) + 1)
    for start in range(len(order)):
        width = lengths[order[start]]
        for end in range(start + 1, len(order) + 1):
            padded = width * (end - start)
            if padded > batch_tokens and end > start + 1:
                break
            if cost[start] + padded + GROUP_COST < cost[end]:
                cost[end] = cost[start] + padded + GROUP_COST
                start_of[end] = start
    groups: list[list[int]] = []
    end = len(order)
    while end:
        groups.insert(0, order[start_of[end] : end])
        end = start_of[end]
    return groups


def collate(rows: Sequence[MaskedTokens], device: torch.device) -> TokenBatch:
    """Pad sequences on the right, each cut after its last trained token."""
    lengths = [trim(row) for row in rows]
    width = max(lengths)
    ids = [[*row.token_ids[:n], *([0] * (width - n))] for row, n in zip(rows, lengths, strict=True)]
    mask = [[*row.mask[:n], *([0] * (width - n))] for row, n in zip(rows, lengths, strict=True)]
    return TokenBatch(
        ids=torch.tensor(ids, dtype=torch.long, device=device),
        mask=torch.tensor(mask, dtype=torch.bool, device=device),
        num_real=sum(lengths),
    )


def pad_numbers(
    rows: Iterable[Sequence[float]], width: int, *, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return numbers per token as [B, width], cut or filled with 0 on the right."""
    padded = [[*row[:width], *([0.0] * (width - len(row)))] for row in rows]
    return torch.tensor(padded, dtype=dtype, device=device)


def padding_share(lengths: Sequence[int], groups: Sequence[Sequence[int]]) -> float:
    """Return the share of computed tokens that are padding."""
    padded = sum(max(lengths[i] for i in group) * len(group) for group in groups)
    return 1.0 - sum(lengths) / padded if padded else 0.0
