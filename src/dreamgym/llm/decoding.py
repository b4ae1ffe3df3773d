"""The two phases of answering a batch: read the contexts, then decode token by token.

Both work on consecutive pool rows, one per job.  Job i of a batch starts in row start + i;
decoding may swap rows so that unfinished jobs stay side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from dreamgym.errors import FaultError, ModelError
from dreamgym.llm.base import Finish, GenerateRequest, Generation
from dreamgym.llm.kv_pool import Ids, KVPool
from dreamgym.llm.llama import LlamaWeights, Ragged
from dreamgym.llm.sampling import Picked, Sampler

Flags = npt.NDArray[np.bool_]

PREFILL_TOKENS = 2048
"""Padded tokens per prefill pass: enough to fill the matrix units, small enough for the cache."""
SHARE_MIN = 16
"""Copying a prefix of another row pays off from about this many tokens."""
SHRINK_AT = 0.75
"""A decoding batch is compacted once this share of it, or less, is unfinished."""


class Reading:
    """Brings the contexts of a batch into the pool and returns the logits that follow them."""

    def __init__(self, weights: LlamaWeights, pool: KVPool, contexts: Sequence[Ids]) -> None:
        self._weights = weights
        self._pool = pool
        self._contexts = contexts
        self.computed_tokens = 0
        """Tokens that no cache and no other row had."""

    def run(self, start: int) -> torch.Tensor:
        """Return logits [B, V] after each context; job i lives in row start + i."""
        contexts = self._contexts
        logits = torch.empty(
            (len(contexts), self._weights.vocab_size),
            dtype=torch.float32,
            device=self._weights.device,
        )
        for job, context in enumerate(contexts):
            self._reuse(start + job, context)
        parents, depths = self._family(start)
        for depth in range(max(depths) + 1):
            todo = [job for job in range(len(contexts)) if depths[job] == depth]
            for job in todo:
                parent = parents[job]
                if parent is not None:
                    shared = self._shared(contexts[job], contexts[parent])
                    self._pool.copy_prefix(start + parent, start + job, shared)
            self._prefill(todo, start, logits)
        return logits

    def _reuse(self, row: int, context: Ids) -> None:
        """Truncate the row to what the context shares with it, or with a better row."""
        last = len(context) - 1  # the last token is always read: its logits are wanted
        own = min(self._pool.common_prefix(row, context), last)
        if last - own >= SHARE_MIN:
            donor, length = self._pool.best_donor(context)
            if min(length, last) >= own + SHARE_MIN:
                self._pool.copy_prefix(donor, row, min(length, last))
                return
        self._pool.lengths[row] = own

    def _family(self, start: int) -> tuple[list[int | None], list[int]]:
        """Return, per job, the earlier job of this batch to copy a prefix from, and the depth.

        A group of attempts at one task starts with the same prompt: it is read once.
        """
        parents: list[int | None] = []
        depths: list[int] = []
        readers: dict[bytes, list[int]] = {}
        for job, context in enumerate(self._contexts):
            held = int(self._pool.lengths[start + job])
            remaining = len(context) - 1 - held
            parent, shared = None, held + max(SHARE_MIN, remaining // 4)
            known = readers.setdefault(context[:SHARE_MIN].tobytes(), [])
            if remaining >= SHARE_MIN:
                for other in known:
                    common = self._shared(context, self._contexts[other])
                    if common >= shared:
                        parent, shared = other, common + 1
            parents.append(parent)
            depths.append(0 if parent is None else depths[parent] + 1)
            if remaining >= SHARE_MIN and (parent is None or len(context) - shared >= SHARE_MIN):
                known.append(job)
        return parents, depths

    @staticmethod
    def _shared(context: Ids, other: Ids) -> int:
        limit = min(len(context) - 1, len(other))
        differs = np.flatnonzero(context[:limit] != other[:limit])
        return int(differs[0]) if len(differs) else limit

    def _prefill(self, todo: list[int], start: int, logits: torch.Tensor) -> None:
        """Read what the rows of these jobs still miss, in passes of bounded size."""
        pool, device = self._pool, self._weights.device

        def missing(job: int) -> int:
            return len(self._contexts[job]) - int(pool.lengths[start + job])

        while todo:
            todo = sorted(todo, key=missing, reverse=True)
            width = min(missing(todo[0]), PREFILL_TOKENS)
            jobs = todo[: max(1, PREFILL_TOKENS // width)]
            rows = np.array(jobs, dtype=np.int64) + start
            held = pool.lengths[rows]
            counts = np.array([min(missing(job), width) for job in jobs], dtype=np.int64)
            ids = np.concatenate(
                [
                    self._contexts[job][begin : begin + count]
                    for job, begin, count in zip(jobs, held, counts, strict=True)
                ]
            )
            ragged = _ragged(rows, held, counts, device=device)
            pass_logits = self._weights.prefill(pool, torch.from_numpy(ids).to(device), ragged)
            pool.ids[np.repeat(rows, counts), _positions(held, counts)] = ids
            pool.lengths[rows] = held + counts
            self.computed_tokens += len(ids)
            logits[torch.tensor(jobs, device=device)] = pass_logits.float()
            todo = [job for job in todo if missing(job) > 0]


def _positions(held: Ids, counts: Ids) -> Ids:
    ends = np.cumsum(counts)
    within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    positions: Ids = np.repeat(held, counts) + within
    return positions


def _ragged(rows: Ids, held: Ids, counts: Ids, *, device: torch.device) -> Ragged:
    width = int(counts.max())
    positions = _positions(held, counts)
    slots = positions + np.repeat(np.arange(len(rows)) * width - held, counts)

    def on_device(array: Ids) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    return Ragged(
        rows=on_device(rows),
        token_rows=on_device(np.repeat(rows, counts)),
        positions=on_device(positions),
        slots=on_device(slots),
        last=on_device(np.cumsum(counts) - 1),
        width=width,
        total=int((held + counts).max()),
        is_fresh=not held.any(),
    )


class Transcript:
    """What every job of a batch has produced so far, and why it stopped."""

    def __init__(
        self, requests: Sequence[GenerateRequest], limits: Sequence[int], version: int
    ) -> None:
        self.ids: list[list[int]] = [[] for _ in requests]
        self._logprobs: list[list[float]] = [[] for _ in requests]
        self._finish: list[Finish | None] = [None] * len(requests)
        self._broken: set[int] = set()
        self._requests = requests
        self._limits = limits
        self._version = version

    def record(self, jobs: Ids, picked: Picked) -> Flags:
        """Append one token to each of these jobs that is unfinished; return which go on."""
        goes_on = np.zeros(len(jobs), dtype=bool)
        tokens, logprobs = picked.ids_B.tolist(), picked.logprobs_B.tolist()
        for slot, job in enumerate(jobs.tolist()):
            if self._finish[job] is not None:
                continue
            token, logprob = tokens[slot], logprobs[slot]
            self.ids[job].append(token)
            self._logprobs[job].append(logprob)
            if logprob != logprob:
                self._broken.add(job)
                self._finish[job] = "stop"
            elif token in self._requests[job].stop_ids:
                self._finish[job] = "stop"
            elif len(self.ids[job]) == self._limits[job]:
                self._finish[job] = "length"
            else:
                goes_on[slot] = True
        return goes_on

    def results(self) -> list[Generation | FaultError]:
        """Return the outcome of every job, in order; all must have stopped."""
        return [self._result(job) for job in range(len(self.ids))]

    def _result(self, job: int) -> Generation | FaultError:
        if job in self._broken:
            return ModelError(
                "the model produced log-probabilities that are not numbers; its weights have "
                "probably diverged: lower the learning rate or go back to a checkpoint"
            )
        return Generation(
            token_ids=tuple(self.ids[job]),
            logprobs=tuple(self._logprobs[job]),
            finish=self._finish[job] or "length",
            version=self._version,
        )


class Decoding:
    """Samples the continuation of every job of a batch whose contexts are in the pool."""

    def __init__(
        self,
        weights: LlamaWeights,
        pool: KVPool,
        requests: Sequence[GenerateRequest],
        *,
        limits: Sequence[int],
        version: int,
    ) -> None:
        self._weights = weights
        self._pool = pool
        self._requests = requests
        self._limits = limits
        self._transcript = Transcript(requests, limits, version)

    def run(self, start: int, logits: torch.Tensor) -> list[Generation | FaultError]:
        """Decode until every job has stopped; `logits` [B, V] follow the contexts."""
        pool, requests, device = self._pool, self._requests, self._weights.device
        job_at: Ids = np.arange(len(requests))  # which job the row start + i holds now
        count = len(requests)
        positions = pool.lengths[start : start + count].copy()
        sampler = Sampler(
            [request.temperature for request in requests],
            [request.seed for request in requests],
            self._limits,
            device=device,
        )
        for step in range(max(self._limits)):
            picked = sampler.pick(logits, step)
            goes_on = self._transcript.record(job_at[:count], picked)
            if not goes_on.any():
                break
            ids = picked.ids_B
            if goes_on.sum() <= SHRINK_AT * count:
                pool.lengths[start : start + count] = positions
                order = self._compact(job_at, start, goes_on)
                positions, goes_on, count = positions[order], goes_on[order], len(order)
                order_t = torch.from_numpy(order).to(device)
                ids = ids[order_t]
                sampler.keep(order_t)
            logits = self._weights.decode(
                pool,
                start,
                ids_B=ids,
                positions_B=torch.from_numpy(positions.copy()).to(device),
                total=int(positions.max()) + 1,
            )
            # A finished row computes on until the next compaction, into its next free slot.
            positions += goes_on
        self._settle(job_at, start)
        return self._transcript.results()

    def _compact(self, job_at: Ids, start: int, goes_on: Flags) -> Ids:
        """Swap unfinished rows to the front; return the old slot of each kept one."""
        kept = int(goes_on.sum())
        holes = np.flatnonzero(~goes_on[:kept])
        outside = np.flatnonzero(goes_on[kept:]) + kept
        self._pool.swap(start + holes, start + outside)
        job_at[holes], job_at[outside] = job_at[outside], job_at[holes]
        order: Ids = np.arange(kept)
        order[holes] = outside
        return order

    def _settle(self, job_at: Ids, start: int) -> None:
        """Note in the pool what each row holds: all sampled tokens but the last were read."""
        for slot, job in enumerate(job_at.tolist()):
            row, read = start + slot, self._transcript.ids[job][:-1]
            begin = len(self._requests[job].token_ids)
            self._pool.ids[row, begin : begin + len(read)] = read
            self._pool.lengths[row] = begin + len(read)
