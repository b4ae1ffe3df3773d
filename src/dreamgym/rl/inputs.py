"""What an update carries from samples to the objective: padded numbers per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dreamgym.errors import DataError
from dreamgym.rl.batch import TokenBatch, pad_numbers
from dreamgym.rl.forward import Scores
from dreamgym.rl.loss import BatchTotals
from dreamgym.rl.objective import LossInputs
from dreamgym.types import Sample


@dataclass(frozen=True)
class UpdateData:
    """Samples of one update with the log-probabilities that stay fixed during it."""

    samples: Sequence[Sample]
    old: Sequence[Sequence[float]]
    """Denominator of the ratio, per sample and token."""
    reference: Sequence[Sequence[float]] | None

    def inputs(
        self, picked: Sequence[int], batch: TokenBatch, scores: Scores, totals: BatchTotals
    ) -> LossInputs:
        """Return the objective's inputs for the samples `picked` into a micro-batch."""
        dtype, device = scores.logprobs.dtype, scores.logprobs.device

        def padded(rows: Sequence[Sequence[float]]) -> Tensor:
            return pad_numbers(rows, batch.ids.shape[1], dtype=dtype, device=device)

        mine = [self.samples[i] for i in picked]
        has_values = scores.values is not None
        return LossInputs(
            mask=batch.mask,
            logprobs=scores.logprobs,
            entropy=scores.entropy,
            old_logprobs=padded([self.old[i] for i in picked]),
            sampler_logprobs=padded([sample.logprobs for sample in mine]),
            advantages=padded([sample.advantages for sample in mine]),
            weights=torch.tensor([s.weight for s in mine], dtype=torch.float64, device=device),
            totals=totals,
            reference_logprobs=padded([self.reference[i] for i in picked])
            if self.reference
            else None,
            values=scores.values,
            old_values=padded([sample.values for sample in mine]) if has_values else None,
            returns=padded([sample.returns for sample in mine]) if has_values else None,
        )


def check_samples(samples: Sequence[Sample], *, needs_values: bool) -> None:
    """Refuse samples whose numbers do not line up with their tokens."""
    for sample in samples:
        size = len(sample.token_ids)
        if len(sample.logprobs) != size or len(sample.advantages) != size:
            raise DataError(
                f"sample of rollout {sample.rollout_id!r}: {size} tokens but "
                f"{len(sample.logprobs)} log-probabilities and {len(sample.advantages)} "
                "advantages; a policy update needs those recorded while sampling"
            )
        if needs_values and not len(sample.returns) == len(sample.values) == size:
            raise DataError(
                f"sample of rollout {sample.rollout_id!r} has no values and returns; PPO attaches "
                "them, other algorithms must not use a value loss"
            )
