from __future__ import annotations

import asyncio

from llm_worlds import request

from dreamgym.llm.base import Message
from dreamgym.llm.scripted import ScriptedChat, ScriptedEngine


def test_a_scripted_chat_answers_from_its_messages_and_reports_cut_answers() -> None:
    chat = ScriptedChat(lambda messages: f"you said {messages[-1].content}")
    whole = asyncio.run(chat.reply([Message("user", "look up")], seed=0, max_tokens=9))
    cut = asyncio.run(chat.reply([Message("user", "look up")], seed=0, max_tokens=3))
    assert (whole.text, whole.finish) == ("you said look up", "stop")
    assert (cut.text, cut.finish) == ("you said look", "length")
    assert chat.num_calls == 2


def test_a_scripted_engine_answers_from_its_context_up_to_stop_and_window() -> None:
    engine = ScriptedEngine(lambda ids: [ids[-1] + 1, ids[-1] + 2, 1, 9], max_context=10)
    stopped = asyncio.run(engine.generate(request([5], stop_ids=frozenset({1}))))
    assert (stopped.token_ids, stopped.finish) == ((6, 7, 1), "stop")
    full = asyncio.run(engine.generate(request([5] * 9)))
    assert (full.token_ids, full.logprobs, full.finish) == ((6,), (0.0,), "length")
    over = asyncio.run(engine.generate(request([5] * 10)))
    assert (over.token_ids, over.finish) == ((), "length")
