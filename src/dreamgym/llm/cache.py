"""Exact replay of chat answers: the same question is asked once.

The key is everything that decides the answer: model name, messages, token limit, temperature,
and the seed when sampling.  Failures are never remembered.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dreamgym.errors import StoreError
from dreamgym.llm.base import ChatModel, Message, Reply


class _Line(msgspec.Struct, frozen=True):
    """One remembered answer on disk."""

    key: str
    reply: Reply


class CachedChat:
    """Wraps a chat model; remembers answers in memory and, with `path`, in a JSONL file."""

    def __init__(self, inner: ChatModel, path: Path | None = None) -> None:
        self.name = inner.name
        self.hits = 0
        """Calls answered from memory or by joining a call already under way."""
        self.misses = 0
        self.num_damaged_lines = 0
        """Unreadable lines of the file, skipped (a process killed while writing leaves one)."""
        self._inner = inner
        self._path = path
        self._replies: dict[str, Reply] = {}
        self._running: dict[str, asyncio.Task[Reply]] = {}
        if path is not None:
            self._load(path)

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        """Answer from memory, or ask the wrapped model and remember.

        Raises:
            ModelError: when the wrapped model fails; the next call asks again.
            StoreError: when the answer cannot be written to the file.
        """
        key = self._key(messages, seed=seed, max_tokens=max_tokens, temperature=temperature)
        if key in self._replies:
            self.hits += 1
            return self._replies[key]
        task = self._running.get(key)
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            self.hits += 1
        else:
            self.misses += 1
            task = asyncio.ensure_future(
                self._ask(
                    key,
                    messages,
                    seed=seed,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    session=session,
                )
            )
            self._running[key] = task
            task.add_done_callback(_retrieve)
        # Shielded: the caller who gives up must not take the answer away from the others.
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Drop all answers from memory, such as when the model behind got new weights."""
        self._replies.clear()

    def release(self, session: str) -> None:
        """Release the session of the wrapped model; answers stay remembered."""
        self._inner.release(session)

    async def _ask(
        self,
        key: str,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float,
        session: str | None,
    ) -> Reply:
        try:
            reply = await self._inner.reply(
                messages,
                seed=seed,
                max_tokens=max_tokens,
                temperature=temperature,
                session=session,
            )
            self._replies[key] = reply
            self._store(_Line(key, reply))
            return reply
        finally:
            self._running.pop(key, None)

    def _key(
        self, messages: Sequence[Message], *, seed: int, max_tokens: int, temperature: float
    ) -> str:
        parts = (
            self.name,
            [[message.role, message.content] for message in messages],
            max_tokens,
            temperature,
            seed if temperature else None,
        )
        return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()

    def _load(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise StoreError(f"cannot read the reply cache {path}: {error}") from error
        for line in data.splitlines():
            try:
                entry = msgspec.json.decode(line, type=_Line)
            except msgspec.DecodeError:
                self.num_damaged_lines += 1
                continue
            self._replies[entry.key] = entry.reply
        if data and not data.endswith(b"\n"):
            self._append(b"\n", path)  # a torn last line must not swallow the next one

    def _store(self, entry: _Line) -> None:
        if self._path is not None:
            self._append(msgspec.json.encode(entry) + b"\n", self._path)

    @staticmethod
    def _append(data: bytes, path: Path) -> None:
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError as error:
            raise StoreError(f"cannot write the reply cache {path}: {error}") from error


def _retrieve(task: asyncio.Task[Reply]) -> None:
    """Mark a failure as seen even when every caller has given up."""
    if not task.cancelled():
        task.exception()
