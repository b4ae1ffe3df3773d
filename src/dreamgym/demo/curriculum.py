"""The demo's task generator: the experience model varies tasks and writes their worlds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from dreamgym.curriculum.generate import GeneratorConfig, TaskGenerator
from dreamgym.curriculum.prompts import (
    scenario_messages,
    scenario_target,
    vary_messages,
    vary_target,
)
from dreamgym.curriculum.sampler import CurriculumSampler
from dreamgym.curriculum.writer import ChatScenarioWriter, SameWorld
from dreamgym.demo.context import DemoContext
from dreamgym.demo.logged import Logged
from dreamgym.dream.examples import ChatExample
from dreamgym.dream.scenario import known_share
from dreamgym.llm.base import ChatModel
from dreamgym.seeds import derive_random
from dreamgym.train import IterationResult, Loop
from dreamgym.types import Scenario, Task

VARIATIONS = 3


class Checks:
    """What a generated task has to pass, from logged sentences and facts alone."""

    def __init__(self, logged: Logged) -> None:
        self._logged = logged

    @cached_property
    def _sentences(self) -> list[str]:
        return sorted({task.instruction for task in self._logged.tasks.values()})

    def instruction(self, seed: Task, instruction: str) -> str | None:
        """Return why an instruction cannot be a task beside its seed task."""
        if not self._logged.reader.template(instruction):
            return "the task sentence has none of the known forms"
        return None

    def scenario(self, task: Task, scenario: Scenario) -> str | None:
        """Return why a task cannot be played in a scenario."""
        return self._logged.reader.infeasible(task.instruction, scenario.facts, self._sentences)


class Writer:
    """Keeps the seed's world where the new task is possible in it, else lets the model write."""

    def __init__(self, same: SameWorld, chat: ChatScenarioWriter) -> None:
        self._same = same
        self._chat = chat

    async def __call__(self, task: Task, seed: Scenario) -> Scenario | None:
        """Return the scenario of the task, or None."""
        return await self._same(task, seed) or await self._chat(task, seed)


def make_sampler(ctx: DemoContext, logged: Logged, chat: ChatModel) -> CurriculumSampler:
    """Return the curriculum over the logged tasks, with a generator behind it."""
    checks = Checks(logged)
    writer = Writer(
        SameWorld(checks.scenario),
        ChatScenarioWriter(
            chat,
            check=checks.scenario,
            compact=ctx.is_compact,
            seed=ctx.seed("scenario"),
            max_tokens=ctx.config.generated_tokens,
        ),
    )
    generator = TaskGenerator(
        chat,
        validate=checks.instruction,
        template_key=logged.reader.template,
        evaluation_tasks=ctx.evaluation_tasks,
        scenario_writer=writer,
        config=GeneratorConfig(
            proposals=VARIATIONS,
            two_stage=not ctx.is_compact,
            compact=ctx.is_compact,
            max_tokens=ctx.config.generated_tokens,
        ),
    )
    return CurriculumSampler(
        logged.seed_tasks,
        seed=ctx.seed("sampler"),
        generator=generator,
        max_generated_share=ctx.config.max_generated_share,
    )


class TaskWriter:
    """Lets the curriculum grow every few iterations."""

    def __init__(self, sampler: CurriculumSampler, *, every: int) -> None:
        self._sampler = sampler
        self._every = every

    async def __call__(self, loop: Loop, result: IterationResult) -> bool:
        """Vary the most valuable tasks when it is time."""
        if (result.step + 1) % self._every == 0:
            result.metrics["curriculum/new"] = float(await self._sampler.grow())
        return True

    def state_dict(self) -> dict[str, Any]:
        """The sampler keeps its own state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


def mode_examples(ctx: DemoContext, tasks: Sequence[Task]) -> list[ChatExample]:
    """Return examples of varying tasks and writing scenarios, made from the logged tasks.

    A variation of a task is another task logged in the same room; a scenario to write is the
    hindsight scenario of a logged task, where nothing in it is open.
    """
    rooms: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        rooms[task.room].append(task.instruction)
    examples = []
    for task in tasks:
        assert task.scenario is not None
        rng = derive_random(ctx.config.seed, "variations", task.id)
        others = sorted({text for text in rooms[task.room] if text != task.instruction})
        if others:
            chosen = rng.sample(others, min(VARIATIONS, len(others)))
            messages = vary_messages(task, len(chosen), compact=ctx.is_compact)
            examples.append(
                ChatExample(messages=tuple(messages), target=vary_target(chosen), kind="vary")
            )
        if known_share(task.scenario) == 1.0:
            messages = scenario_messages(
                task.instruction,
                world=task.scenario.first_observation,
                places=tuple(task.scenario.facts),
                compact=ctx.is_compact,
            )
            target = scenario_target(task.scenario)
            examples.append(ChatExample(messages=tuple(messages), target=target, kind="scenario"))
    return examples
