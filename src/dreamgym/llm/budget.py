"""A budget for a model that costs: calls, tokens, money, reserved before each call.

A call is reserved at the most it can cost and settled at what it did cost, so that concurrent
calls never exceed a limit together.  With a file the accounts survive a kill: what was spent stays
spent when the run is resumed, and a call that was under way counts at its reservation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from dreamgym.errors import ConfigError, UserError
from dreamgym.llm.base import Message
from dreamgym.llm.prices import Price
from dreamgym.records import RecordWriter, read_records

T = TypeVar("T")

TOKENS_PER_MESSAGE = 16
"""Most tokens a chat template puts around a message."""
KIND = "budget"


class BudgetSpent(UserError):
    """The budget does not allow another call; the run stops and can go on with a larger one."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be used up in all, resumed runs included; None is no limit."""

    calls: int | None = None
    """Requests, retries included."""
    tokens: int | None = None
    """Prompt and completion tokens together."""
    money: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits below 0."""
        for name in ("calls", "tokens", "money"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigError(f"budget.{name} must be 0 or more; got {value}")


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What was used up. `money` None: not known, because the model has no known price."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    money: float | None
    uncertain_calls: int
    """Calls of which it is not known what they cost: cut off, or answered without a count."""
    uncertain_tokens: int
    """At most so many tokens more; counted against the limits."""
    uncertain_money: float | None


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """One call about to be made, at the most it can cost."""

    number: int
    prompt_tokens: int
    completion_tokens: int


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the accounts."""

    number: int
    event: Literal["reserved", "settled", "free", "lost"]
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Budget:
    """The accounts of one model. One process at a time may keep the accounts in `path`."""

    def __init__(
        self,
        limits: Limits = Limits(),
        *,
        price: Price | None = None,
        model: str = "",
        path: Path | None = None,
    ) -> None:
        """Raises `ConfigError` for a limit on money without a price."""
        if limits.money is not None and price is None:
            raise ConfigError(
                f"no price is known for model {model!r}, so a budget of {limits.money} cannot be "
                "kept; add the model to the price table, with 0 for a server of your own"
            )
        self.limits = limits
        self.price = price
        self._open: dict[int, Reservation] = {}
        self._calls = self._prompt = self._completion = 0
        self._lost: list[Reservation] = []
        self._next = 0
        self._writer: RecordWriter | None = None
        if path is not None:
            self._load(path)
            self._writer = RecordWriter(path, KIND, {"model": model})

    def reserve(self, messages: Sequence[Message], max_tokens: int) -> Reservation:
        """Reserve one call; raises `BudgetSpent` when a limit does not allow it."""
        asked = Reservation(
            number=self._next,
            prompt_tokens=most_tokens(messages),
            completion_tokens=max_tokens,
        )
        self._check(asked)
        self._next += 1
        self._open[asked.number] = asked
        self._write(asked, "reserved")
        return asked

    def settle(self, reservation: Reservation, prompt_tokens: int, completion_tokens: int) -> None:
        """Book an answered call at what it used."""
        del self._open[reservation.number]
        self._calls += 1
        self._prompt += prompt_tokens
        self._completion += completion_tokens
        used = msgspec.structs.replace(
            reservation, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
        )
        self._write(used, "settled")

    def free(self, reservation: Reservation) -> None:
        """Book a call that the server refused: it counts as a call and costs nothing."""
        del self._open[reservation.number]
        self._calls += 1
        self._write(reservation, "free")

    def lose(self, reservation: Reservation) -> None:
        """Book a call of which the cost is not known: at its reservation, and told apart."""
        del self._open[reservation.number]
        self._calls += 1
        self._lost.append(reservation)
        self._write(reservation, "lost")

    @property
    def spent(self) -> Spent:
        """What was used up so far, earlier runs with the same file included."""
        lost_prompt = sum(r.prompt_tokens for r in self._lost)
        lost_completion = sum(r.completion_tokens for r in self._lost)
        return Spent(
            calls=self._calls,
            prompt_tokens=self._prompt,
            completion_tokens=self._completion,
            money=self._cost(self._prompt, self._completion),
            uncertain_calls=len(self._lost),
            uncertain_tokens=lost_prompt + lost_completion,
            uncertain_money=self._cost(lost_prompt, lost_completion),
        )

    @property
    def remaining(self) -> Limits:
        """What is left of each limit, reservations taken off."""
        calls, tokens, money = self._used()
        return Limits(
            calls=_left(self.limits.calls, calls),
            tokens=_left(self.limits.tokens, tokens),
            money=None if self.limits.money is None else max(self.limits.money - (money or 0), 0.0),
        )

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()

    def _used(self) -> tuple[int, int, float | None]:
        pending = [*self._open.values(), *self._lost]
        prompt = self._prompt + sum(r.prompt_tokens for r in pending)
        completion = self._completion + sum(r.completion_tokens for r in pending)
        calls = self._calls + len(self._open)
        return calls, prompt + completion, self._cost(prompt, completion)

    def _check(self, asked: Reservation) -> None:
        calls, tokens, money = self._used()
        wanted = asked.prompt_tokens + asked.completion_tokens
        cost = self._cost(asked.prompt_tokens, asked.completion_tokens)
        for what, used, more, limit in (
            ("calls", calls, 1, self.limits.calls),
            ("tokens", tokens, wanted, self.limits.tokens),
            ("money", money or 0.0, cost or 0.0, self.limits.money),
        ):
            if limit is not None and used + more > limit:
                raise BudgetSpent(
                    f"the budget of {_shown(limit)} ({what}) does not allow another call: "
                    f"{_shown(used)} is used or reserved and the call may take {_shown(more)}; "
                    "raise the limit and run again to go on"
                )

    def _cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return None if self.price is None else self.price.cost(prompt_tokens, completion_tokens)

    def _write(self, reservation: Reservation, event: str) -> None:
        if self._writer is not None:
            self._writer.write({**msgspec.structs.asdict(reservation), "event": event})

    def _load(self, path: Path) -> None:
        if not path.exists():
            return
        found = read_records(path, _Entry, kind=KIND)
        if found.quarantined:
            bad = found.quarantined[0]
            raise ConfigError(
                f"the accounts {str(path)!r} cannot be trusted: line {bad.line}: {bad.reason}; "
                "mend the line, or move the file away to start from nothing spent"
            )
        for entry in found.records:
            self._next = max(self._next, entry.number + 1)
            if entry.event == "reserved":
                self._open[entry.number] = Reservation(
                    number=entry.number,
                    prompt_tokens=entry.prompt_tokens,
                    completion_tokens=entry.completion_tokens,
                )
                continue
            reservation = self._open.get(entry.number)
            if reservation is None:
                raise ConfigError(
                    f"the accounts {str(path)!r} settle call {entry.number}, which was never "
                    "reserved; mend the file, or move it away to start from nothing spent"
                )
            if entry.event == "settled":
                self.settle(reservation, entry.prompt_tokens, entry.completion_tokens)
            elif entry.event == "free":
                self.free(reservation)
            else:
                self.lose(reservation)
        for reservation in list(self._open.values()):  # under way when the process was killed
            self.lose(reservation)


async def finish_all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Return all results in order; after a failure the others are still waited for.

    What is under way is paid for, and its answer may be kept for the next run.  Raises the first
    failure in order.
    """
    found = await asyncio.gather(*work, return_exceptions=True)
    results: list[T] = []
    for one in found:
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results


def most_tokens(messages: Sequence[Message]) -> int:
    """Return the most prompt tokens these messages can be: a token is at least one byte."""
    return sum(
        len(message.content.encode("utf-8", "surrogatepass")) + TOKENS_PER_MESSAGE
        for message in messages
    )


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(limit - used, 0)


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
