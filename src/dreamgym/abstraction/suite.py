"""A suite seen through a mapper: the same pages, abstract; works on real suites and on dreams."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from dreamgym.abstraction.mapper import Mapper, RuleMapper
from dreamgym.envs.base import Env, Suite
from dreamgym.types import Observation, Step, Task


class AbstractEnv:
    """One episode whose observations are abstract; everything else is the inner episode's."""

    def __init__(self, inner: Env, mapper: Mapper, instruction: str) -> None:
        """`instruction` is what elements are chosen for."""
        self._inner = inner
        self._mapper = mapper
        self._instruction = instruction

    async def start(self) -> Observation:
        """Return the first observation; the instruction is in it."""
        seen = await self._mapper.abstract(await self._inner.start(), self._instruction)
        if " ".join(self._instruction.split()) in " ".join(seen.text.split()):
            return seen
        return replace(seen, text=f"Task: {self._instruction}\n{seen.text}")

    async def step(self, action: str) -> Step:
        """Apply one action to the inner episode; elements not shown can be acted on as well."""
        step = await self._inner.step(action)
        seen = await self._mapper.abstract(step.observation, self._instruction)
        return replace(step, observation=seen)

    async def close(self) -> None:
        """Close the inner episode."""
        await self._inner.close()


class AbstractSuite:
    """A suite with abstract observations: `AbstractSuite(inner)`; tasks and rewards are inner's."""

    def __init__(self, inner: Suite, mapper: Mapper | None = None) -> None:
        """`mapper` is `RuleMapper()` unless given."""
        self.inner = inner
        self.name = inner.name
        self.splits: tuple[str, ...] = tuple(getattr(inner, "splits", ()))
        self.max_steps: object = getattr(inner, "max_steps", None)
        self._mapper = mapper or RuleMapper()

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the inner suite's tasks."""
        return self.inner.tasks(split)

    def open(self, task: Task, *, seed: int) -> AbstractEnv:
        """Return an episode with abstract observations."""
        return AbstractEnv(self.inner.open(task, seed=seed), self._mapper, task.instruction)
