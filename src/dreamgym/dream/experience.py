"""The experience model: asks a chat model what an action causes and insists on a usable answer.

A reply that cannot be read, or that contradicts known facts, is asked again with the reason
stated; when the retries are used up the step is a fault (`ReplyError`), never an invented state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from dreamgym.dream.prompt import (
    PromptConfig,
    StepContext,
    conflict_message,
    problem_message,
    step_messages,
)
from dreamgym.dream.reply import DreamReply, ReplyProblem, parse_reply
from dreamgym.errors import ReplyError
from dreamgym.llm.base import ChatModel, Message
from dreamgym.seeds import derive_seed

Check = Callable[[str], Sequence[str]]
"""Takes a next state, returns sentences on the known facts it contradicts."""


class ExperienceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the experience model is asked."""

    prompt: PromptConfig = PromptConfig()
    retries: int = 2
    """Further questions after an unreadable or contradicting reply, before the step is a fault."""
    check_ledger: bool = True
    """Ask again when the reply contradicts the ledger."""
    temperature: float = 0.0
    """Sampling temperature of the first answer; 0 keeps a group's world deterministic."""
    retry_temperature: float = 0.7
    """Temperature of further answers: a greedy model would repeat itself."""
    max_tokens: int = 160


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A usable reply, with how it was reached."""

    reply: DreamReply
    attempts: int
    confidence: float | None
    """Geometric mean probability of the reply's tokens, where the model reports them."""


class ExperienceModel:
    """Answers (context, action) with a next state, through any `ChatModel`."""

    def __init__(self, chat: ChatModel, config: ExperienceConfig | None = None) -> None:
        self.chat = chat
        self.config = config or ExperienceConfig()
        self.counters: Counter[str] = Counter()

    async def answer(
        self,
        context: StepContext,
        *,
        seed: int,
        session: str | None = None,
        check: Check,
        temperature: float | None = None,
    ) -> Answer:
        """Return the model's answer to one action; `temperature` replaces that of the first try.

        Raises `ReplyError` when no usable reply came within `retries`, `ModelError` when the
        model could not be reached.
        """
        first = self.config.temperature if temperature is None else temperature
        messages: list[Message] = step_messages(self.config.prompt, context)
        reasons: list[str] = []
        for attempt in range(self.config.retries + 1):
            reply = await self.chat.reply(
                messages,
                seed=derive_seed(seed, attempt),
                max_tokens=self.config.max_tokens,
                temperature=self.config.retry_temperature if attempt else first,
                session=session,
            )
            self.counters["dream/calls"] += 1
            complaint: Message
            try:
                if reply.finish == "length":
                    raise ReplyProblem("the reply was cut at the token limit")
                parsed = parse_reply(reply.text, agent_text=context.action)
            except ReplyProblem as problem:
                self.counters["dream/unreadable"] += 1
                reasons.append(str(problem))
                complaint = problem_message(str(problem))
            else:
                conflicts = check(parsed.next_state) if self.config.check_ledger else []
                if not conflicts:
                    return Answer(
                        reply=parsed, attempts=attempt + 1, confidence=_confidence(reply.logprobs)
                    )
                self.counters["dream/conflicts"] += 1
                reasons.append(conflicts[0])
                complaint = conflict_message(conflicts[:1])
            messages = [
                *messages[: _first_question(messages)],
                Message("assistant", reply.text),
                complaint,
            ]
        raise self._fault(context.action, reasons[-1])

    def _fault(self, action: str, reason: str) -> ReplyError:
        self.counters["dream/faults"] += 1
        return ReplyError(
            f"no usable answer to {action!r} after {self.config.retries + 1} tries; "
            f"last reason: {reason}"
        )


def _first_question(messages: Sequence[Message]) -> int:
    """Return the length of the chat up to and including the first user message."""
    return next(i for i, m in enumerate(messages) if m.role == "user") + 1


def _confidence(logprobs: Sequence[float]) -> float | None:
    if not logprobs:
        return None
    from math import exp

    return exp(sum(logprobs) / len(logprobs))
