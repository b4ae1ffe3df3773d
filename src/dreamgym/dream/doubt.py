"""What becomes of answers the experience model is not sure of, and of successes it claims.

Confidence is the model's own: the mean probability of the reply's tokens where it reports them,
else the share of further samples that say the same.  A doubtful step is kept, masked (its episode
is not trained on), verified by a majority of samples, or asked of the real environment, where
every step is counted against a budget.  A claimed success can need a second vote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from dreamgym.dream.experience import Answer
from dreamgym.dream.reply import DreamReply
from dreamgym.envs.base import StateReader, Suite
from dreamgym.errors import ConfigError
from dreamgym.types import Task

Policy = Literal["keep", "mask", "verify", "ask_real"]
Ask = Callable[[int, float], Awaitable[Answer]]
"""Takes the number of the sample and a temperature, returns another answer to the same question."""


class DoubtConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an answer is doubtful, and what is done then."""

    policy: Policy = "keep"
    """`mask`: the episode becomes unscorable; `verify`: a majority of samples decides, without one
    the step is masked; `ask_real`: the real environment answers while its budget lasts, then the
    step is masked."""
    threshold: float = 0.8
    """Confidence below which an answer is doubtful."""
    samples: int = 3
    """Further answers asked, for a majority and where the model reports no probabilities."""
    temperature: float = 0.7
    """Sampling temperature of further answers."""
    real_budget: int = 0
    """Real transitions `ask_real` may use in all."""
    second_vote: bool = False
    """A claimed success also has to be claimed by a sampled answer."""

    def __post_init__(self) -> None:
        """Refuse policies that could do nothing."""
        if not 0.0 <= self.threshold <= 1.0:
            raise ConfigError(f"doubt.threshold must be in [0, 1]; got {self.threshold}")
        if self.samples < 1:
            raise ConfigError(f"doubt.samples must be at least 1; got {self.samples}")
        if self.temperature <= 0:
            raise ConfigError(
                f"doubt.temperature must be above 0, or every sample is the same; "
                f"got {self.temperature}"
            )
        if self.policy == "ask_real" and self.real_budget < 1:
            raise ConfigError("doubt.policy ask_real needs real transitions; set doubt.real_budget")


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """An answer after doubt was settled."""

    answer: Answer
    flags: tuple[str, ...] = ()
    is_masked: bool = False
    """The episode cannot be scored any more."""


class Doubt:
    """Settles doubtful answers of all episodes of a dream; counts real transitions it used."""

    def __init__(
        self, config: DoubtConfig, reader: StateReader, *, real: Suite | None = None
    ) -> None:
        """`real` answers where the policy is `ask_real`; raises `ConfigError` if it is missing."""
        if config.policy == "ask_real" and real is None:
            raise ConfigError("doubt.policy ask_real needs the real suite, and this dream has none")
        self.config = config
        self.counters: Counter[str] = Counter()
        self.real_transitions = 0
        """Real transitions used so far; every one is counted."""
        self._reserved = 0
        self._reader = reader
        self._real = real

    async def settle(
        self, answer: Answer, ask: Ask, *, task: Task, actions: Sequence[str]
    ) -> Settled:
        """Return what counts; `actions` are those of the episode, the present one last."""
        found = await self._believed(answer, ask, task, actions)
        if self.config.second_vote and found.answer.reply.success:
            return await self._voted(found, ask)
        return found

    async def _believed(
        self, answer: Answer, ask: Ask, task: Task, actions: Sequence[str]
    ) -> Settled:
        if self.config.policy == "keep":
            return Settled(answer=answer)
        samples: list[Answer] = []
        confidence = answer.confidence
        if confidence is None:
            samples = await self._samples(ask)
            confidence = self._agreement(answer, samples)
            answer = msgspec.structs.replace(answer, confidence=confidence)
        if confidence >= self.config.threshold:
            return Settled(answer=answer)
        self.counters["doubt/steps"] += 1
        if self.config.policy == "verify":
            return self._majority(answer, samples or await self._samples(ask))
        if self.config.policy == "ask_real":
            told = await self._told(answer, task, actions)
            if told is not None:
                return told
        self.counters["doubt/masked"] += 1
        return Settled(answer=answer, flags=("low_confidence",), is_masked=True)

    async def _samples(self, ask: Ask) -> list[Answer]:
        return [await ask(number, self.config.temperature) for number in range(self.config.samples)]

    def _agreement(self, answer: Answer, samples: Sequence[Answer]) -> float:
        same = self._key(answer)
        return sum(self._key(sample) == same for sample in samples) / len(samples)

    def _majority(self, answer: Answer, samples: Sequence[Answer]) -> Settled:
        everyone = [answer, *samples]
        counts = Counter(self._key(one) for one in everyone)
        key, votes = counts.most_common(1)[0]
        if votes * 2 <= len(everyone):
            self.counters["doubt/no_majority"] += 1
            return Settled(answer=answer, flags=("low_confidence",), is_masked=True)
        winner = next(one for one in everyone if self._key(one) == key)
        changed = winner is not answer
        self.counters["doubt/outvoted" if changed else "doubt/confirmed"] += 1
        return Settled(answer=winner, flags=("outvoted" if changed else "confirmed",))

    def _key(self, answer: Answer) -> tuple[str, float | None, bool]:
        reply = answer.reply
        return self._reader.canonical(reply.next_state), reply.reward, reply.done

    async def _told(self, answer: Answer, task: Task, actions: Sequence[str]) -> Settled | None:
        """Return reality's answer; None without a real game of this task, or without budget."""
        needed = len(actions)
        used = self.real_transitions + self._reserved
        if task.generated or used + needed > self.config.real_budget:
            self.counters["doubt/real_refused"] += 1
            return None
        assert self._real is not None  # checked when this was made
        self._reserved += needed
        env = self._real.open(msgspec.structs.replace(task, scenario=None), seed=0)
        try:
            await env.start()
            for number, action in enumerate(actions):
                step = await env.step(action)
                self.real_transitions += 1
                is_last = number == len(actions) - 1
                if (step.terminated or step.truncated) and not is_last:
                    self.counters["doubt/real_over"] += 1
                    return None  # reality was over before: the dream had already left it
        finally:
            self._reserved -= needed
            await env.close()
        self.counters["doubt/asked_real"] += 1
        reply = DreamReply(
            next_state=self._reader.natural(step.observation.text),
            reward=step.reward,
            done=step.terminated,
            success=step.success,
        )
        told = msgspec.structs.replace(answer, reply=reply)
        return Settled(answer=told, flags=("asked_real",))

    async def _voted(self, found: Settled, ask: Ask) -> Settled:
        """Let a sampled answer confirm a claimed success; a lost vote goes on without it."""
        # A number of its own: the samples above may already have been asked.
        second = await ask(self.config.samples, self.config.temperature)
        self.counters["vote/claims"] += 1
        if second.reply.success:
            return found
        self.counters["vote/lost"] += 1
        denied = msgspec.structs.replace(found.answer.reply, reward=0.0, done=False, success=False)
        return msgspec.structs.replace(
            found,
            answer=msgspec.structs.replace(found.answer, reply=denied),
            flags=(*found.flags, "vote_lost"),
        )
