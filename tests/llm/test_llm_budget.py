"""Prices and budgets: nothing is spent beyond a limit, nothing is forgotten, nothing is guessed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.errors import ConfigError, ModelError, UserError
from dreamgym.llm.base import Message
from dreamgym.llm.budget import Budget, BudgetSpent, Limits, most_tokens
from dreamgym.llm.cache import CachedChat
from dreamgym.llm.endpoint import EndpointChat, EndpointConfig
from dreamgym.llm.prices import Price, PriceTable, load_prices

ASK = [Message("user", "hello")]
PRICE = Price(prompt=1000.0, completion=10_000.0)  # 0.001 and 0.01 a token
MOST = most_tokens(ASK)


def test_an_unknown_price_is_refused_and_never_0() -> None:  # API-03
    table = PriceTable(models={"gpt-small": PRICE})
    with pytest.raises(ConfigError, match="did you mean 'gpt-small'"):
        table.price("gpt-smal")
    with pytest.raises(ConfigError, match="no price is known for model 'm'"):
        Budget(Limits(money=5.0), model="m")
    unpriced = Budget(Limits(calls=5))
    unpriced.settle(unpriced.reserve(ASK, 10), 7, 2)
    assert unpriced.spent.money is None and unpriced.spent.prompt_tokens == 7


def test_a_table_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('[models."a/b"]\nprompt = 0.5\ncompletion = 2.0\n')
    assert load_prices(path).price("a/b").cost(2_000_000, 500_000) == 2.0
    path.write_text('[models."a/b"]\nprompt = 0.5\ncompletion = 2.0\ninput = 1\n')
    with pytest.raises(ConfigError, match="input"):
        load_prices(path)
    path.write_text('[models."a/b"]\nprompt = -1.0\ncompletion = 2.0\n')
    with pytest.raises(ConfigError, match="0 or more"):
        load_prices(path)


def test_money_spent_stays_spent_after_a_resume(tmp_path: Path) -> None:  # API-05
    path = tmp_path / "spent.jsonl"
    first = Budget(Limits(money=1.0), price=PRICE, path=path)
    first.settle(first.reserve(ASK, 30), 100, 50)
    first.close()
    again = Budget(Limits(money=1.0), price=PRICE, path=path)
    assert again.spent.money == pytest.approx(0.6)
    assert again.remaining.money == pytest.approx(0.4)
    with pytest.raises(BudgetSpent, match=r"does not allow another call: 0\.6 is used"):
        again.reserve(ASK, 40)
    assert isinstance(BudgetSpent("x"), UserError)  # it stops the run; it is no episode's fault


def test_a_call_under_way_at_a_kill_counts_at_its_reservation(tmp_path: Path) -> None:
    path = tmp_path / "spent.jsonl"
    killed = Budget(price=PRICE, path=path)
    killed.reserve(ASK, 30)
    killed.close()
    for _ in range(2):  # the same however often it is opened again
        again = Budget(Limits(tokens=MOST + 30 + 5), price=PRICE, path=path)
        assert again.spent.uncertain_calls == 1
        assert again.spent.uncertain_tokens == MOST + 30
        assert again.spent.money == 0.0
        with pytest.raises(BudgetSpent, match="tokens"):
            again.reserve(ASK, 30)
        again.close()


def test_a_broken_account_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spent.jsonl"
    budget = Budget(price=PRICE, path=path)
    budget.settle(budget.reserve(ASK, 3), 5, 3)
    budget.close()
    path.write_bytes(path.read_bytes() + b"not an account\n")
    with pytest.raises(ConfigError, match="cannot be trusted: line 4"):
        Budget(price=PRICE, path=path)


def test_limits_below_0_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"budget\.money must be 0 or more; got -1"):
        Limits(money=-1.0)
    with pytest.raises(ConfigError, match=r"budget\.money"):
        Limits(money=float("nan"))


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from(["settle", "free", "lose", "open"])),
        max_size=40,
    ),
    st.integers(0, 2000),
    st.integers(0, 20),
)
def test_no_order_of_events_exceeds_a_limit(
    events: list[tuple[int, str]], tokens: int, calls: int
) -> None:
    budget = Budget(Limits(tokens=tokens, calls=calls), price=PRICE)
    settled = 0
    for max_tokens, event in events:
        try:
            reserved = budget.reserve(ASK, max_tokens)
        except BudgetSpent:
            continue
        if event == "settle":
            budget.settle(reserved, MOST, max_tokens)
            settled += MOST + max_tokens
        elif event == "free":
            budget.free(reserved)
        elif event == "lose":
            budget.lose(reserved)
        spent = budget.spent
        assert spent.calls <= calls
        assert spent.prompt_tokens + spent.completion_tokens == settled
        assert settled + spent.uncertain_tokens <= tokens


class Endpoint:
    """A loopback server: `answer(number)` is a status, "reset", or "uncounted"."""

    def __init__(self, answer: Callable[[int], int | str]) -> None:
        self.num_answered = 0
        self._answer = answer
        self._count = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].split("\r\n")[0])
            await reader.readexactly(length)
            self._count += 1
            what = self._answer(self._count)
            if what == "reset":
                writer.transport.abort()
                return
            status = what if isinstance(what, int) else 200
            body: dict[str, Any] = {"error": {"message": "no", "code": "", "type": ""}}
            if status == 200:
                self.num_answered += 1
                body = said(counted=what != "uncounted")
            payload = json.dumps(body).encode()
            head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
            head += f"content-length: {len(payload)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + payload)
            await writer.drain()
        finally:
            writer.close()

    def run(self, budget: Budget, use: Callable[[EndpointChat], Awaitable[Any]]) -> Any:
        pytest.importorskip("openai", reason="the endpoint extra is not installed")

        async def main() -> Any:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            config = EndpointConfig(max_retries=2, first_delay=0.0, max_delay=0.0)
            chat = EndpointChat(
                f"http://127.0.0.1:{port}/v1", "m", "key", config=config, budget=budget
            )
            try:
                async with server:
                    return await use(chat)
            finally:
                await chat.close()

        return asyncio.run(main())


def said(*, counted: bool = True) -> dict[str, Any]:
    message = {"role": "assistant", "content": "hi"}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        **({"usage": usage} if counted else {}),
    }


async def ask(chat: EndpointChat) -> str:
    return (await chat.reply(ASK, seed=1, max_tokens=5)).text


def test_answers_are_booked_refusals_are_free_and_resets_are_told_apart() -> None:
    budget = Budget(price=PRICE)
    answers: dict[int, int | str] = {1: 503, 2: "reset", 3: 200, 4: "uncounted"}
    endpoint = Endpoint(lambda number: answers[number])

    async def twice(chat: EndpointChat) -> None:
        await ask(chat)
        await ask(chat)

    endpoint.run(budget, twice)
    spent = budget.spent
    assert (spent.calls, spent.prompt_tokens, spent.completion_tokens) == (4, 7, 2)
    assert spent.money == pytest.approx(7 * 0.001 + 2 * 0.01)
    assert spent.uncertain_calls == 2
    assert spent.uncertain_tokens == 2 * (MOST + 5)


def test_the_call_that_would_exceed_the_budget_is_not_made() -> None:
    endpoint = Endpoint(lambda number: 200)
    budget = Budget(Limits(calls=2))

    async def many(chat: EndpointChat) -> list[object]:
        return await asyncio.gather(*(ask(chat) for _ in range(6)), return_exceptions=True)

    found = endpoint.run(budget, many)
    assert sum(text == "hi" for text in found) == 2
    assert sum(isinstance(error, BudgetSpent) for error in found) == 4
    assert endpoint.num_answered == 2


def test_a_cancelled_call_is_booked_as_uncertain() -> None:
    budget = Budget()

    async def impatient(chat: EndpointChat) -> None:
        task = asyncio.ensure_future(ask(chat))
        while not chat.num_requests:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    Endpoint(lambda number: 200).run(budget, impatient)
    assert budget.spent.uncertain_calls == budget.spent.calls == 1


def test_under_mixed_faults_the_cost_is_exact() -> None:  # ASY-06
    rng = Random(5)
    kinds: list[int | str] = [*[200] * 7, 503, 429, "reset"]
    plan = [rng.choice(kinds) for _ in range(2000)]
    endpoint = Endpoint(lambda number: plan[number - 1])
    budget = Budget(price=PRICE)

    async def many(chat: EndpointChat) -> list[object]:
        gate = asyncio.Semaphore(8)

        async def one() -> str:
            async with gate:
                return await ask(chat)

        return await asyncio.gather(*(one() for _ in range(150)), return_exceptions=True)

    found = endpoint.run(budget, many)
    won = sum(text == "hi" for text in found)
    assert won == endpoint.num_answered
    assert all(text == "hi" or isinstance(text, ModelError) for text in found)
    spent = budget.spent
    assert (spent.prompt_tokens, spent.completion_tokens) == (7 * won, 2 * won)
    assert spent.uncertain_calls == plan[: spent.calls].count("reset")


def test_a_cached_answer_costs_nothing(tmp_path: Path) -> None:
    budget = Budget(price=PRICE)

    async def again(chat: EndpointChat) -> None:
        cached = CachedChat(chat, tmp_path / "answers.jsonl")
        for _ in range(3):
            await cached.reply(ASK, seed=1, max_tokens=5)
        other = CachedChat(chat, tmp_path / "answers.jsonl")
        await other.reply(ASK, seed=9, max_tokens=5)  # greedy: the seed decides nothing
        assert other.hits == 1

    Endpoint(lambda number: 200).run(budget, again)
    assert budget.spent.calls == 1
