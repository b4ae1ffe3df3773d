"""A teacher model writes the rationales an experience model is fitted on.

One request per trajectory, as in the paper (DreamGym, arXiv 2511.03773, Eq. 5 and its annotation
prompt): task, success flag and trajectory in; a task tutorial and one transition plan per step
out.  A reply with another number of plans than steps would put rationales on the wrong steps, so
it is asked again with the count stated.  A trajectory the teacher cannot annotate is counted as a
fault and keeps its rule-based rationales; it never stops the fit.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from dreamgym.dream.reply import ReplyProblem
from dreamgym.errors import ConfigError, ModelError
from dreamgym.llm.base import ChatModel, Message
from dreamgym.seeds import derive_seed
from dreamgym.types import Record, Rollout

Rationales = Mapping[tuple[str, int], str]
"""(Episode id, 0-based step) -> rationale."""

SYSTEM = (
    "You annotate recorded trajectories of a text environment, so that a model can learn to "
    "predict what an action causes. Read the task, whether the trajectory succeeded, and its "
    "numbered steps. Answer with one JSON object and nothing else:\n"
    '{"tutorial":{"overall_plan":"...","success_mode":"...","failure_mode":"..."},'
    '"transition_plans":["...", ...]}\n'
    "Each part of the tutorial is one sentence: how the task is solved, what success looks like, "
    "how attempts fail. There is exactly one transition plan per step, in order: one or two "
    "sentences on whether the action has an effect in that state and why, and how the "
    "environment changes."
)


class TeacherConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a teacher is asked."""

    attempts: int = 3
    """Questions per trajectory, the first one included."""
    max_tokens: int = 4096
    """Token limit of one reply; it holds the plans of a whole trajectory."""
    temperature: float = 0.0
    max_observation_chars: int = 1200
    """Longer observations are cut, with a marker."""
    max_concurrent: int = 8
    """Trajectories under way at once."""
    give_up_after: int = 8
    """Failures of the model in a row after which it is not asked for further trajectories."""

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could be asked."""
        for name in (
            "attempts",
            "max_tokens",
            "max_observation_chars",
            "max_concurrent",
            "give_up_after",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}")


class Tutorial(Record, frozen=True, kw_only=True):
    """What the teacher says about a task, a sentence each."""

    overall_plan: str
    success_mode: str
    failure_mode: str


class Annotation(Record, frozen=True, kw_only=True):
    """A teacher's annotation of one trajectory; `plans[i]` explains step i."""

    episode_id: str
    task_id: str
    tutorial: Tutorial
    plans: tuple[str, ...]


class Teacher:
    """Annotates trajectories through any `ChatModel`; wrap it in `CachedChat` to resume."""

    def __init__(
        self, chat: ChatModel, config: TeacherConfig | None = None, *, seed: int = 0
    ) -> None:
        self.chat = chat
        self.config = config or TeacherConfig()
        self.counters: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        """Episode id -> why it was given up."""
        self._seed = seed
        self._failures = 0
        """Failures of the model (not: unusable replies) in a row."""

    async def annotate(self, rollout: Rollout) -> Annotation | None:
        """Return the annotation of a trajectory, None (a counted fault) if none could be had."""
        messages = teacher_messages(rollout, self.config)
        asked = list(messages)
        reason = "not asked: the teacher had failed too often in a row"
        attempts = self.config.attempts if self._failures < self.config.give_up_after else 0
        for attempt in range(attempts):
            self.counters["teacher/calls"] += 1
            try:
                reply = await self.chat.reply(
                    asked,
                    seed=derive_seed(self._seed, "teacher", rollout.id, attempt),
                    max_tokens=self.config.max_tokens,
                    temperature=self.config.temperature,
                )
                self._failures = 0
                if reply.finish == "length":
                    raise ReplyProblem("the reply was cut at the token limit")
                found = parse_annotation(reply.text, rollout)
            except ReplyProblem as problem:
                self.counters["teacher/unreadable"] += 1
                reason = problem.reason
                complaint = Message("user", f"unusable: {reason}. answer again.")
                asked = [*messages, Message("assistant", reply.text), complaint]
            except ModelError as error:
                self._failures += 1
                reason = str(error)
                break  # the endpoint has already retried what may pass
            else:
                self.counters["teacher/annotated"] += 1
                return found
        self.counters["teacher/faults"] += 1
        self.reasons[rollout.id] = reason
        return None

    async def annotate_all(
        self,
        rollouts: Sequence[Rollout],
        *,
        on_episode: Callable[[], object] = lambda: None,
    ) -> list[Annotation]:
        """Return the annotations that could be had, in the order of the trajectories."""
        gate = asyncio.Semaphore(self.config.max_concurrent)

        async def one(rollout: Rollout) -> Annotation | None:
            async with gate:
                found = await self.annotate(rollout)
            on_episode()
            return found

        results = await asyncio.gather(*(one(r) for r in rollouts if r.transitions))
        return [found for found in results if found is not None]


