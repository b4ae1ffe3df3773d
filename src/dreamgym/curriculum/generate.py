"""New tasks from valuable ones: a model proposes, picks and writes the scenario; code checks.

Nothing a model says is taken on trust.  A proposal must be readable, pass the suite's validator,
be none of the known tasks in other words, and be no evaluation task: not its text, not a near
text, not its template.  Every refusal is counted by reason, and a model that fails costs its new
task, never the batch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dreamgym.curriculum.prompts import (
    parse_pick,
    parse_variations,
    pick_messages,
    vary_messages,
)
from dreamgym.dream.reply import ReplyProblem
from dreamgym.errors import ConfigError, DataError, ModelError
from dreamgym.llm.base import ChatModel, Message
from dreamgym.replay.guard import EVALUATION_SPLITS, EvaluationGuard
from dreamgym.replay.text import SIMILARITY_METHOD, content_words, is_near
from dreamgym.seeds import derive_seed
from dreamgym.types import Scenario, Task

Validate = Callable[[Task, str], str | None]
"""Takes (seed task, instruction); returns why the suite refuses it, None if it is fine."""
TemplateKey = Callable[[str], str]
"""Returns what an instruction asks for without ids: equal for equal templates, "" if unknown."""
ScenarioWriter = Callable[[Task, Scenario], Awaitable[Scenario | None]]
"""Takes (new task, seed's scenario); returns the new task's scenario, None if it has none."""


class GeneratorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tasks are varied."""

    proposals: int = 4
    """Variations asked for per seed task (n in the paper)."""
    two_stage: bool = True
    """A second call picks one of the usable variations, as in the paper; else the first is kept."""
    duplicate_threshold: float = 0.9
    """Similarity from which two instructions are the same task."""
    evaluation_threshold: float = 0.9
    """Similarity from which an instruction is an evaluation task's."""
    temperature: float = 0.9
    max_tokens: int = 256
    compact: bool = False
    """Leave out the system prompts."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        if self.proposals < 1:
            raise ConfigError(f"proposals must be at least 1; got {self.proposals}")
        for name in ("duplicate_threshold", "evaluation_threshold"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} must be in (0, 1]; got {getattr(self, name)}")


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that did not become a task."""

    seed_id: str
    reason: str
    detail: str = ""


class TaskGenerator:
    """Varies tasks with a chat model; see the module for what is checked.

    `evaluation_tasks` are the tasks no variation may come near.  Without a `scenario_writer` the
    new tasks have no scenario yet.
    """

    def __init__(
        self,
        chat: ChatModel,
        *,
        validate: Validate,
        template_key: TemplateKey,
        evaluation_tasks: Iterable[Task],
        scenario_writer: ScenarioWriter | None = None,
        config: GeneratorConfig | None = None,
        forbidden_splits: Iterable[str] = EVALUATION_SPLITS,
    ) -> None:
        self.chat = chat
        self.config = config or GeneratorConfig()
        self.counters: Counter[str] = Counter()
        self.refusals: list[Refusal] = []
        """Of the last `generate`."""
        self._validate = validate
        self._template_key = template_key
        self._writer = scenario_writer
        tasks = list(evaluation_tasks)
        self._guard = EvaluationGuard((task.id for task in tasks), forbidden_splits)
        self._texts = {_plain(task.instruction) for task in tasks}
        self._words = {content_words(task.instruction) for task in tasks}
        self._keys = {key for task in tasks if (key := template_key(task.instruction))}

    async def generate(
        self, seeds: Sequence[Task], *, seed: int, existing: Sequence[Task]
    ) -> list[Task]:
        """Return at most one new task per seed task, none of which is in `existing`.

        Tasks count as the same if their instructions are and they play in the same room.  The
        result depends on the arguments only.  Raises `UserError` for a seed task that is an
        evaluation task; a model that fails is counted.
        """
        for task in seeds:
            self._guard.allows(task.id, split=task.split, where="the seed tasks of a generator")
        self.refusals = []
        known = {(task.room, content_words(task.instruction)) for task in (*existing, *seeds)}
        proposals = await asyncio.gather(*(self._propose(task, seed) for task in seeds))
        options = []
        for task, texts in zip(seeds, proposals, strict=True):
            usable = self._usable(task, texts, known)
            known |= {(task.room, content_words(text)) for text in usable}
            options.append(usable)
        picks = await asyncio.gather(
            *(self._pick(task, usable, seed) for task, usable in zip(seeds, options, strict=True))
        )
        chosen = [
            _task(parent, text)
            for parent, text in zip(seeds, picks, strict=True)
            if text is not None
        ]
        parents = [t for t, text in zip(seeds, picks, strict=True) if text is not None]
        written = await asyncio.gather(
            *(self._with_scenario(t, parent) for t, parent in zip(chosen, parents, strict=True))
        )
        tasks = [task for task in written if task is not None]
        self.counters["accepted"] += len(tasks)
        return tasks

    def refusal(self, seed: Task, instruction: str) -> Refusal | None:
        """Return why an instruction may not become a task, whatever else is known."""
        reason = self._evaluation(instruction)
        if reason:
            return Refusal(seed_id=seed.id, reason=reason, detail=instruction)
        detail = self._validate(seed, instruction)
        if detail is not None:
            return Refusal(seed_id=seed.id, reason="invalid", detail=f"{instruction}: {detail}")
        return None

    def metrics(self) -> dict[str, float]:
        """Return counters: `accepted`, `calls`, `model_faults` and `refused/<reason>`."""
        names = ("accepted", "calls", "model_faults")
        counts = {name: float(self.counters[name]) for name in names}
        return counts | {k: float(v) for k, v in self.counters.items() if k not in counts}

    def describe(self) -> dict[str, Any]:
        """Return how duplicates and evaluation tasks are recognised, for the run's records."""
        return {
            "method": SIMILARITY_METHOD,
            "duplicate_threshold": self.config.duplicate_threshold,
            "evaluation_threshold": self.config.evaluation_threshold,
            "evaluation_tasks": len(self._guard.tasks),
            "evaluation_templates": len(self._keys),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return JSON-able state: the counters, and the method they were counted with."""
        return {"counters": dict(self.counters), "checks": self.describe()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore; raises `DataError` for a state counted with other checks."""
        if state["checks"] != self.describe():
            raise DataError(
                f"the generator's state was saved with checks {state['checks']}, now they are "
                f"{self.describe()}; resume with the same evaluation tasks and thresholds"
            )
        self.counters = Counter(state["counters"])

    async def _propose(self, task: Task, seed: int) -> list[str]:
        count = self.config.proposals
        messages = vary_messages(task, count, compact=self.config.compact)
        text = await self._ask(messages, task, seed, "vary")
        if text is None:
            return []
        try:
            return parse_variations(text, count)
        except ReplyProblem as problem:
            self._refuse(Refusal(seed_id=task.id, reason="unreadable", detail=problem.reason))
            return []

    async def _pick(self, task: Task, options: Sequence[str], seed: int) -> str | None:
        if not options:
            return None
        if len(options) == 1 or not self.config.two_stage:
            return options[0]
        messages = pick_messages(task, options, compact=self.config.compact)
        text = await self._ask(messages, task, seed, "pick")
        if text is None:
            return None
        try:
            return options[parse_pick(text, len(options))]
        except ReplyProblem as problem:
            self._refuse(Refusal(seed_id=task.id, reason="unreadable_pick", detail=problem.reason))
            return None

    async def _with_scenario(self, task: Task, parent: Task) -> Task | None:
        if self._writer is None:
            return task
        if parent.scenario is None:
            self._refuse(Refusal(seed_id=parent.id, reason="seed_without_scenario"))
            return None
        try:
            scenario = await self._writer(task, parent.scenario)
        except ModelError as error:
            self._fault(parent, error)
            return None
        if scenario is None:
            self._refuse(Refusal(seed_id=parent.id, reason="scenario", detail=task.instruction))
            return None
        return replace(task, scenario=scenario)

    async def _ask(
        self, messages: Sequence[Message], task: Task, seed: int, stage: str
    ) -> str | None:
        self.counters["calls"] += 1
        try:
            reply = await self.chat.reply(
                messages,
                seed=derive_seed(seed, stage, task.id),
                max_tokens=self.config.max_tokens,
                temperature=self.config.temperature,
            )
        except ModelError as error:
            self._fault(task, error)
            return None
        if reply.finish == "length":
            self._refuse(Refusal(seed_id=task.id, reason="cut_off", detail=reply.text[-60:]))
            return None
        return reply.text

    def _usable(
        self, task: Task, texts: Sequence[str], known: set[tuple[str, frozenset[str]]]
    ) -> list[str]:
        usable: list[str] = []
        others = [words for room, words in known if room == task.room]
        for text in texts:
            words = content_words(text)
            if not words:
                refusal: Refusal | None = Refusal(seed_id=task.id, reason="empty", detail=text)
            elif is_near(words, others, self.config.duplicate_threshold):
                refusal = Refusal(seed_id=task.id, reason="duplicate", detail=text)
            else:
                refusal = self.refusal(task, text)
            if refusal is not None:
                self._refuse(refusal)
                continue
            usable.append(text)
            others.append(words)
        return usable

    def _evaluation(self, instruction: str) -> str:
        """Return which rule finds an evaluation task in an instruction, or nothing."""
        if _plain(instruction) in self._texts:
            return "evaluation_text"
        if self._template_key(instruction) in self._keys:
            return "evaluation_template"
        words = content_words(instruction)
        if is_near(words, self._words, self.config.evaluation_threshold):
            return "evaluation_near"
        return ""

    def _refuse(self, refusal: Refusal) -> None:
        self.counters[f"refused/{refusal.reason}"] += 1
        self.refusals.append(refusal)

    def _fault(self, task: Task, error: ModelError) -> None:
        self.counters["model_faults"] += 1
        self.refusals.append(Refusal(seed_id=task.id, reason="model_fault", detail=str(error)))


def _task(parent: Task, instruction: str) -> Task:
    """Return the task of an instruction: the same parent and text give the same id."""
    number = derive_seed("generated task", parent.suite, parent.id, _plain(instruction))
    return Task(
        id=f"generated-{number:016x}",
        suite=parent.suite,
        instruction=instruction,
        split=parent.split,
        room=parent.room,
        parent_id=parent.id,
        generated=True,
    )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!")
