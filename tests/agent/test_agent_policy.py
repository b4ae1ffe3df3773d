from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dreamgym.agent.policy import ContextFull, ModelPolicy, TextPolicy
from dreamgym.agent.prompt import AgentPrompt
from dreamgym.errors import ConfigError, DataError
from dreamgym.llm.base import Finish, GenerateRequest, Generation, Message, Reply
from dreamgym.seeds import derive_random
from dreamgym.types import Completion, Observation, Scenario, Task

TASK = Task(id="t1", suite="s", instruction="count")
END = 1


class LetterTokenizer:
    """One id per character; `|` ends a turn. `keeps_thinking` False drops earlier thoughts."""

    chat_template = "letters"
    eos_token_id = END
    all_special_ids = (END,)

    def __init__(self, keeps_thinking: bool = True) -> None:
        self.keeps_thinking = keeps_thinking

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [END if c == "|" else ord(c) for c in text]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return "".join(chr(i) for i in ids if i != END)

    def convert_ids_to_tokens(self, index: int) -> str:
        return "|" if index == END else chr(index)

    # Any: mirrors the untyped Hugging Face method
    def apply_chat_template(
        self, messages: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool
    ) -> Any:
        text = ""
        for place, message in enumerate(messages):
            content = message["content"]
            is_old = place < len(messages) - 1 and message["role"] == "assistant"
            if is_old and not self.keeps_thinking:
                content = content.split("</think>")[-1]
            text += f"{message['role'][0]}:{content}|\n"
        return text + ("a:" if add_generation_prompt else "")


class LetterEngine:
    """Answers with letters drawn from the seed, after checking what it is asked."""

    version = 7

    def __init__(self, max_context: int = 500, finish: Finish = "stop", text: str = "") -> None:
        self.max_context = max_context
        self.finish = finish
        self.text = text
        self.requests: list[GenerateRequest] = []
        self.released: list[str] = []

    async def generate(self, request: GenerateRequest) -> Generation:
        assert len(request.token_ids) + request.max_new_tokens <= self.max_context
        self.requests.append(request)
        rng = derive_random(request.seed)
        text = self.text or "".join(rng.choice("abcdef") for _ in range(4))
        ids = tuple(ord(c) for c in text[: request.max_new_tokens])
        ids += (END,) if self.finish == "stop" else ()
        logprobs = tuple(-0.1 for _ in ids)
        return Generation(
            token_ids=ids, logprobs=logprobs, finish=self.finish, version=self.version
        )

    def release(self, session: str) -> None:
        self.released.append(session)


def make(engine: LetterEngine, *, keeps_thinking: bool = True, tokens: int = 20) -> ModelPolicy:
    return ModelPolicy(
        engine,
        LetterTokenizer(keeps_thinking),
        AgentPrompt(style="compact"),
        temperature=1.0,
        max_new_tokens=tokens,
    )


def play(policy: ModelPolicy | TextPolicy, seed: int, turns: int) -> list[Completion]:
    async def run() -> list[Completion]:
        actor = policy.start(TASK, seed=seed)
        seen = [await actor.act(Observation(text=f"seen {turn}")) for turn in range(turns)]
        await actor.close()
        return seen

    return asyncio.run(run())


def test_the_context_is_the_concatenation_of_what_was_read_and_sampled() -> None:
    engine = LetterEngine()
    completions = play(make(engine), seed=3, turns=4)
    context: list[int] = []
    for completion, request in zip(completions, engine.requests, strict=True):
        context += completion.context_ids
        assert list(request.token_ids) == context
        context += completion.token_ids
        assert len(completion.logprobs) == len(completion.token_ids)
        assert completion.policy_version == 7
        assert not completion.restart


def test_the_context_reads_like_the_chat_template() -> None:
    engine = LetterEngine()
    first, second = play(make(engine), seed=3, turns=2)
    ids = [*first.context_ids, *first.token_ids, *second.context_ids]
    text = "".join("|" if i == END else chr(i) for i in ids)
    assert text == f"u:seen 0|\na:{first.text}|\nu:seen 1|\na:"


def test_a_cut_turn_is_closed_before_the_next_one() -> None:
    engine = LetterEngine(finish="length")
    first, second = play(make(engine), seed=3, turns=2)
    ids = [*first.token_ids, *second.context_ids]
    assert first.finish == "length"
    assert "".join("|" if i == END else chr(i) for i in ids) == f"{first.text}|\nu:seen 1|\na:"