def rationales(annotations: Sequence[Annotation]) -> dict[tuple[str, int], str]:
    """Return the plans by episode and step, as `Annotator` takes them."""
    return {(a.episode_id, step): plan for a in annotations for step, plan in enumerate(a.plans)}


def teacher_messages(rollout: Rollout, config: TeacherConfig) -> list[Message]:
    """Return the chat that asks for the annotation of a trajectory."""
    limit = config.max_observation_chars
    first = rollout.transitions[0].observation.text
    lines = [
        f"task: {rollout.task.instruction}",
        f"succeeded: {'yes' if rollout.success else 'no'}",
        f"steps: {len(rollout.transitions)}",
        "first observation:",
        _cut(first, limit),
    ]
    for number, transition in enumerate(rollout.transitions, start=1):
        lines.append(f"step {number} action: {transition.action}")
        lines.append(f"step {number} result: {_cut(transition.next_observation.text, limit)}")
    return [Message("system", SYSTEM), Message("user", "\n".join(lines))]


def parse_annotation(text: str, rollout: Rollout) -> Annotation:
    """Return the annotation in a reply; raises `ReplyProblem` saying what is wrong with it."""
    fields = _json_object(text)
    tutorial, plans = fields.get("tutorial"), fields.get("transition_plans")
    if not isinstance(tutorial, dict):
        raise ReplyProblem("tutorial must be an object")
    if not isinstance(plans, list):
        raise ReplyProblem("transition_plans must be a list")
    wanted = len(rollout.transitions)
    if len(plans) != wanted:
        raise ReplyProblem(f"there are {len(plans)} transition plans for {wanted} steps")
    for number, plan in enumerate(plans, start=1):
        if not isinstance(plan, str) or not plan.strip():
            raise ReplyProblem(f"transition plan {number} must be text that is not empty")
    parts = {}
    for key in Tutorial.__struct_fields__:
        if not isinstance(tutorial.get(key), str):
            raise ReplyProblem(f"tutorial.{key} must be text")
        parts[key] = _plain(tutorial[key])
    return Annotation(
        episode_id=rollout.transitions[0].episode_id,
        task_id=rollout.task.id,
        tutorial=Tutorial(**parts),
        plans=tuple(_plain(plan) for plan in plans),
    )


def _json_object(text: str) -> dict[str, object]:
    """Return the first JSON object of a text with prose or fences around it."""
    decoder = json.JSONDecoder(strict=False)
    start = text.find("{")
    if start < 0:
        raise ReplyProblem("there is no JSON object")
    try:
        value, _ = decoder.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise ReplyProblem("the JSON is cut or broken") from error
    assert isinstance(value, dict)  # it starts with a brace
    return value


def _plain(text: str) -> str:
    """Return text on one line, without the tags that would end a rationale early."""
    for tag in ("<think>", "</think>"):
        text = text.replace(tag, " ")
    return " ".join(text.split())


def _cut(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[:limit]} [{len(flat) - limit} characters cut]"
