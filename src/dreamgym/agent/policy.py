"""Policies made of language models: over token ids (trainable) and over text (endpoints).

A token policy keeps one append-only context per episode.  What was sampled is recorded as it was
sampled, ids and log-probabilities, and is never encoded again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from dreamgym.agent.prompt import AgentPrompt
from dreamgym.errors import ConfigError, DataError, DreamGymError
from dreamgym.llm.base import ChatModel, GenerateRequest, Message, TokenEngine
from dreamgym.llm.render import Renderer
from dreamgym.seeds import derive_seed
from dreamgym.types import Completion, Observation, Task

MIN_NEW_TOKENS = 8
"""With less room than this left in the window a turn is not attempted: no action would fit."""

_episodes = itertools.count()  # names cache sessions only; never part of a record


class ContextFull(DreamGymError):
    """The next prompt leaves no room for a reply; the episode is truncated, nobody is at fault."""


class ModelPolicy:
    """A language model behind a token engine, playing by the agent prompt.

    `temperature` 0 is greedy.  `tokenizer` is a Hugging Face tokenizer with a chat template.
    """

    def __init__(
        self,
        engine: TokenEngine,
        tokenizer: Any,  # tokenizers have no common typed base
        prompt: AgentPrompt,
        *,
        temperature: float = 1.0,
        max_new_tokens: int = 64,
        name: str = "policy",
    ) -> None:
        _check_sampling(temperature, max_new_tokens)
        self.engine = engine
        self.tokenizer = tokenizer
        self.prompt = prompt
        self.temperature = temperature
        self.max_new_tokens = max_new_tokens
        self.name = name
        self.renderer = Renderer(tokenizer)

    def start(self, task: Task, *, seed: int) -> ModelActor:
        """Return an actor with an empty context."""
        return ModelActor(self, task, seed)

    def with_temperature(self, temperature: float) -> ModelPolicy:
        """Return the same model sampling at another temperature (0 for greedy evaluation)."""
        return ModelPolicy(
            self.engine,
            self.tokenizer,
            self.prompt,
            temperature=temperature,
            max_new_tokens=self.max_new_tokens,
            name=self.name,
        )

    def check_tasks(self, tasks: Iterable[Task]) -> None:
        """Refuse tasks whose opening prompt leaves no room for a reply.

        Call it when tasks are loaded.  The opening is the scenario's first observation where the
        task has one, else the instruction alone.  Raises `DataError` with the ids.
        """
        too_long = []
        for task in tasks:
            text = task.scenario.first_observation if task.scenario else task.instruction
            length = len(self.renderer.first(self.prompt.first(task, Observation(text=text))))
            if length + MIN_NEW_TOKENS > self.engine.max_context:
                too_long.append(f"{task.id!r} ({length} tokens)")
        if too_long:
            raise DataError(
                f"the opening prompt of {len(too_long)} task(s) does not fit into the window of "
                f"{self.engine.max_context} tokens: {', '.join(too_long[:5])}; remove these tasks, "
                "lower max_observation_chars or use a model with a larger window"
            )


class ModelActor:
    """One episode of a `ModelPolicy`."""

    def __init__(self, policy: ModelPolicy, task: Task, seed: int) -> None:
        self._policy = policy
        self._task = task
        self._seed = seed
        self._session = f"{policy.name}/{task.id}/{next(_episodes)}"
        self._messages: list[Message] = []
        self._context: list[int] = []
        self._turn = 0

    async def act(self, observation: Observation) -> Completion:
        """Sample one turn; raises `ContextFull` when the window has no room for it."""
        policy = self._policy
        new_ids, is_restart = self._append(observation)
        room = policy.engine.max_context - len(self._context)
        if room < MIN_NEW_TOKENS:
            raise ContextFull(
                f"task {self._task.id!r}, turn {self._turn}: prompt of {len(self._context)} "
                f"tokens, window of {policy.engine.max_context}"
            )
        generation = await policy.engine.generate(
            GenerateRequest(
                session=self._session,
                token_ids=tuple(self._context),
                max_new_tokens=min(policy.max_new_tokens, room),
                temperature=policy.temperature,
                seed=derive_seed(self._seed, self._turn),
                stop_ids=policy.renderer.stop_ids,
            )
        )
        self._turn += 1
        text = policy.renderer.decode(generation.token_ids)
        self._context.extend(generation.token_ids)
        self._messages.append(Message("assistant", text))
        return Completion(
            text=text,
            context_ids=tuple(new_ids),
            token_ids=generation.token_ids,
            logprobs=generation.logprobs,
            policy_version=generation.version,
            finish=generation.finish,
            restart=is_restart,
        )

    async def close(self) -> None:
        """Drop the engine's cache for this episode."""
        self._policy.engine.release(self._session)

    def _append(self, observation: Observation) -> tuple[list[int], bool]:
        """Extend the context by an observation; returns (ids read now, whether it starts over)."""
        policy, renderer = self._policy, self._policy.renderer
        if not self._messages:
            self._messages = policy.prompt.first(self._task, observation)
            self._context = renderer.first(self._messages)
            return list(self._context), False
        new = policy.prompt.later(observation)
        if renderer.is_append_only:
            last_id = self._context[-1] if self._context else None
            ids = renderer.extend(self._messages, new, last_id=last_id)
            self._context.extend(ids)
        else:
            ids = renderer.first([*self._messages, *new])
            self._context = list(ids)
        self._messages.extend(new)
        return ids, not renderer.is_append_only


class TextPolicy:
    """A chat endpoint as a policy: no token ids, so it can be evaluated and logged, not trained."""

    def __init__(
        self,
        chat: ChatModel,
        prompt: AgentPrompt,
        *,
        temperature: float = 0.0,
        max_tokens: int = 512,
        name: str | None = None,
    ) -> None:
        _check_sampling(temperature, max_tokens)
        self.chat = chat
        self.prompt = prompt
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.name = name or chat.name

    def start(self, task: Task, *, seed: int) -> TextActor:
        """Return an actor with an empty conversation."""
        return TextActor(self, task, seed)


class TextActor:
    """One episode of a `TextPolicy`."""

    def __init__(self, policy: TextPolicy, task: Task, seed: int) -> None:
        self._policy = policy
        self._task = task
        self._seed = seed
        self._session = f"{policy.name}/{task.id}/{next(_episodes)}"
        self._messages: list[Message] = []
        self._turn = 0

    async def act(self, observation: Observation) -> Completion:
        """Ask for one turn; an empty reply is asked for once more, then it is what it is."""
        prompt = self._policy.prompt
        opening: Callable[[Observation], list[Message]] = (
            prompt.later if self._messages else lambda seen: prompt.first(self._task, seen)
        )
        self._messages.extend(opening(observation))
        for attempt in range(2):
            reply = await self._policy.chat.reply(
                tuple(self._messages),
                seed=derive_seed(self._seed, self._turn, attempt),
                max_tokens=self._policy.max_tokens,
                temperature=self._policy.temperature,
                session=self._session,
            )
            if reply.text.strip():
                break
        self._turn += 1
        self._messages.append(Message("assistant", reply.text))
        return Completion(text=reply.text, finish=reply.finish)

    async def close(self) -> None:
        """Drop what the chat model cached for this episode."""
        self._policy.chat.release(self._session)


def _check_sampling(temperature: float, max_new_tokens: int) -> None:
    if not temperature >= 0.0:
        raise ConfigError(f"temperature must be at least 0; got {temperature}")
    if max_new_tokens < 1:
        raise ConfigError(f"the number of new tokens must be at least 1; got {max_new_tokens}")
