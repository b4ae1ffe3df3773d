"""A chat model behind an OpenAI-compatible HTTP endpoint.

Retries what may pass (408, 429, 5xx, a broken connection) a bounded number of times inside a
total deadline; everything else fails at once with `ModelError`.  Keys never appear in messages.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import msgspec

from dreamgym.errors import ConfigError, MissingExtra, ModelError
from dreamgym.llm.base import Message, Reply
from dreamgym.llm.budget import Budget
from dreamgym.seeds import derive_random

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

_KEY_VARIABLES = ("DREAMGYM_API_KEY", "OPENAI_API_KEY")
_RETRIED = frozenset({408, 429})


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the calls to one endpoint. Times are in seconds."""

    max_concurrency: int = 16
    max_retries: int = 5
    first_delay: float = 0.5
    """Wait before the first retry; it doubles each time, with up to as much jitter on top."""
    max_delay: float = 30.0
    deadline: float = 180.0
    """Total time of one call, all its retries included."""
    token_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"

    def __post_init__(self) -> None:
        if self.max_concurrency < 1 or self.max_retries < 0:
            raise ConfigError(
                "max_concurrency must be at least 1 and max_retries at least 0; got "
                f"{self.max_concurrency} and {self.max_retries}"
            )
        if min(self.first_delay, self.max_delay) < 0 or self.deadline <= 0:
            raise ConfigError("delays must be 0 or more and the deadline above 0")


class _Connection:
    """What belongs to one event loop."""

    def __init__(self, client: AsyncOpenAI, slots: asyncio.Semaphore) -> None:
        self.client = client
        self.slots = slots


