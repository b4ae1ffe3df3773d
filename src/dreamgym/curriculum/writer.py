"""Where a generated task's scenario comes from: the seed's world, or a model's pen.

Both return a scenario whose first observation states the new task, or None when there is none
that fits.  A scenario is written once per task and pinned to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from dreamgym.curriculum.prompts import Example, parse_facts, scenario_messages
from dreamgym.dream.reply import ReplyProblem
from dreamgym.errors import ConfigError
from dreamgym.llm.base import ChatModel
from dreamgym.seeds import derive_seed
from dreamgym.types import Scenario, Task

CheckScenario = Callable[[Task, Scenario], str | None]
"""Returns why a task cannot be played in a scenario, None if it can."""
FindExamples = Callable[[Task], Sequence[Example]]
"""Returns similar tasks with known scenarios."""


def retarget(task: Task, scenario: Scenario) -> Scenario | None:
    """Return the same world asked for another task; None if its first text states no task.

    The seed's instruction, which ends the first observation, gives way to the new one.
    """
    old = scenario.success_criterion
    head, found, tail = scenario.first_observation.rpartition(old) if old else ("", "", "")
    if not found:
        return None
    return replace(
        scenario,
        first_observation=f"{head}{task.instruction}{tail}",
        success_criterion=task.instruction,
    )


class SameWorld:
    """Uses the seed's world as it is, if the check finds the new task possible in it."""

    def __init__(self, check: CheckScenario) -> None:
        self._check = check

    async def __call__(self, task: Task, seed: Scenario) -> Scenario | None:
        """Return the scenario of the task, or None."""
        scenario = retarget(task, seed)
        return scenario if scenario is not None and self._check(task, scenario) is None else None


class ChatScenarioWriter:
    """Lets a model write what the seed world's places contain.

    An unreadable or impossible answer is asked again up to `attempts` times in all, then the
    task is given up.  All facts are recorded as written by a model.  Raises `ModelError` when
    the model cannot be reached.
    """

    def __init__(
        self,
        chat: ChatModel,
        *,
        check: CheckScenario,
        examples: FindExamples | None = None,
        attempts: int = 2,
        max_tokens: int = 512,
        temperature: float = 0.7,
        seed: int = 0,
        compact: bool = False,
    ) -> None:
        if attempts < 1:
            raise ConfigError(f"attempts must be at least 1; got {attempts}")
        self.chat = chat
        self.counters: Counter[str] = Counter()
        self._check = check
        self._examples = examples or (lambda task: ())
        self._attempts = attempts
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._seed = seed
        self._compact = compact

    async def __call__(self, task: Task, seed: Scenario) -> Scenario | None:
        """Return the scenario of the task, or None."""
        world = retarget(task, seed)
        if world is None:
            return None
        places = tuple(seed.facts)
        messages = scenario_messages(
            task.instruction,
            world=world.first_observation,
            places=places,
            examples=self._examples(task),
            compact=self._compact,
        )
        for attempt in range(self._attempts):
            reply = await self.chat.reply(
                messages,
                seed=derive_seed(self._seed, "scenario", task.id, attempt),
                max_tokens=self._max_tokens,
                temperature=self._temperature,
            )
            try:
                if reply.finish == "length":
                    raise ReplyProblem("cut at the token limit")
                scenario = replace(world, facts=parse_facts(reply.text, places), written=places)
            except ReplyProblem:
                self.counters["unreadable"] += 1
                continue
            if self._check(task, scenario) is None:
                return scenario
            self.counters["impossible"] += 1
        return None