def test_a_template_that_rewrites_old_turns_starts_over_each_turn() -> None:
    engine = LetterEngine(text="<think>why</think>go")
    policy = make(engine, keeps_thinking=False)
    completions = play(policy, seed=3, turns=3)
    assert [c.restart for c in completions] == [False, True, True]
    for completion, request in zip(completions, engine.requests, strict=True):
        assert completion.context_ids == tuple(request.token_ids)
    last = "".join("|" if i == END else chr(i) for i in completions[2].context_ids)
    assert last == "u:seen 0|\na:go|\nu:seen 1|\na:go|\nu:seen 2|\na:"


def test_det_05_each_turn_and_episode_has_its_own_seed_and_reruns_agree() -> None:
    engine = LetterEngine()
    policy = make(engine)
    runs = [play(policy, seed=seed, turns=3) for seed in range(8)]
    assert len({r.seed for r in engine.requests}) == 24
    assert len({r.session for r in engine.requests}) == 8
    assert len({tuple(c.token_ids for c in run) for run in runs}) == 8
    assert play(policy, seed=5, turns=3) == runs[5]


def test_ctx_01_a_completion_is_capped_to_the_window() -> None:
    engine = LetterEngine(max_context=30)
    play(make(engine, tokens=20), seed=0, turns=1)
    prompt = len(engine.requests[0].token_ids)
    assert engine.requests[0].max_new_tokens == 30 - prompt < 20


def test_ctx_01_a_full_window_is_signalled_and_not_sent() -> None:
    engine = LetterEngine(max_context=50)
    with pytest.raises(ContextFull, match="task 't1', turn"):
        play(make(engine), seed=0, turns=9)
    assert 1 <= len(engine.requests) < 9


def test_ctx_09_tasks_that_cannot_fit_are_refused_by_id_when_loaded() -> None:
    policy = make(LetterEngine(max_context=100))
    fits = Task(id="fits", suite="s", instruction="short")
    long_start = Scenario(first_observation="x" * 120)
    too_long = Task(id="too-long", suite="s", instruction="short", scenario=long_start)
    policy.check_tasks([fits])
    with pytest.raises(DataError, match=r"1 task\(s\).*'too-long' \(126 tokens\)"):
        policy.check_tasks([fits, too_long])


def test_the_cache_of_an_episode_is_released() -> None:
    engine = LetterEngine()
    play(make(engine), seed=0, turns=2)
    assert engine.released == [engine.requests[0].session]


def test_a_negative_temperature_is_refused() -> None:
    with pytest.raises(ConfigError, match="temperature must be at least 0; got -1"):
        make(LetterEngine()).with_temperature(-1)


class Chat:
    """Repeats the last message; the first `num_empty` answers are empty."""

    name = "echo"

    def __init__(self, num_empty: int = 0) -> None:
        self.num_empty = num_empty
        self.asked: list[tuple[Message, ...]] = []
        self.seeds: list[int] = []
        self.released: list[str] = []

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        self.asked.append(tuple(messages))
        self.seeds.append(seed)
        empty = len(self.asked) <= self.num_empty
        return Reply(text="" if empty else f"<action>{messages[-1].content}</action>")

    def release(self, session: str) -> None:
        self.released.append(session)


def test_a_text_policy_shows_the_whole_conversation_each_turn() -> None:
    chat = Chat()
    completions = play(TextPolicy(chat, AgentPrompt()), seed=1, turns=2)
    assert [m.role for m in chat.asked[1]] == ["system", "user", "assistant", "user"]
    assert completions[1].text == "<action>seen 1</action>"
    assert completions[1].token_ids == ()
    assert len(chat.released) == 1


def test_par_10_an_empty_reply_is_asked_for_once_more_at_most() -> None:
    chat = Chat(num_empty=1)
    assert play(TextPolicy(chat, AgentPrompt()), seed=1, turns=1)[0].text
    assert len(set(chat.seeds)) == 2
    chat = Chat(num_empty=9)
    assert play(TextPolicy(chat, AgentPrompt()), seed=1, turns=1)[0].text == ""
    assert len(chat.asked) == 2
