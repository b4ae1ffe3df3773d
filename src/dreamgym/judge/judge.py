"""Pairs of a real and a dreamt trajectory, judged twice with their places exchanged."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from dreamgym.errors import DataError, ModelError
from dreamgym.judge.rubrics import (
    RUBRICS,
    JudgeProblem,
    Scores,
    Slot,
    TextLimits,
    judge_messages,
    nonce,
    read_verdict,
    trajectory_text,
)
from dreamgym.llm.base import ChatModel, Message
from dreamgym.llm.budget import finish_all
from dreamgym.seeds import derive_random, derive_seed
from dreamgym.stats import Mean, mean_over_seeds
from dreamgym.types import Rollout

MAX_TOKENS = 400


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A real and a dreamt trajectory, of one task where there are such."""

    real: Rollout
    dream: Rollout


class PairScores(msgspec.Struct, frozen=True, kw_only=True):
    """The points of one pair, over both orders; None: no usable verdict in one of them."""

    real_id: str
    dream_id: str
    is_same_task: bool
    real: dict[str, float] | None
    dream: dict[str, float] | None
    first_minus_second: float | None
    """Mean points of what stood first minus those of what stood second, over both orders."""


class RubricResult(msgspec.Struct, frozen=True, kw_only=True):
    """One rubric over all scored pairs."""

    real: Mean
    dream: Mean
    difference: Mean
    """Dream minus real, pair by pair."""


class JudgeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge said."""

    judge: str
    warnings: tuple[str, ...]
    num_pairs: int
    num_scored: int
    num_same_task: int
    num_unscorable: int
    """Pairs without a usable verdict in both orders; left out, never counted as 0."""
    rubrics: dict[str, RubricResult]
    position_bias: Mean | None
    """Points that standing first is worth; far from 0 the judge should not be believed."""
    counters: dict[str, int]
    pairs: tuple[PairScores, ...]


def make_pairs(
    real: Sequence[Rollout], dream: Sequence[Rollout], *, count: int, seed: int
) -> list[Pair]:
    """Return up to `count` pairs, of the same task first, the rest at random.

    No trajectory is used twice.  Raises `DataError` when one side has no usable trajectory.
    """
    sides = {}
    for name, rollouts in (("real", real), ("dreamt", dream)):
        usable = [r for r in rollouts if r.transitions and not r.is_fault]
        if not usable:
            raise DataError(f"there is no usable {name} trajectory to judge")
        derive_random(seed, "judge", name).shuffle(usable)
        sides[name] = usable
    by_task: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in sides["real"]:
        by_task[rollout.task.id].append(rollout)
    pairs: list[Pair] = []
    rest: list[Rollout] = []
    for rollout in sides["dreamt"]:
        same = by_task[rollout.task.id]
        if same:
            pairs.append(Pair(real=same.pop(), dream=rollout))
        else:
            rest.append(rollout)
    left = [rollout for rollouts in by_task.values() for rollout in rollouts]
    pairs += [Pair(real=r, dream=d) for r, d in zip(left, rest, strict=False)]
    return pairs[:count]


def own_model_warnings(judge: str, others: Sequence[str]) -> tuple[str, ...]:
    """Return a warning for each model that would be judging itself."""
    return tuple(
        f"the judge {judge!r} also wrote what it judges; its points favour itself, so use another "
        "model"
        for other in sorted(set(others))
        if _same_model(judge, other)
    )


def _same_model(first: str, second: str) -> bool:
    """Return whether two names mean one model: equal but for case and the organisation."""
    return first.casefold().rpartition("/")[2] == second.casefold().rpartition("/")[2]


class Judge:
    """Scores pairs through any `ChatModel`."""

    def __init__(
        self,
        chat: ChatModel,
        *,
        seed: int = 0,
        attempts: int = 3,
        limits: TextLimits | None = None,
        max_concurrent: int = 8,
    ) -> None:
        self.chat = chat
        self.counters: Counter[str] = Counter()
        self._seed = seed
        self._attempts = attempts
        self._limits = limits or TextLimits()
        self._max_concurrent = max_concurrent

    async def judge(
        self,
        pairs: Sequence[Pair],
        *,
        own_models: Sequence[str] = (),
        on_pair: Callable[[], object] = lambda: None,
    ) -> JudgeResult:
        """Score every pair in both orders; `own_models` wrote the trajectories."""
        gate = asyncio.Semaphore(self._max_concurrent)

        async def one(pair: Pair) -> PairScores:
            async with gate:
                found = await self._pair(pair)
            on_pair()
            return found

        scores = await finish_all(one(pair) for pair in pairs)
        return _result(
            scores,
            judge=self.chat.name,
            warnings=own_model_warnings(self.chat.name, own_models),
            counters=dict(self.counters),
        )

    async def _pair(self, pair: Pair) -> PairScores:
        real = trajectory_text(pair.real, self._limits)
        dream = trajectory_text(pair.dream, self._limits)
        one = await self._ask(real, dream)
        two = await self._ask(dream, real)
        same = pair.real.task.id == pair.dream.task.id
        blank = PairScores(
            real_id=pair.real.id,
            dream_id=pair.dream.id,
            is_same_task=same,
            real=None,
            dream=None,
            first_minus_second=None,
        )
        if one is None or two is None:
            return blank
        first = [*one["A"].as_dict().values(), *two["A"].as_dict().values()]
        second = [*one["B"].as_dict().values(), *two["B"].as_dict().values()]
        return msgspec.structs.replace(
            blank,
            real=_average(one["A"], two["B"]),
            dream=_average(one["B"], two["A"]),
            first_minus_second=fmean(first) - fmean(second),
        )

    async def _ask(self, first: str, second: str) -> dict[Slot, Scores] | None:
        """Return the points of a question, None when no usable verdict came."""
        key = nonce(self._seed, (first, second))
        asked = messages = judge_messages(first, second, key)
        for attempt in range(self._attempts):
            self.counters["judge/calls"] += 1
            try:
                reply = await self.chat.reply(
                    asked,
                    seed=derive_seed(self._seed, "judge", key, attempt),
                    max_tokens=MAX_TOKENS,
                    # A greedy judge would repeat an unusable answer.
                    temperature=0.0 if attempt == 0 else 0.7,
                )
            except ModelError:
                self.counters["judge/faults"] += 1
                return None  # the endpoint has already retried what may pass
            try:
                if reply.finish == "length":
                    raise JudgeProblem("the reply was cut at the token limit")
                return read_verdict(reply.text, key)
            except JudgeProblem as problem:
                self.counters["judge/unreadable"] += 1
                complaint = Message("user", f"unusable: {problem}. answer again.")
                asked = [*messages, Message("assistant", reply.text), complaint]
        self.counters["judge/unscorable"] += 1
        return None


def _average(one: Scores, two: Scores) -> dict[str, float]:
    first, second = one.as_dict(), two.as_dict()
    return {name: (first[name] + second[name]) / 2 for name in RUBRICS}


def _result(
    scores: Sequence[PairScores],
    *,
    judge: str,
    warnings: tuple[str, ...],
    counters: dict[str, int],
) -> JudgeResult:
    real = [score.real for score in scores if score.real is not None]
    dream = [score.dream for score in scores if score.dream is not None]
    biases = [s.first_minus_second for s in scores if s.first_minus_second is not None]
    rubrics = {}
    for name in RUBRICS if real else ():
        ours, theirs = [one[name] for one in dream], [one[name] for one in real]
        rubrics[name] = RubricResult(
            real=mean_over_seeds(theirs),
            dream=mean_over_seeds(ours),
            difference=mean_over_seeds([a - b for a, b in zip(ours, theirs, strict=True)]),
        )
    return JudgeResult(
        judge=judge,
        warnings=warnings,
        num_pairs=len(scores),
        num_scored=len(real),
        num_same_task=sum(score.is_same_task for score in scores),
        num_unscorable=len(scores) - len(real),
        rubrics=rubrics,
        position_bias=mean_over_seeds(biases) if biases else None,
        counters=counters,
        pairs=tuple(scores),
    )
