from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dreamgym.errors import ConfigError, ModelError
from dreamgym.llm.base import Message, Reply
from dreamgym.llm.endpoint import EndpointChat, EndpointConfig

pytest.importorskip("openai", reason="the endpoint extra is not installed")

KEY = "sk-test-123"
ASK = [Message("user", "hello")]


class Answer(msgspec.Struct, frozen=True):
    status: int = 200
    body: str = ""
    headers: dict[str, str] = {}
    is_reset: bool = False


def said(text: str, finish: str = "stop") -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{**choice, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
    }
    return Answer(body=json.dumps(body))


def failed(status: int, message: str = "no", code: str = "", **headers: str) -> Answer:
    body = {"error": {"message": message, "code": code, "type": code}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, body=json.dumps(body), headers=named)


class Server:
    """A loopback HTTP server whose answer is a function of the request's number and body."""

    def __init__(self, answer: Callable[[int, dict[str, Any]], Answer]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.authorizations: list[str] = []
        self.waits: list[float] = []
        self.now = 0.0
        self.running = self.most_running = 0
        self._answer = answer

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(
                line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line
            )
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            self.authorizations.append(headers["authorization"])
            self.bodies.append(body)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            answer = self._answer(len(self.bodies), body)
            await asyncio.sleep(0.002)
            self.running -= 1
            if answer.is_reset:
                writer.transport.abort()
                return
            extra = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
            payload = answer.body.encode()
            writer.write(
                f"HTTP/1.1 {answer.status} X\r\ncontent-type: application/json\r\n{extra}"
                f"content-length: {len(payload)}\r\nconnection: close\r\n\r\n".encode()
                + payload
            )
            await writer.drain()
        finally:
            writer.close()

    def run(
        self,
        use: Callable[[EndpointChat], Awaitable[Any]],
        *,
        config: EndpointConfig = EndpointConfig(),
        user: str = "",
    ) -> Any:
        async def main() -> Any:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            chat = EndpointChat(
                f"http://{user}127.0.0.1:{port}/v1",
                "m",
                KEY,
                config=config,
                sleep=self.sleep,
                clock=lambda: self.now,
            )
            try:
                async with server:
                    return await use(chat)
            finally:
                await chat.close()

        return asyncio.run(main())


async def ask(chat: EndpointChat) -> Reply:
    return await chat.reply(ASK, seed=5, max_tokens=11, temperature=0.5)


def test_a_question_and_its_answer_go_through_unchanged() -> None:
    server = Server(lambda number, body: said(body["messages"][0]["content"].upper()))
    reply = server.run(ask)
    assert (reply.text, reply.finish) == ("HELLO", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 2)
    sent = server.bodies[0]
    assert (sent["model"], sent["max_tokens"], sent["temperature"], sent["seed"]) == (
        ("m", 11, 0.5, 5)
    )
    assert server.authorizations == [f"bearer {KEY}"]


def test_a_cut_answer_is_reported_as_cut() -> None:
    assert Server(lambda number, body: said("a", "length")).run(ask).finish == "length"


def test_api_01_a_429_waits_as_long_as_the_server_asks() -> None:
    server = Server(lambda n, body: failed(429, retry_after="7") if n < 3 else said("ok"))
    assert server.run(ask).text == "ok"
    assert len(server.bodies) == 3
    assert len(server.waits) == 2
    assert min(server.waits) >= 7


def test_api_01_a_used_up_quota_is_not_retried() -> None:
    server = Server(lambda n, body: failed(429, code="insufficient_quota"))
    with pytest.raises(ModelError, match="refused with status 429"):
        server.run(ask)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_api_02_passing_errors_are_retried_a_bounded_number_of_times(status: int) -> None:
    server = Server(lambda n, body: failed(status))
    with pytest.raises(ModelError, match=f"still failing with status {status}"):
        server.run(ask, config=EndpointConfig(max_retries=2))
    assert len(server.bodies) == 3
    assert server.waits[1] > server.waits[0] > 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_api_02_final_errors_are_not_retried(status: int) -> None:
    server = Server(lambda n, body: failed(status))
    with pytest.raises(ModelError, match=f"refused with status {status}"):
        server.run(ask)
    assert len(server.bodies) == 1


def test_api_02_a_reset_connection_is_retried() -> None:
    server = Server(lambda n, body: Answer(is_reset=True) if n == 1 else said("back"))
    assert server.run(ask).text == "back"
    assert len(server.waits) == 1


def test_api_02_a_prompt_too_long_for_the_model_is_a_full_context() -> None:
    server = Server(lambda n, body: failed(400, code="context_length_exceeded"))
    reply = server.run(ask)
    assert (reply.text, reply.finish) == ("", "length")
    text = "This model's maximum context length is 4096 tokens"
    assert Server(lambda n, body: failed(400, text)).run(ask).finish == "length"


def test_the_deadline_bounds_all_retries_together() -> None:
    server = Server(lambda n, body: failed(503, retry_after="40"))
    with pytest.raises(ModelError, match="still failing with status 503"):
        server.run(ask, config=EndpointConfig(deadline=100.0))
    assert server.waits == [40.0, 40.0]


def test_a_retry_date_is_understood() -> None:
    soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 20))
    server = Server(lambda n, body: failed(503, retry_after=soon) if n == 1 else said("ok"))
    server.run(ask)
    assert 15 < server.waits[0] <= 20