class EndpointChat:
    """Answers chats through an endpoint. Call `close` before the event loop ends."""

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        config: EndpointConfig = EndpointConfig(),
        budget: Budget | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                "base_url must be an http or https address such as http://localhost:8000/v1; "
                f"got one with scheme {parts.scheme!r}"
            )
        self.name = model
        self.num_requests = 0
        self.num_retries = 0
        self._base_url = base_url
        self._key = api_key or next(filter(None, map(os.environ.get, _KEY_VARIABLES)), "none")
        self._secrets = [text for text in (self._key, parts.password, parts.username) if text]
        self._config = config
        self.budget = budget
        self._sleep = sleep
        self._clock = clock
        self._connections: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Connection] = (
            weakref.WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"EndpointChat({self._redact(self._base_url)!r}, {self.name!r})"

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

        A prompt that exceeds the model's window gives an empty reply with finish "length".

        Raises:
            ModelError: after the allowed retries, past the deadline, or at a final refusal.
            BudgetSpent: when the budget allows no further call.
        """
        connection = self._connect()
        body: dict[str, object] = {
            "model": self.name,
            "messages": [{"role": item.role, "content": item.content} for item in messages],
            "temperature": temperature,
            "seed": seed % 2**31,
            self._config.token_field: max_tokens,
        }
        async with connection.slots:
            return await self._ask(connection.client, body, seed, messages, max_tokens)

    def release(self, session: str) -> None:
        """Do nothing: an endpoint keeps no session of ours."""

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        connection = self._connections.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            await connection.client.close()

    def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            try:
                from openai import AsyncOpenAI
            except ImportError as error:
                raise MissingExtra("openai", "endpoint") from error
            client = AsyncOpenAI(base_url=self._base_url, api_key=self._key, max_retries=0)
            slots = asyncio.Semaphore(self._config.max_concurrency)
            self._connections[loop] = _Connection(client, slots)
        return self._connections[loop]

    async def _ask(
        self,
        client: AsyncOpenAI,
        body: dict[str, object],
        seed: int,
        messages: Sequence[Message],
        max_tokens: int,
    ) -> Reply:
        import openai

        config, end = self._config, self._clock() + self._config.deadline
        for attempt in range(config.max_retries + 1):
            account = _Account(self.budget, messages, max_tokens)
            self.num_requests += 1
            wait = 0.0
            try:
                answer: ChatCompletion = await client.post(
                    "/chat/completions",
                    cast_to=_completion_type(),
                    body=body,
                    options={"timeout": max(end - self._clock(), 0.001)},
                )
                account.settle(answer)
                return _read(answer)
            except openai.APIStatusError as error:
                account.free()
                if _is_too_long(error):
                    return Reply(text="", finish="length")
                if not _may_pass(error):
                    raise self._failure(f"refused with status {error.status_code}", error) from None
                wait, reason = _retry_after(error.response.headers), f"status {error.status_code}"
                failure = self._failure(f"still failing with {reason}", error)
            except openai.APIConnectionError as error:
                failure = self._failure("could not be reached", error)
            except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
                raise self._failure("gave an answer that cannot be read", error) from None
            finally:
                account.close()
            backoff = min(config.first_delay * 2**attempt, config.max_delay)
            backoff *= 1.0 + derive_random("endpoint", seed, attempt).random()
            wait = max(wait, backoff)
            if attempt == config.max_retries or self._clock() + wait >= end:
                raise failure
            self.num_retries += 1
            await self._sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _failure(self, what: str, error: Exception) -> ModelError:
        where = self._redact(self._base_url)
        detail = self._redact(" ".join(str(error).split()))[:300]
        return ModelError(f"model {self.name!r} at {where} {what}: {detail}")

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            if secret != "none":
                text = text.replace(secret, "***")
        return text


class _Account:
    """One request's place in the budget; whatever is not settled or free counts as lost."""

    def __init__(self, budget: Budget | None, messages: Sequence[Message], max_tokens: int) -> None:
        self._budget = budget
        self._open = budget.reserve(messages, max_tokens) if budget is not None else None

    def settle(self, answer: ChatCompletion) -> None:
        """Book what the server counted; an answer without a count stays open."""
        usage = getattr(answer, "usage", None)
        if self._budget is not None and self._open is not None and usage is not None:
            self._budget.settle(self._open, usage.prompt_tokens, usage.completion_tokens)
            self._open = None

    def free(self) -> None:
        """Book a refusal."""
        if self._budget is not None and self._open is not None:
            self._budget.free(self._open)
            self._open = None

    def close(self) -> None:
        """Book the request as lost if nothing else is known: cut off, cancelled, not counted."""
        if self._budget is not None and self._open is not None:
            self._budget.lose(self._open)
            self._open = None


def _completion_type() -> type[ChatCompletion]:
    from openai.types.chat import ChatCompletion

    return ChatCompletion


def _read(answer: ChatCompletion) -> Reply:
    choices = getattr(answer, "choices", None)
    if not choices:
        raise ModelError("the endpoint answered without any choice")
    choice = choices[0]
    if choice.finish_reason == "content_filter":
        raise ModelError("the endpoint withheld the answer (content filter)")
    usage = answer.usage
    return Reply(
        text=choice.message.content or "",
        finish="length" if choice.finish_reason == "length" else "stop",
        prompt_tokens=usage.prompt_tokens if usage else 0,
        completion_tokens=usage.completion_tokens if usage else 0,
    )


def _may_pass(error: object) -> bool:
    """Return whether asking again may help: a used-up quota does not come back by waiting."""
    status = getattr(error, "status_code", 0)
    code, kind = getattr(error, "code", None), getattr(error, "type", None)
    if "insufficient_quota" in (code, kind):
        return False
    return status in _RETRIED or status >= 500


def _is_too_long(error: object) -> bool:
    if getattr(error, "status_code", 0) not in (400, 413):
        return False
    text = str(error).lower()
    is_coded = getattr(error, "code", None) == "context_length_exceeded"
    return is_coded or "maximum context length" in text or "context_length_exceeded" in text


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds the server asked for (a number or an HTTP date), 0 if it did not."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return 0.0
    try:
        return max(float(text), 0.0)
    except ValueError:
        pass
    try:
        return max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError):
        return 0.0
