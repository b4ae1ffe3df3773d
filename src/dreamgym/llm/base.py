"""Language-model seams: chat (text in, text out) and engine (tokens in, tokens out)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length"]


class Message(msgspec.Struct, frozen=True):
    """One chat message."""

    role: Role
    content: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A chat model's answer. `logprobs` are per generated token (nats) where known."""

    text: str
    finish: Finish = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    logprobs: tuple[float, ...] = ()


class ChatModel(Protocol):
    """Anything that answers a chat."""

    name: str

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        """Answer the chat; `session` lets an engine reuse its cache for a shared prefix.

        Raises `ModelError` when the model cannot be reached or fails.
        """
        ...

    def release(self, session: str) -> None:
        """Forget what was cached for a session."""
        ...


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Continue `token_ids` (the complete context). All randomness comes from `seed`."""

    session: str
    token_ids: Sequence[int]
    max_new_tokens: int
    temperature: float
    seed: int
    stop_ids: frozenset[int]


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Sampled ids (stop token included when sampled) with their log-probabilities (nats).

    `logprobs` are of the distribution sampled from: softmax(logits / temperature); for
    temperature 0 (greedy) of softmax(logits).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish
    version: int


class TokenEngine(Protocol):
    """A batched generator over token ids that keeps its key/value cache per session."""

    version: int
    max_context: int

    async def generate(self, request: GenerateRequest) -> Generation:
        """Return a continuation; concurrent calls are gathered into one batch."""
        ...

    def release(self, session: str) -> None:
        """Drop the cache of a session."""
        ...
