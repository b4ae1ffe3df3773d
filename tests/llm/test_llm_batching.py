from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dreamgym.errors import FaultError, ModelError
from dreamgym.llm.batching import MAX_ROUNDS, Gatherer


class Doubler:
    """Doubles numbers, remembers its batches, fails on what it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def run(self, numbers: Sequence[int]) -> list[int | FaultError]:
        self.batches.append(list(numbers))
        if 13 in numbers:
            raise RuntimeError("unlucky batch")
        return [ModelError("odd one") if n == 99 else 2 * n for n in numbers]


def test_coroutines_that_need_a_few_rounds_to_ask_share_one_batch() -> None:
    doubler = Doubler()
    gatherer = Gatherer(doubler.run)

    async def late(number: int) -> int:
        for _ in range(number):
            await asyncio.sleep(0)
        return await gatherer.submit(number)

    async def main() -> list[int]:
        return list(await asyncio.gather(*(late(n) for n in range(8))))

    assert asyncio.run(main()) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert doubler.batches == [list(range(8))]


def test_a_stream_of_newcomers_starves_nobody() -> None:
    doubler = Doubler()
    gatherer = Gatherer(doubler.run)

    async def main() -> None:
        tasks = []
        for number in range(1000, 1000 + 2 * MAX_ROUNDS):
            tasks.append(asyncio.ensure_future(gatherer.submit(number)))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert 2 <= len(doubler.batches) <= 4


def test_a_failing_batch_rejects_all_its_requests_and_the_next_batch_works() -> None:
    gatherer = Gatherer(Doubler().run)

    async def main() -> None:
        results = await asyncio.gather(
            *(gatherer.submit(n) for n in (12, 13, 14)), return_exceptions=True
        )
        assert all(isinstance(result, ModelError) for result in results)
        assert "unlucky batch" in str(results[0])
        assert await gatherer.submit(4) == 8

    asyncio.run(main())


def test_a_fault_of_one_request_is_its_own() -> None:
    gatherer = Gatherer(Doubler().run)

    async def main() -> None:
        good, bad = await asyncio.gather(
            gatherer.submit(1), gatherer.submit(99), return_exceptions=True
        )
        assert good == 2
        assert isinstance(bad, ModelError)

    asyncio.run(main())


def test_cancelling_one_waiter_leaves_the_others_alone() -> None:
    doubler = Doubler()
    gatherer = Gatherer(doubler.run)

    async def main() -> None:
        tasks = [asyncio.ensure_future(gatherer.submit(n)) for n in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [results[0], results[2], results[3]] == [0, 4, 6]
        assert isinstance(results[1], asyncio.CancelledError)

    asyncio.run(main())
    assert doubler.batches == [[0, 2, 3]]


def test_a_loop_that_died_with_requests_waiting_does_not_block_the_next() -> None:
    gatherer = Gatherer(Doubler().run)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await gatherer.submit(5)

    for _ in range(3):
        asyncio.run(give_up())

        async def ask() -> int:
            return await gatherer.submit(6)

        assert asyncio.run(ask()) == 12
