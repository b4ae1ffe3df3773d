"""Log-probabilities of trained tokens, computing the head only where it is needed.

The trunk runs on every token, the head (often the most expensive matrix of a small model) only on
hidden states that predict a trained token.  Suffix `_N`: trained tokens of a micro-batch, in row
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dreamgym.errors import ConfigError
from dreamgym.rl.batch import TokenBatch

MAX_LOGITS = 1 << 26
"""Logits held at once (tokens x vocabulary); above it they are recomputed in the backward pass."""


@dataclass(frozen=True)
class Scores:
    """Per token [B, T]; 0 at tokens that are not trained."""

    logprobs: Tensor
    entropy: Tensor
    """Without gradient."""
    values: Tensor | None


class Scorer:
    """Scores trained tokens under a causal language model of transformers."""

    def __init__(self, model: nn.Module, *, temperature: float, precision: str) -> None:
        wrapped: Any = model  # transformers and peft are not typed
        causal = wrapped.get_base_model() if hasattr(wrapped, "get_base_model") else wrapped
        self._causal: Any = causal
        self._trunk: Any = causal.base_model
        self._head: Any = causal.get_output_embeddings()
        self._temperature = temperature
        self._precision = precision
        self._output_map = self._find_output_map()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self._causal.parameters()).device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """Type of scores: the model's, but at least float32."""
        return torch.promote_types(next(self._causal.parameters()).dtype, torch.float32)

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return int(self._causal.config.get_text_config().hidden_size)

    def score(self, batch: TokenBatch, value_head: nn.Module | None, detach_trunk: bool) -> Scores:
        """Return log-probabilities, entropies and (with a value head) values of trained tokens."""
        hidden_N, targets_N = self._states(batch)
        logprobs_N, entropy_N = self._head_scores(hidden_N, targets_N)
        values = None
        if value_head is not None:
            states = hidden_N.detach() if detach_trunk else hidden_N
            # the state *before* a token predicts both the token and the return from there
            values = self._scatter(value_head(states.to(self.dtype))[:, 0], batch.mask)
        return Scores(
            logprobs=self._scatter(logprobs_N, batch.mask),
            entropy=self._scatter(entropy_N, batch.mask),
            values=values,
        )

    def nll_sum(self, batch: TokenBatch) -> Tensor:
        """Return the summed negative log-likelihood (nats) of trained tokens, temperature 1."""
        hidden_N, targets_N = self._states(batch)
        total = hidden_N.new_zeros((), dtype=self.dtype)
        for start, end in self._chunks(len(targets_N)):
            args = (hidden_N[start:end], targets_N[start:end])
            total = total + self._maybe_checkpoint(self._chunk_nll, len(targets_N), *args)
        return total

    def _states(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return the hidden states that predict trained tokens, and those tokens."""
        inputs, wanted = batch.ids[:, :-1], batch.mask[:, 1:]
        with self._autocast():
            # no attention mask: right padding under causal attention is never looked at
            hidden = self._trunk(input_ids=inputs, use_cache=False)[0]
        return hidden[wanted], batch.ids[:, 1:][wanted]

    def _head_scores(self, hidden_N: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        parts = [
            self._maybe_checkpoint(
                self._chunk_scores, len(targets_N), hidden_N[a:b], targets_N[a:b]
            )
            for a, b in self._chunks(len(targets_N))
        ]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def _chunks(self, count: int) -> list[tuple[int, int]]:
        size = max(1, MAX_LOGITS // self._vocabulary)
        return [(a, min(a + size, count)) for a in range(0, max(count, 1), size)]

    def _maybe_checkpoint(self, function: Any, count: int, *args: Tensor) -> Any:
        if count * self._vocabulary <= MAX_LOGITS or not torch.is_grad_enabled():
            return function(*args)
        return checkpoint(function, *args, use_reentrant=False)

    @property
    def _vocabulary(self) -> int:
        return int(self._causal.config.get_text_config().vocab_size)

    def _logits(self, hidden_N: Tensor) -> Tensor:
        with self._autocast():
            logits = self._output_map(self._head(hidden_N))
        return logits.to(self.dtype)

    def _chunk_scores(self, hidden_N: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        # the same division as in sampling; without it the ratio is wrong before any update
        logits = self._logits(hidden_N) / self._temperature
        log_probabilities = torch.log_softmax(logits, dim=-1)
        with torch.no_grad():
            entropy_N = -(log_probabilities.exp() * log_probabilities).sum(-1)
        return log_probabilities.gather(-1, targets_N[:, None])[:, 0], entropy_N

    def _chunk_nll(self, hidden_N: Tensor, targets_N: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self._logits(hidden_N), targets_N, reduction="sum")

    def _scatter(self, numbers_N: Tensor, mask: Tensor) -> Tensor:
        full = numbers_N.new_zeros(mask.shape)
        return full.masked_scatter(mask, numbers_N)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self._precision == "bfloat16"
        )

    def _find_output_map(self) -> Callable[[Tensor], Tensor]:
        """Return what the model does to head(hidden): nothing, or one of three known rescalings."""
        config = self._causal.config.get_text_config()
        ids = torch.arange(min(8, self._vocabulary), device=self.device)[None]
        was_training = self._causal.training
        self._causal.eval()
        with torch.no_grad():
            raw = self._head(self._trunk(input_ids=ids, use_cache=False)[0])
            wanted = self._causal(input_ids=ids, use_cache=False).logits
        self._causal.train(was_training)
        for output_map in _output_maps(config):
            if torch.allclose(output_map(raw), wanted, rtol=1e-2, atol=1e-3):
                return output_map
        raise ConfigError(
            f"the logits of {type(self._causal).__name__} are not its head applied to its last "
            "hidden state, in any way known here; use a Llama-, Qwen-, Gemma-, Granite- or "
            "Cohere-like model"
        )


def _output_maps(config: Any) -> list[Callable[[Tensor], Tensor]]:
    """Return the candidate maps from head output to logits, the identity first."""
    maps: list[Callable[[Tensor], Tensor]] = [_identity]
    cap = getattr(config, "final_logit_softcapping", None)
    divisor = getattr(config, "logits_scaling", None)
    factor = getattr(config, "logit_scale", None)
    if cap:
        maps.append(lambda raw: torch.tanh(raw / cap) * cap)
    if divisor:
        maps.append(lambda raw: raw / divisor)
    if factor:
        maps.append(lambda raw: raw * factor)
    return maps


def _identity(raw: Tensor) -> Tensor:
    return raw