def test_an_answer_that_is_no_completion_is_a_fault() -> None:
    with pytest.raises(ModelError):
        Server(lambda n, body: Answer(body="<html>")).run(ask, config=EndpointConfig(max_retries=0))
    with pytest.raises(ModelError, match="without any choice"):
        Server(lambda n, body: Answer(body='{"choices": []}')).run(ask)
    with pytest.raises(ModelError, match="content filter"):
        Server(lambda n, body: said("", "content_filter")).run(ask)


def test_sec_05_no_key_appears_in_errors_or_the_representation() -> None:
    server = Server(lambda n, body: failed(401, f"Incorrect API key provided: {KEY}; u1:pw-secret"))
    shown: list[str] = []

    async def use(chat: EndpointChat) -> None:
        shown.append(repr(chat))
        await ask(chat)

    with pytest.raises(ModelError) as caught:
        server.run(use, user="u1:pw-secret@")
    shown.append(str(caught.value))
    assert caught.value.__suppress_context__
    for text in shown:
        assert KEY not in text
        assert "pw-secret" not in text
    assert "***" in shown[1]


def test_concurrency_is_bounded() -> None:
    server = Server(lambda n, body: said("ok"))

    async def many(chat: EndpointChat) -> list[Reply]:
        return list(await asyncio.gather(*(ask(chat) for _ in range(9))))

    assert len(server.run(many, config=EndpointConfig(max_concurrency=3))) == 9
    assert server.most_running <= 3


def test_one_chat_works_on_several_event_loops() -> None:
    chats: list[EndpointChat] = []

    async def keep(chat: EndpointChat) -> None:
        chats.append(chat)
        assert (await ask(chat)).text == "ok"

    Server(lambda n, body: said("ok")).run(keep, config=EndpointConfig(max_retries=0))

    # The server of the first loop is gone: the second loop gets a connection error, not a hang.
    async def again() -> None:
        try:
            with pytest.raises(ModelError, match="could not be reached"):
                await ask(chats[0])
        finally:
            await chats[0].close()

    asyncio.run(again())


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host/v1", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url must be an http or https address"):
        EndpointChat(url, "m")


def test_senseless_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_concurrency must be at least 1"):
        EndpointConfig(max_concurrency=0)
    with pytest.raises(ConfigError, match="deadline above 0"):
        EndpointConfig(deadline=0)
