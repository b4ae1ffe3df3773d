"""What is measured: an experience model with everything a dream needs, whole or with a part off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dreamgym.dream.env import DreamConfig, DreamSuite
from dreamgym.dream.experience import ExperienceConfig, ExperienceModel
from dreamgym.envs.base import Policy, StateReader, Suite
from dreamgym.errors import unknown_name
from dreamgym.llm.base import ChatModel, Message, Reply
from dreamgym.llm.prices import Price
from dreamgym.types import Scenario, Task

if TYPE_CHECKING:
    from dreamgym.replay.buffer import ReplayBuffer

FULL = "full"
ABLATIONS = {
    "history": "the model sees no past turns",
    "reasoning": "the model answers at once, without writing a rationale",
    "demonstrations": "no similar transitions are retrieved",
    "scenario": "nothing hidden is known: neither the prompt nor the ledger starts from it",
    "ledger": "no known facts are shown, and contradictions are not asked again",
}
"""Part that is switched off -> what that means. The model is not trained again without it."""

NO_REASONING = "Answer with the JSON object only, without any reasoning."


class Meter:
    """Counts the calls and tokens of a chat model; itself a `ChatModel`."""

    def __init__(self, inner: ChatModel) -> None:
        self.name = inner.name
        self.inner = inner
        self.num_calls = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        """Answer the chat and count."""
        reply = await self.inner.reply(
            messages, seed=seed, max_tokens=max_tokens, temperature=temperature, session=session
        )
        self.num_calls += 1
        self.prompt_tokens += reply.prompt_tokens
        self.completion_tokens += reply.completion_tokens
        return reply

    def release(self, session: str) -> None:
        """Release the session of the wrapped model."""
        self.inner.release(session)

    @property
    def tokens(self) -> int:
        """Tokens read and written so far."""
        return self.prompt_tokens + self.completion_tokens


class Instructed:
    """A chat model that is told not to reason: the ablation for models that follow instructions."""

    def __init__(self, inner: ChatModel) -> None:
        self.name = inner.name
        self._inner = inner

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        """Answer the chat with the instruction after its last message."""
        last = messages[-1]
        asked = [*messages[:-1], Message(last.role, f"{last.content}\n{NO_REASONING}")]
        return await self._inner.reply(
            asked, seed=seed, max_tokens=max_tokens, temperature=temperature, session=session
        )

    def release(self, session: str) -> None:
        """Release the session of the wrapped model."""
        self._inner.release(session)


async def nothing_to_close() -> None:
    """Close nothing: a model in this process holds nothing of an event loop."""


class Origins(msgspec.Struct, frozen=True, kw_only=True):
    """What the dream was made from."""

    transitions: int = 0
    """Real transitions in the logs it was fitted on."""
    seconds: float = 0.0
    """Wall-clock seconds of logging and fitting, as far as the run says."""
    path: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """An experience model and its world; the real suite is only ever played, never looked into."""

    name: str
    suite: Suite
    chat: ChatModel
    direct: ChatModel
    """The same model, made to answer without reasoning."""
    ask: ExperienceConfig
    reader: StateReader
    buffer: ReplayBuffer | None
    agents: Mapping[str, Policy]
    """Trained policies of the run, by name."""
    max_steps: int
    origins: Origins = Origins()
    price: Price | None = None
    """Of a model that costs per token; None: not known."""
    close: Callable[[], Awaitable[None]] = nothing_to_close
    """Releases what belongs to the running event loop."""


class Variant:
    """The subject, whole or with one part off."""

    def __init__(self, subject: Subject, off: str = "") -> None:
        """`off` is a key of `ABLATIONS` or ""; raises `ConfigError` for others."""
        if off and off not in ABLATIONS:
            raise unknown_name("ablation", off, ABLATIONS)
        self.subject = subject
        self.name = f"without {off}" if off else FULL
        self.off = off
        self.meter = Meter(subject.direct if off == "reasoning" else subject.chat)
        self.experience = ExperienceModel(self.meter, ablated(subject.ask, off))
        self.buffer = None if off == "demonstrations" else subject.buffer

    def task(self, task: Task) -> Task:
        """Return the task as this variant knows it: without the ablated scenario's facts."""
        if self.off != "scenario" or task.scenario is None:
            return task
        bare = Scenario(
            first_observation=task.scenario.first_observation,
            success_criterion=task.scenario.success_criterion,
        )
        return replace(task, scenario=bare)

    def dream(self, tasks: Sequence[Task], *, verify: bool) -> DreamSuite:
        """Return the dream of these tasks (with scenarios)."""
        return DreamSuite(
            [self.task(task) for task in tasks],
            model=self.experience,
            reader=self.subject.reader,
            buffer=self.buffer,
            config=DreamConfig(max_steps=self.subject.max_steps, verify=verify),
        )


def ablated(ask: ExperienceConfig, off: str) -> ExperienceConfig:
    """Return how the model is asked with one part off; "" changes nothing."""
    prompt = ask.prompt
    match off:
        case "history":
            prompt = replace(prompt, history=0)
        case "reasoning":
            prompt = replace(prompt, reasoning=False)
        case "demonstrations":
            prompt = replace(prompt, neighbours=0)
        case "scenario":
            prompt = replace(prompt, scenario="off")
        case "ledger":
            return replace(ask, prompt=replace(prompt, ledger=False), check_ledger=False)
    return replace(ask, prompt=prompt)
