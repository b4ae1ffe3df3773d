"""Gather concurrent requests of one event loop into one batch.

No threads and no timers: a batch runs, on the event loop, once no coroutine has added a request
for a few rounds of the loop.  Every rollout that can run has then had its turn to ask.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dreamgym.errors import FaultError, ModelError

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")

QUIET_ROUNDS = 4
"""Loop rounds without a new request before a batch runs."""
MAX_ROUNDS = 64
"""A batch runs after this many rounds whatever still arrives, so that nobody starves."""


class _Queue(Generic[RequestT, ResultT]):
    def __init__(self) -> None:
        self.waiting: list[tuple[RequestT, asyncio.Future[ResultT]]] = []
        self.is_scheduled = False
        self.quiet = self.rounds = 0


class Gatherer(Generic[RequestT, ResultT]):
    """Runs `run` on the requests that concurrent `submit` calls brought together.

    `run` returns one result or one `FaultError` per request, in order.  When it raises, all
    requests of the batch fail with `ModelError`.  Event loops are served independently.
    """

    def __init__(self, run: Callable[[Sequence[RequestT]], Sequence[ResultT | FaultError]]) -> None:
        self._run = run
        self._queues: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, _Queue[RequestT, ResultT]
        ] = weakref.WeakKeyDictionary()

    async def submit(self, request: RequestT) -> ResultT:
        """Return the result for one request; cancelling it leaves the others alone."""
        loop = asyncio.get_running_loop()
        queue = self._queues.setdefault(loop, _Queue())
        future: asyncio.Future[ResultT] = loop.create_future()
        queue.waiting.append((request, future))
        queue.quiet = 0
        if not queue.is_scheduled:
            queue.is_scheduled, queue.rounds = True, 0
            loop.call_soon(self._tick, loop)
        return await future

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        queue = self._queues[loop]
        queue.quiet += 1
        queue.rounds += 1
        if queue.quiet <= QUIET_ROUNDS and queue.rounds < MAX_ROUNDS:
            loop.call_soon(self._tick, loop)
            return
        waiting = [(request, future) for request, future in queue.waiting if not future.done()]
        queue.waiting = []
        queue.is_scheduled = False
        if waiting:
            self._serve(waiting)

    def _serve(self, waiting: list[tuple[RequestT, asyncio.Future[ResultT]]]) -> None:
        try:
            results = self._run([request for request, _ in waiting])
        except Exception as error:
            for _, future in waiting:
                failure = ModelError(f"generation failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                future.set_exception(failure)
            return
        for (_, future), result in zip(waiting, results, strict=True):
            if isinstance(result, FaultError):
                future.set_exception(result)
            else:
                future.set_result(result)
