from __future__ import annotations

import asyncio

from dreamgym.envs.base import Suite
from dreamgym.envs.table import make_suite
from dreamgym.seeds import derive_random
from dreamgym.types import Observation, Step, Task

Record = list[Observation | Step]


async def play(suite: Suite, task: Task, attempt: int) -> Record:
    """Play random admissible actions, letting others go on after every step."""
    random = derive_random("together", task.id, attempt)
    env = suite.open(task, seed=attempt)
    observation = await env.start()
    record: Record = [observation]
    for _ in range(12):
        await asyncio.sleep(0)
        step = await env.step(random.choice(observation.actions or ("look",)))
        record.append(step)
        observation = step.observation
        if step.terminated or step.truncated:
            break
    await env.close()
    return record


def test_a_hundred_interleaved_household_episodes_equal_those_one_after_another() -> None:
    suite = make_suite("household", size="tiny", num_tasks=25)
    jobs = [(task, attempt) for task in suite.tasks("train") for attempt in range(4)]

    async def alone() -> list[Record]:
        return [await play(suite, task, attempt) for task, attempt in jobs]

    async def together() -> list[Record]:
        return await asyncio.gather(*(play(suite, task, attempt) for task, attempt in jobs))

    assert len(jobs) == 100
    assert asyncio.run(together()) == asyncio.run(alone())
