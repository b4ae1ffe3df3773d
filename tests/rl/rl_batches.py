"""Random ragged batches in float64: rows of different length with observations in between."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from dreamgym.rl.loss import BatchTotals
from dreamgym.rl.objective import LossInputs
from dreamgym.seeds import derive_random

NUM_BATCHES = 1000
TOLERANCE = 1e-10


@dataclass(frozen=True)
class Batch:
    """Tensors [B, T]; under the mask stand arbitrary finite numbers."""

    mask: Tensor
    logprobs: Tensor
    old: Tensor
    reference: Tensor
    advantages: Tensor
    values: Tensor
    old_values: Tensor
    returns: Tensor
    token_rewards: Tensor
    """0 at tokens that were not sampled."""
    rewards: list[list[float]]
    """Per group and attempt; the rows in order."""

    @property
    def groups(self) -> list[int]:
        """Group of each row."""
        return [g for g, group in enumerate(self.rewards) for _ in group]


def random_batch(seed: int, *, group_size: int | None = None) -> Batch:
    """Return a batch of 1 to 3 groups of 2 to 4 attempts, or of `group_size`."""
    rng = derive_random("batch", seed)
    graded = [0.0, 0.25, 0.5, 1.0]
    rewards = [
        [rng.choice(graded) for _ in range(group_size or rng.randint(2, 4))]
        for _ in range(rng.randint(1, 3))
    ]
    rows, width = sum(map(len, rewards)), rng.randint(2, 14)
    mask = torch.tensor([_row_mask(rng, width) for _ in range(rows)])
    generator = torch.Generator().manual_seed(rng.randrange(1 << 31))

    def noise(scale: float) -> Tensor:
        return scale * torch.randn(rows, width, generator=generator, dtype=torch.float64)

    old = -2 * noise(1.0).abs()
    values = noise(0.5)
    return Batch(
        mask=mask,
        logprobs=old + noise(0.3),
        old=old,
        reference=old + noise(0.3),
        advantages=noise(1.0),
        values=values + noise(0.2),
        old_values=values,
        returns=noise(0.7),
        token_rewards=torch.where(mask, noise(0.5), 0.0),
        rewards=rewards,
    )


def _row_mask(rng: Random, width: int) -> list[bool]:
    length = rng.randint(1, width)
    row = [rng.random() < 0.6 for _ in range(length)]
    row[rng.randrange(length)] = True
    return row + [False] * (width - length)


def loss_inputs(batch: Batch, logprobs: Tensor) -> LossInputs:
    """Return the objective's inputs, recorded log-probabilities taken as the old ones."""
    rows = batch.mask.shape[0]
    return LossInputs(
        mask=batch.mask,
        logprobs=logprobs,
        entropy=torch.zeros_like(logprobs),
        old_logprobs=batch.old,
        sampler_logprobs=batch.old,
        advantages=batch.advantages,
        weights=torch.ones(rows, dtype=torch.float64),
        totals=BatchTotals(tokens=float(batch.mask.sum()), weight=float(rows)),
        reference_logprobs=batch.reference,
    )


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    """Return the derivative of a loss by a leaf."""
    (found,) = torch.autograd.grad(loss, leaf)
    return found


def worst(found: Tensor, wanted: Tensor) -> float:
    """Return the largest absolute difference."""
    return float((found.detach() - wanted.detach()).abs().max())
