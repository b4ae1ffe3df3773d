"""A chat model on top of a token engine in this process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from dreamgym.errors import ConfigError
from dreamgym.llm.base import GenerateRequest, Message, Reply, TokenEngine
from dreamgym.llm.render import Renderer


class _Chat(msgspec.Struct, frozen=True):
    """A chat up to and including the assistant's reply, with the exact ids behind it."""

    messages: tuple[Message, ...]
    token_ids: tuple[int, ...]
    last_id: int | None


class LocalChat:
    """Answers chats with an engine; a session that continues appends to the ids it has."""

    # Any: see Renderer.
    def __init__(self, engine: TokenEngine, tokenizer: Any, name: str) -> None:
        self.name = name
        self.renderer = Renderer(tokenizer)
        self._engine = engine
        self._chats: dict[str, _Chat] = {}
        self._numbers = itertools.count()

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        """Answer the chat.

        A prompt that leaves no room in the window gives an empty reply with finish "length".
        """
        if not messages or messages[-1].role == "assistant":
            raise ConfigError("messages must end with a user or system message to answer")
        name = session if session is not None else f"once-{next(self._numbers)}"
        ids = self._prompt(name, messages)
        try:
            generation = await self._engine.generate(
                GenerateRequest(
                    session=f"chat/{self.name}/{name}",
                    token_ids=ids,
                    max_new_tokens=max_tokens,
                    temperature=temperature,
                    seed=seed,
                    stop_ids=self.renderer.stop_ids,
                )
            )
        finally:
            if session is None:
                self.release(name)
        text = self.renderer.decode(generation.token_ids)
        if session is not None and generation.token_ids:
            self._chats[name] = _Chat(
                messages=(*messages, Message("assistant", text)),
                token_ids=(*ids, *generation.token_ids),
                last_id=generation.token_ids[-1],
            )
        return Reply(
            text=text,
            finish=generation.finish,
            prompt_tokens=len(ids),
            completion_tokens=len(generation.token_ids),
            logprobs=generation.logprobs,
        )

    def release(self, session: str) -> None:
        """Forget the session's ids and the engine's cache of it."""
        self._chats.pop(session, None)
        self._engine.release(f"chat/{self.name}/{session}")

    def _prompt(self, session: str, messages: Sequence[Message]) -> Sequence[int]:
        """Return the ids to answer, appended to the sampled ids where the chat goes on."""
        chat = self._chats.get(session)
        if chat is None or not self.renderer.is_append_only:
            return self.renderer.first(messages)
        known = len(chat.messages)
        if len(messages) <= known or tuple(messages[:known]) != chat.messages:
            return self.renderer.first(messages)
        new = self.renderer.extend(chat.messages, messages[known:], last_id=chat.last_id)
        return (*chat.token_ids, *new)
