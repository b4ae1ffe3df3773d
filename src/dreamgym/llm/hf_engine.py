"""Generation for any causal language model, through its own forward pass.

Correct for every architecture that Hugging Face caches keys and values for, and slower than
`KVEngine`: contexts are read anew every turn and finished sequences stay in the batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dreamgym.errors import ConfigError, FaultError
from dreamgym.llm.base import GenerateRequest, Generation
from dreamgym.llm.decoding import Transcript
from dreamgym.llm.engine import BatchedEngine
from dreamgym.llm.sampling import Sampler


class HFEngine(BatchedEngine):
    """Batched sampling over `model(...)`; always uses the model's current weights."""

    # Any: causal language models have no common typed base.
    def __init__(self, model: Any, *, max_context: int | None = None, max_batch: int = 64) -> None:
        if max_batch < 1:
            raise ConfigError(f"max_batch must be at least 1; got {max_batch}")
        window = max_context or getattr(model.config, "max_position_embeddings", None)
        if not window:
            raise ConfigError("the model does not state its window; pass max_context")
        super().__init__(vocab_size=model.config.vocab_size, max_context=window)
        self._model = model
        self._max_batch = max_batch
        parameters = inspect.signature(model.forward).parameters
        self._extra = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}

    def sync(self, version: int | None = None) -> None:
        """Note that the model's weights have changed; there is no cache to drop."""
        self.set_version(self.version + 1 if version is None else version)

    def set_version(self, version: int) -> None:
        """Name the weights in use."""
        self.version = version

    def run_batch(self, requests: Sequence[GenerateRequest]) -> list[Generation | FaultError]:
        """Answer requests that all fit the window, in order."""
        was_training = self._model.training
        self._model.eval()
        try:
            results: list[Generation | FaultError] = []
            for begin in range(0, len(requests), self._max_batch):
                results += self._run_padded(requests[begin : begin + self._max_batch])
            return results
        finally:
            self._model.train(was_training)

    @torch.inference_mode()
    def _run_padded(self, requests: Sequence[GenerateRequest]) -> list[Generation | FaultError]:
        limits = [self.limit(request) for request in requests]
        device = self._model.device
        transcript = Transcript(requests, limits, self.version)
        sampler = Sampler(
            [request.temperature for request in requests],
            [request.seed for request in requests],
            limits,
            device=device,
        )
        ids, mask = _left_padded([request.token_ids for request in requests])
        ids, mask = ids.to(device), mask.to(device)
        positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
        cache = None
        for step in range(max(limits)):
            output = self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                **self._extra,
            )
            cache = output.past_key_values
            picked = sampler.pick(output.logits[:, -1], step)
            if not transcript.record(np.arange(len(requests)), picked).any():
                break
            ids = picked.ids_B[:, None]
            positions = positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones((len(requests), 1))], dim=1)
        return transcript.results()


def _left_padded(contexts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask [B, longest]; the mask comes from lengths, never from a pad id."""
    width = max(len(context) for context in contexts)
    ids = torch.zeros((len(contexts), width), dtype=torch.long)
    mask = torch.zeros((len(contexts), width), dtype=torch.long)
    for row, context in enumerate(contexts):
        ids[row, width - len(context) :] = torch.tensor(list(context))
        mask[row, width - len(context) :] = 1
    return ids, mask
