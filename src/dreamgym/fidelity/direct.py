"""A local model whose answer starts behind where its reasoning would stand.

A model trained to reason first does so whatever it is told; writing the first characters of the
answer for it leaves no room for reasoning.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from dreamgym.errors import ConfigError
from dreamgym.llm.base import GenerateRequest, Message, Reply, TokenEngine
from dreamgym.llm.render import Renderer

START = '{"next_state":"'


class DirectChat:
    """A `ChatModel` that answers in the dream's format without reasoning."""

    # Any: see Renderer.
    def __init__(self, engine: TokenEngine, tokenizer: Any, name: str, *, start: str = START):
        self.name = name
        self._engine = engine
        self._renderer = Renderer(tokenizer)
        self._start = start
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
        """Answer the chat; the session's cache is used, earlier replies are rendered again."""
        if not messages or messages[-1].role == "assistant":
            raise ConfigError("messages must end with a user or system message to answer")
        name = f"direct/{self.name}/{session or next(self._numbers)}"
        tokenizer = self._renderer.tokenizer
        start: list[int] = tokenizer(self._start, add_special_tokens=False)["input_ids"]
        ids = [*self._renderer.first(messages), *start]
        try:
            generation = await self._engine.generate(
                GenerateRequest(
                    session=name,
                    token_ids=ids,
                    max_new_tokens=max_tokens,
                    temperature=temperature,
                    seed=seed,
                    stop_ids=self._renderer.stop_ids,
                )
            )
        finally:
            if session is None:
                self._engine.release(name)
        return Reply(
            text=self._start + self._renderer.decode(generation.token_ids),
            finish=generation.finish,
            prompt_tokens=len(ids),
            completion_tokens=len(generation.token_ids),
            logprobs=generation.logprobs,
        )

    def release(self, session: str) -> None:
        """Drop the session's cache."""
        self._engine.release(f"direct/{self.name}/{session}")
