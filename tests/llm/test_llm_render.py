from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llm_worlds import CHATML, DROPS_THINKING, small_model, templated, tokenizer

from dreamgym.errors import ConfigError
from dreamgym.llm.base import GenerateRequest, Message
from dreamgym.llm.engine import KVEngine
from dreamgym.llm.local import LocalChat
from dreamgym.llm.render import Renderer
from dreamgym.llm.scripted import ScriptedEngine

TASK = [Message("system", "You act."), Message("user", "Find the mug 1.")]
REPLY = "<think>why</think><action>look</action>"
SEEN = [Message("user", "You see a mug 1.")]


def encode(tokens: Any, text: str) -> list[int]:
    ids: list[int] = tokens(text)["input_ids"]
    return ids


@pytest.mark.parametrize("template", [None, CHATML])
def test_appending_gives_the_same_ids_as_rendering_the_whole_chat(template: str | None) -> None:
    tokens = templated(template) if template else tokenizer()
    renderer = Renderer(tokens)
    assert renderer.is_append_only
    reply_ids = [*encode(tokens, REPLY), tokens.eos_token_id]
    so_far = [*TASK, Message("assistant", REPLY)]
    appended = renderer.extend(so_far, SEEN, last_id=reply_ids[-1])
    whole = renderer.first([*so_far, *SEEN])
    assert renderer.first(TASK) + reply_ids + appended == whole


def test_the_newline_after_the_end_of_a_turn_is_part_of_what_is_appended() -> None:
    tokens = templated(CHATML)
    renderer = Renderer(tokens)
    so_far = [*TASK, Message("assistant", REPLY)]
    appended = renderer.extend(so_far, SEEN, last_id=tokens.eos_token_id)
    assert tokens.decode(appended).startswith("\n<|user|>\nYou see")
    assert tokens.decode(appended).endswith("<|end|>\n<|assistant|>\n")


@pytest.mark.parametrize("last_id", [300, None])
def test_a_turn_that_was_cut_gets_its_end_of_turn(last_id: int | None) -> None:
    tokens = tokenizer()
    so_far = [*TASK, Message("assistant", "<think>so lo")]
    appended = Renderer(tokens).extend(so_far, SEEN, last_id=last_id)
    assert tokens.decode(appended) == "<|end|><|user|>You see a mug 1.<|end|><|assistant|>"


def test_tok_03_sampled_ids_that_spell_a_word_unusually_are_kept() -> None:
    tokens = tokenizer()
    spelled = [tokens.convert_tokens_to_ids(letter) for letter in "mug"]
    assert spelled != encode(tokens, "mug")
    assert tokens.decode(spelled) == "mug"
    seen_contexts: list[list[int]] = []

    def answer(context: Any) -> list[int]:
        seen_contexts.append(list(context))
        return [*spelled, tokens.eos_token_id]

    chat = LocalChat(ScriptedEngine(answer), tokens, "fake")

    async def main() -> None:
        first = await chat.reply(TASK, seed=0, max_tokens=9, session="a")
        assert first.text == "mug"
        messages = [*TASK, Message("assistant", first.text), *SEEN]
        await chat.reply(messages, seed=0, max_tokens=9, session="a")

    asyncio.run(main())
    first, second = seen_contexts
    assert second[: len(first) + 4] == [*first, *spelled, tokens.eos_token_id]


def test_tok_06_a_template_that_drops_thinking_is_detected_and_chats_start_over() -> None:
    tokens = templated(DROPS_THINKING)
    assert not Renderer(tokens).is_append_only
    contexts: list[str] = []

    def answer(context: Any) -> list[int]:
        contexts.append(tokens.decode(list(context)))
        return [*encode(tokens, REPLY), tokens.eos_token_id]

    chat = LocalChat(ScriptedEngine(answer), tokens, "fake")

    async def main() -> None:
        first = await chat.reply(TASK, seed=0, max_tokens=99, session="a")
        messages = [*TASK, Message("assistant", first.text), *SEEN]
        await chat.reply(messages, seed=0, max_tokens=99, session="a")

    asyncio.run(main())
    assert "<think>" not in contexts[1]
    assert "<action>look</action>" in contexts[1]


def test_tok_08_pad_equal_to_eos_changes_neither_lengths_nor_text() -> None:
    tokens = templated(CHATML)
    tokens.pad_token = tokens.eos_token
    renderer = Renderer(tokens)
    assert renderer.stop_ids == {tokens.eos_token_id}
    ids = [*encode(tokens, "look"), tokens.eos_token_id]
    assert renderer.decode(ids) == "look"
    engine = KVEngine(small_model())
    item = GenerateRequest(
        session="s",
        token_ids=[5, tokens.eos_token_id, tokens.eos_token_id],
        max_new_tokens=3,
        temperature=1.0,
        seed=0,
        stop_ids=frozenset(),
    )
    assert len(asyncio.run(engine.generate(item)).token_ids) == 3
    assert engine.prefilled_tokens == 3


def test_a_template_without_system_role_gets_the_system_text_in_the_first_user_message() -> None:
    template = (
        "{% for message in messages %}{% if message['role'] == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}"
        "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    )
    tokens = templated(template)
    text = tokens.decode(Renderer(tokens).first(TASK))
    assert text == "<|user|>You act.\n\nFind the mug 1.<|end|>"


def test_a_tokenizer_without_chat_template_is_refused() -> None:
    tokens = templated(CHATML)
    tokens.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        Renderer(tokens)


def test_misused_extend_says_what_is_wrong() -> None:
    renderer = Renderer(tokenizer())
    with pytest.raises(ConfigError, match="must end with the assistant's turn"):
        renderer.extend(TASK, SEEN, last_id=None)
    with pytest.raises(ConfigError, match="new_messages is empty"):
        renderer.extend([*TASK, Message("assistant", "x")], [], last_id=None)


def test_a_local_chat_over_turns_reads_only_new_tokens() -> None:
    engine = KVEngine(small_model())
    chat = LocalChat(engine, tokenizer(), "tiny")

    async def main() -> None:
        first = await chat.reply(TASK, seed=1, max_tokens=5, temperature=1.0, session="a")
        assert first.completion_tokens == len(first.logprobs) <= 5
        before = engine.prefilled_tokens
        assert before == first.prompt_tokens
        messages = [*TASK, Message("assistant", first.text), *SEEN]
        second = await chat.reply(messages, seed=1, max_tokens=5, temperature=1.0, session="a")
        new = second.prompt_tokens - first.prompt_tokens - first.completion_tokens
        assert engine.prefilled_tokens == before + new + 1
        chat.release("a")
        assert not engine.pool.lengths.any()

    asyncio.run(main())


def test_ctx_01_a_chat_that_fills_the_window_gives_an_empty_reply_with_finish_length() -> None:
    chat = LocalChat(KVEngine(small_model(), max_context=8), tokenizer(), "tiny")
    reply = asyncio.run(chat.reply(TASK, seed=0, max_tokens=5))
    assert (reply.text, reply.finish) == ("", "length")
