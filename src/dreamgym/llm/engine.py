"""Batched generation with a key/value cache that lives across the turns of a session.

`KVEngine` decodes Llama-architecture models: a request gives its whole context, and only what
follows the longest prefix already cached (by its own session, by another session, or by another
request of the batch) is computed.  `make_engine` picks it where it can run the model and
`HFEngine` elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dreamgym.errors import ConfigError, FaultError
from dreamgym.llm.base import GenerateRequest, Generation, TokenEngine
from dreamgym.llm.batching import Gatherer
from dreamgym.llm.decoding import Decoding, Reading
from dreamgym.llm.kv_pool import KVPool, KVShape
from dreamgym.llm.llama import LlamaWeights, unsupported_reason


class BatchedEngine(ABC):
    """The asynchronous half of an engine: checks requests, gathers them, answers misfits."""

    def __init__(self, *, vocab_size: int, max_context: int) -> None:
        self.version = 0
        self.max_context = max_context
        self._vocab_size = vocab_size
        self._gatherer: Gatherer[GenerateRequest, Generation] = Gatherer(self._run_fitting)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue the context; concurrent calls become one batch.

        A context that leaves no room in the window comes back empty with finish "length".

        Raises:
            ConfigError: for an empty context, an unknown id or a senseless limit.
            ModelError: when the model fails or produces numbers that are not finite.
        """
        self._check(request)
        return await self._gatherer.submit(request)

    def release(self, session: str) -> None:
        """Drop the cache of a session; unknown sessions are fine."""
        del session

    @abstractmethod
    def run_batch(self, requests: Sequence[GenerateRequest]) -> list[Generation | FaultError]:
        """Answer requests that all fit the window, in order."""

    def limit(self, request: GenerateRequest) -> int:
        """Return how many tokens the request may get, after the window."""
        return min(request.max_new_tokens, self.max_context - len(request.token_ids))

    def _run_fitting(self, requests: Sequence[GenerateRequest]) -> list[Generation | FaultError]:
        fitting = [request for request in requests if self.limit(request) > 0]
        answers = iter(self.run_batch(fitting) if fitting else ())
        full = Generation(token_ids=(), logprobs=(), finish="length", version=self.version)
        return [next(answers) if self.limit(request) > 0 else full for request in requests]

    def _check(self, request: GenerateRequest) -> None:
        ids = request.token_ids
        if not len(ids):
            raise ConfigError("token_ids is empty; a context needs at least one token")
        if not (min(ids) >= 0 and max(ids) < self._vocab_size):
            raise ConfigError(
                f"token ids must be in [0, {self._vocab_size}); got {min(ids)}..{max(ids)}; "
                "use the tokenizer of this model"
            )
        if request.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens must be at least 1; got {request.max_new_tokens}")
        if not 0 <= request.temperature < float("inf"):
            raise ConfigError(f"temperature must be 0 or more; got {request.temperature}")


class KVEngine(BatchedEngine):
    """Our own batched decoding of Llama-architecture models."""

    def __init__(
        self,
        model: Any,
        *,
        max_context: int | None = None,
        max_batch: int = 64,
        max_sessions: int = 256,
        cache_bytes: int = 2 * 1024**3,
        precision: str = "auto",
    ) -> None:
        reason = unsupported_reason(model)
        if reason:
            raise ConfigError(f"KVEngine cannot run this model: {reason}; use make_engine(model)")
        if max_batch < 1:
            raise ConfigError(f"max_batch must be at least 1; got {max_batch}")
        window = max_context or model.config.max_position_embeddings
        super().__init__(vocab_size=model.config.vocab_size, max_context=window)
        self._model = model
        self._max_batch = max_batch
        weights = LlamaWeights(model, max_context=window, precision=precision)
        self._weights = weights
        self.pool = KVPool(
            KVShape(
                weights.num_layers,
                weights.kv_heads,
                weights.head_dim,
                weights.dtype,
                weights.device,
            ),
            max_rows=max(max_sessions, max_batch),
            max_context=window,
            max_bytes=cache_bytes,
        )
        self.prefilled_tokens = 0
        """Tokens computed by prefill since the start: what caching did not save."""

    def sync(self, version: int | None = None) -> None:
        """Take over the model's current weights; every cache of the old ones is dropped."""
        self._weights.load(self._model)
        self.set_version(self.version + 1 if version is None else version)

    def set_version(self, version: int) -> None:
        """Name the weights in use and drop all caches."""
        self.version = version
        self.pool.clear()

    def release(self, session: str) -> None:
        """Drop the cache of a session."""
        copy = 0
        while self.pool.has_row(_owner(session, copy)):
            self.pool.release(_owner(session, copy))
            copy += 1

    def run_batch(self, requests: Sequence[GenerateRequest]) -> list[Generation | FaultError]:
        """Answer requests that all fit the window, in order."""
        results: list[Generation | FaultError] = []
        while len(results) < len(requests):
            rest = requests[len(results) : len(results) + self._max_batch]
            slots = max(len(request.token_ids) + self.limit(request) for request in rest)
            results += self._run_rows(rest[: self.pool.rows_allowed(slots)], slots)
        return results

    @torch.inference_mode()
    def _run_rows(
        self, requests: Sequence[GenerateRequest], slots: int
    ) -> list[Generation | FaultError]:
        owners = _distinct_owners(requests)
        start = self.pool.line_up(self.pool.assign(owners, slots))
        order = sorted(range(len(owners)), key=lambda job: self.pool.row_of(owners[job]))
        jobs = [requests[job] for job in order]
        limits = [self.limit(job) for job in jobs]
        try:
            contexts = [np.asarray(job.token_ids, dtype=np.int64) for job in jobs]
            reading = Reading(self._weights, self.pool, contexts)
            logits = reading.run(start)
            self.prefilled_tokens += reading.computed_tokens
            decoding = Decoding(self._weights, self.pool, jobs, limits=limits, version=self.version)
            results = decoding.run(start, logits)
        except Exception:
            for row in range(start, start + len(jobs)):
                self.pool.scrub(row)
            raise
        for job, result in zip(order, results, strict=True):
            if isinstance(result, FaultError):
                self.pool.scrub(self.pool.row_of(owners[job]))
        return [result for _, result in sorted(zip(order, results, strict=True), key=_first)]


def _first(pair: tuple[int, object]) -> int:
    return pair[0]


def _owner(session: str, copy: int) -> str:
    return f"{copy}/{session}"


def _distinct_owners(requests: Sequence[GenerateRequest]) -> list[str]:
    """Return a row name per request: requests of one session in one batch get a row each.

    They share what the session has cached, by copying, as any two sessions do.
    """
    seen: Counter[str] = Counter()
    owners = []
    for request in requests:
        owners.append(_owner(request.session, seen[request.session]))
        seen[request.session] += 1
    return owners


def make_engine(model: Any, *, max_context: int | None = None, max_batch: int = 64) -> TokenEngine:
    """Return the fastest engine that can run the model: `KVEngine`, else `HFEngine`."""
    if not unsupported_reason(model):
        return KVEngine(model, max_context=max_context, max_batch=max_batch)
    from dreamgym.llm.hf_engine import HFEngine

    return HFEngine(model, max_context=max_context, max_batch=max_batch)
