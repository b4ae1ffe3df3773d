"""Sampling one token per sequence, the same whoever shares the batch.

The random number of token t of a request comes from (request seed, t) only: a counter-based
Philox stream keyed by the seed gives one uniform number per token, and the token is found by
inverting the cumulative distribution.  Shapes: B sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

BELOW_ONE = 1.0 - 2.0**-23
"""Largest draw: its product with a float32 total stays below that total."""


class Picked(NamedTuple):
    """One sampled token per sequence."""

    ids_B: torch.Tensor
    logprobs_B: torch.Tensor


def uniforms(seed: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the first `count` uniform numbers in [0, 1) of a request's stream.

    A longer stream starts with the shorter one.
    """
    stream = np.random.Generator(np.random.Philox(key=seed % 2**64))
    return np.minimum(stream.random(count), BELOW_ONE).astype(np.float32)


class Sampler:
    """The temperatures and random numbers of the sequences of one batch.

    Temperature 0 is greedy; its log-probabilities are those of temperature 1.
    """

    def __init__(
        self,
        temperatures: Sequence[float],
        seeds: Sequence[int],
        max_new_tokens: Sequence[int],
        *,
        device: torch.device,
    ) -> None:
        greedy = torch.tensor([value == 0 for value in temperatures], device=device)
        self._greedy_B = greedy
        scale = [1.0 / value if value else 1.0 for value in temperatures]
        self._scale_B = torch.tensor(scale, dtype=torch.float32, device=device)
        numbers = np.zeros((len(seeds), max(max_new_tokens)), dtype=np.float32)
        for row, (seed, count) in enumerate(zip(seeds, max_new_tokens, strict=True)):
            if temperatures[row]:
                numbers[row, :count] = uniforms(seed, count)
        self._uniforms_BT = torch.from_numpy(numbers).to(device)
        self._set_modes()

    def _set_modes(self) -> None:
        self._any_greedy = bool(self._greedy_B.any())
        self._all_greedy = bool(self._greedy_B.all())
        self._is_scaled = bool((self._scale_B != 1.0).any())

    def keep(self, order: torch.Tensor) -> None:
        """Keep only the sequences `order` points at, in that order."""
        self._greedy_B = self._greedy_B[order]
        self._scale_B = self._scale_B[order]
        self._uniforms_BT = self._uniforms_BT[order]
        self._set_modes()

    def pick(self, logits_BV: torch.Tensor, step: int) -> Picked:
        """Sample token number `step` of every sequence."""
        logits = logits_BV.float()
        if self._is_scaled:
            logits = logits * self._scale_B[:, None]
        logprobs = torch.log_softmax(logits, dim=-1)
        if self._all_greedy:
            ids = logits.argmax(dim=-1)
        else:
            ids = invert(logprobs, self._uniforms_BT[:, step])
            if self._any_greedy:
                ids = torch.where(self._greedy_B, logits.argmax(dim=-1), ids)
        return Picked(ids, logprobs.gather(1, ids[:, None])[:, 0])


def invert(logprobs_BV: torch.Tensor, uniforms_B: torch.Tensor) -> torch.Tensor:
    """Return the first id whose cumulative probability exceeds the uniform number."""
    cumulative = logprobs_BV.exp().cumsum(dim=-1)
    target = uniforms_B[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, target, right=True)[:, 0]
    return ids.clamp_(max=logprobs_BV.shape[1] - 1)
