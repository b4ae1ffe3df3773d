"""A curriculum over logged tasks: the experience model varies tasks and writes their worlds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from dreamgym.curriculum.generate import GeneratorConfig, TaskGenerator
from dreamgym.curriculum.prompts import (
    scenario_messages,
    scenario_target,
    vary_messages,
    vary_target,
)
from dreamgym.curriculum.sampler import CurriculumConfig, CurriculumSampler
from dreamgym.curriculum.writer import ChatScenarioWriter, SameWorld
from dreamgym.dream.examples import ChatExample
from dreamgym.dream.scenario import known_share
from dreamgym.envs.base import StateReader
from dreamgym.llm.base import ChatModel
from dreamgym.pipeline.settings import Settings
from dreamgym.seeds import derive_random, derive_seed
from dreamgym.train import IterationResult, Loop
from dreamgym.types import Scenario, Task


class CurriculumSettings(Settings, frozen=True, kw_only=True):
    """How tasks are weighted and varied."""

    enabled: bool = True
    """Off: all tasks equally often, none generated."""
    sampler: CurriculumConfig = CurriculumConfig()
    grow_every: int = 5
    """Iterations between rounds of writing new tasks; 0 writes none."""
    proposals: int = 3
    """Variations asked for per seed task."""
    max_tokens: int = 160
    """Token limit of a written task list or scenario."""


class Checks:
    """What a generated task has to pass, from logged sentences and facts alone."""

    def __init__(self, reader: StateReader, tasks: Iterable[Task]) -> None:
        self._reader = reader
        self._sentences = sorted({task.instruction for task in tasks})

    def instruction(self, seed: Task, instruction: str) -> str | None:
        """Return why an instruction cannot be a task beside its seed task."""
        if not self._reader.template(instruction):
            return "the task sentence has none of the known forms"
        return None

    def scenario(self, task: Task, scenario: Scenario) -> str | None:
        """Return why a task cannot be played in a scenario."""
        return self._reader.infeasible(task.instruction, scenario.facts, self._sentences)


class ScenarioWriters:
    """Keeps the seed's world where the new task is possible in it, else lets the model write."""

    def __init__(self, same: SameWorld, chat: ChatScenarioWriter) -> None:
        self._same = same
        self._chat = chat

    async def __call__(self, task: Task, seed: Scenario) -> Scenario | None:
        """Return the scenario of the task, or None."""
        return await self._same(task, seed) or await self._chat(task, seed)


def make_curriculum(
    tasks: Sequence[Task],
    reader: StateReader,
    chat: ChatModel,
    settings: CurriculumSettings,
    *,
    compact: bool,
    seed: int,
    evaluation_tasks: Iterable[Task] = (),
) -> CurriculumSampler:
    """Return the curriculum over logged tasks with the experience model behind it.

    `compact` leaves out the system prompts, as in the experience model's own prompts.
    """
    checks = Checks(reader, tasks)
    writer = ScenarioWriters(
        SameWorld(checks.scenario),
        ChatScenarioWriter(
            chat,
            check=checks.scenario,
            compact=compact,
            seed=derive_seed(seed, "scenario"),
            max_tokens=settings.max_tokens,
        ),
    )
    generator = TaskGenerator(
        chat,
        validate=checks.instruction,
        template_key=reader.template,
        evaluation_tasks=evaluation_tasks,
        scenario_writer=writer,
        config=GeneratorConfig(
            proposals=settings.proposals,
            two_stage=not compact,
            compact=compact,
            max_tokens=settings.max_tokens,
        ),
    )
    options: dict[str, Any] = {
        name: getattr(settings.sampler, name) for name in CurriculumConfig.__struct_fields__
    }
    return CurriculumSampler(
        tasks, seed=derive_seed(seed, "sampler"), generator=generator, **options
    )


class TaskWriter:
    """A subscriber that lets the curriculum grow every few iterations."""

    def __init__(self, sampler: CurriculumSampler, *, every: int) -> None:
        self._sampler = sampler
        self._every = every

    async def __call__(self, loop: Loop, result: IterationResult) -> bool:
        """Vary the most valuable tasks when it is time."""
        if self._every and (result.step + 1) % self._every == 0:
            result.metrics["curriculum/new"] = float(await self._sampler.grow())
        return True

    def state_dict(self) -> dict[str, object]:
        """The sampler keeps its own state."""
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Nothing to restore."""


def mode_examples(
    tasks: Sequence[Task], *, compact: bool, seed: int, variations: int = 3
) -> list[ChatExample]:
    """Return examples of varying tasks and writing scenarios, made from logged tasks.

    A variation of a task is another task logged in the same room; a scenario to write is the
    hindsight scenario of a logged task, where nothing in it is open.
    """
    rooms: dict[str, set[str]] = defaultdict(set)
    for task in tasks:
        rooms[task.room].add(task.instruction)
    examples = []
    for task in tasks:
        rng = derive_random(seed, "variations", task.id)
        others = sorted(rooms[task.room] - {task.instruction})
        if others:
            chosen = rng.sample(others, min(variations, len(others)))
            messages = vary_messages(task, len(chosen), compact=compact)
            examples.append(
                ChatExample(messages=tuple(messages), target=vary_target(chosen), kind="vary")
            )
        if task.scenario is not None and known_share(task.scenario) == 1.0:
            messages = scenario_messages(
                task.instruction,
                world=task.scenario.first_observation,
                places=tuple(task.scenario.facts),
                compact=compact,
            )
            target = scenario_target(task.scenario)
            examples.append(ChatExample(messages=tuple(messages), target=target, kind="scenario"))
    return examples
