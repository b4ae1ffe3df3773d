from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from dreamgym.errors import ModelError, StoreError
from dreamgym.llm.base import Message, Reply
from dreamgym.llm.cache import CachedChat
from dreamgym.llm.scripted import ScriptedChat


def ask(text: str) -> list[Message]:
    return [Message("user", text)]


def shout(messages: Sequence[Message]) -> str:
    return messages[-1].content.upper()


def test_the_same_question_is_asked_once() -> None:
    inner = ScriptedChat(shout)
    chat = CachedChat(inner)

    async def main() -> None:
        for _ in range(3):
            assert (await chat.reply(ask("hi"), seed=1, max_tokens=9)).text == "HI"

    asyncio.run(main())
    assert (inner.num_calls, chat.hits, chat.misses) == (1, 2, 1)


def test_everything_that_decides_the_answer_is_in_the_key() -> None:
    inner = ScriptedChat(shout)
    chat = CachedChat(inner)

    async def main() -> None:
        await chat.reply(ask("hi"), seed=1, max_tokens=9)
        await chat.reply(ask("hi"), seed=2, max_tokens=9)  # greedy: the seed decides nothing
        assert inner.num_calls == 1
        await chat.reply(ask("hi"), seed=1, max_tokens=8)
        await chat.reply(ask("hi"), seed=1, max_tokens=9, temperature=0.5)
        await chat.reply(ask("hi"), seed=2, max_tokens=9, temperature=0.5)
        await chat.reply([Message("system", "hi")], seed=1, max_tokens=9)
        assert inner.num_calls == 5

    asyncio.run(main())


class SlowChat(ScriptedChat):
    """Answers a few loop rounds later."""

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        await asyncio.sleep(0.01)
        return await super().reply(messages, seed=seed, max_tokens=max_tokens)


def test_concurrent_identical_questions_share_one_call_even_when_the_first_gives_up() -> None:
    inner = SlowChat(shout)
    chat = CachedChat(inner)

    async def main() -> None:
        calls = [
            asyncio.ensure_future(chat.reply(ask("hi"), seed=0, max_tokens=9)) for _ in range(4)
        ]
        await asyncio.sleep(0)
        calls[0].cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert [reply.text for reply in results[1:] if isinstance(reply, Reply)] == ["HI"] * 3

    asyncio.run(main())
    assert inner.num_calls == 1


def test_a_failure_is_not_remembered() -> None:
    broken = True

    def answer(messages: Sequence[Message]) -> str:
        if broken:
            raise ModelError("down")
        return shout(messages)

    chat = CachedChat(ScriptedChat(answer))
    with pytest.raises(ModelError, match="down"):
        asyncio.run(chat.reply(ask("hi"), seed=0, max_tokens=9))
    broken = False
    assert asyncio.run(chat.reply(ask("hi"), seed=0, max_tokens=9)).text == "HI"


def test_answers_survive_on_disk_and_a_torn_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "replies.jsonl"
    first = CachedChat(ScriptedChat(shout), path)
    asyncio.run(first.reply(ask("hi\n日本"), seed=0, max_tokens=9))
    with path.open("ab") as file:
        file.write(b'{"key": "torn')
    inner = ScriptedChat(shout)
    second = CachedChat(inner, path)
    assert second.num_damaged_lines == 1
    asyncio.run(second.reply(ask("hi\n日本"), seed=0, max_tokens=9))
    asyncio.run(second.reply(ask("new"), seed=0, max_tokens=9))
    assert inner.num_calls == 1
    third = CachedChat(ScriptedChat(shout), path)
    assert asyncio.run(third.reply(ask("new"), seed=0, max_tokens=9)).text == "NEW"
    assert third.misses == 0


def test_a_cache_file_that_cannot_be_read_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot read the reply cache"):
        CachedChat(ScriptedChat(shout), tmp_path)


def test_release_reaches_the_wrapped_model() -> None:
    inner = ScriptedChat(shout)
    CachedChat(inner).release("a")
    assert inner.released["a"] == 1
