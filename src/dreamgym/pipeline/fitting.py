"""`dreamgym fit`: an experience model from logged episodes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from dreamgym.clone import action_text
from dreamgym.dream.accuracy import measure_accuracy
from dreamgym.dream.annotate import AnnotatedTransition, Annotator, logged_successes, scenario_tasks
from dreamgym.dream.prompt import PromptConfig, step_messages, step_target
from dreamgym.dream.teacher import Annotation, Rationales, Teacher, rationales
from dreamgym.envs.base import StateReader
from dreamgym.errors import DataError
from dreamgym.fit import TokenStream, train_on_stream
from dreamgym.llm.base import ChatModel
from dreamgym.llm.cache import CachedChat
from dreamgym.llm.endpoint import EndpointChat
from dreamgym.llm.render import Renderer
from dreamgym.pipeline.curriculum import mode_examples
from dreamgym.pipeline.dreams import (
    FitSettings,
    make_experience,
    open_buffer,
    reader_for,
    write_tasks,
)
from dreamgym.pipeline.logs import Logs
from dreamgym.pipeline.models import make_learner, save_trained, start_model
from dreamgym.progress import progress
from dreamgym.records import write_json_atomic
from dreamgym.runs import RunFolder
from dreamgym.seeds import derive_random, derive_seed
from dreamgym.types import Rollout, Task


class Games(msgspec.Struct, frozen=True, kw_only=True):
    """Logged episodes, split by task into fitting and held out."""

    fitting: list[Rollout]
    heldout: list[Rollout]
    tasks: dict[str, Task]
    """All logged tasks with their hindsight scenarios."""
    seed_tasks: list[Task]
    """Those of the fitted games: what a dream may start from."""


def split_games(logs: Logs, reader: StateReader, settings: FitSettings) -> Games:
    """Return the logs split by task; the same seed holds out the same tasks."""
    tasks = scenario_tasks(logs.rollouts, reader)
    ids = sorted(tasks)
    derive_random(settings.seed, "heldout").shuffle(ids)
    count = int(len(ids) * settings.heldout_share)
    if settings.heldout_share and len(ids) > 1:
        count = max(count, 1)
    heldout = frozenset(ids[:count])
    return Games(
        fitting=[r for r in logs.rollouts if r.task.id not in heldout],
        heldout=[r for r in logs.rollouts if r.task.id in heldout],
        tasks=tasks,
        seed_tasks=[task for key, task in tasks.items() if key not in heldout],
    )


def fit_dream(
    settings: FitSettings, logs: Logs, run: RunFolder, *, teacher: ChatModel | None = None
) -> dict[str, Any]:
    """Fit, measure and save; returns loss, sizes, accuracy and the teacher's counters.

    `teacher` replaces the endpoint of the settings.
    """
    transitions = [t for rollout in logs.rollouts for t in rollout.transitions]
    reader = reader_for(logs.suite, transitions)
    games = split_games(logs, reader, settings)
    taught, counters = teach(settings, games.fitting, run.path, teacher)
    shutil.rmtree(run.path / "buffer", ignore_errors=True)  # of a fit that was killed
    buffer = open_buffer(run.path / "buffer", settings.buffer_capacity)
    buffer.add(t for rollout in games.fitting for t in rollout.transitions)
    annotator = Annotator(
        reader,
        games.tasks,
        buffer=buffer if settings.ask.prompt.neighbours else None,
        config=replace(settings.annotate, seed=derive_seed(settings.seed, "annotate")),
        rationales=taught,
        successes=logged_successes(games.fitting, reader),
    )
    annotated = _annotate(annotator, games.fitting)
    model, tokenizer = start_model(
        settings.model,
        lambda: tokenizer_texts(annotated, games.fitting),
        seed=derive_seed(settings.seed, "experience"),
    )
    learner = make_learner(model, tokenizer, settings.model.learning)
    fit = replace(settings.fit, seed=derive_seed(settings.seed, "fit"))
    compact = settings.ask.prompt.style == "compact"
    extra = mode_examples(games.seed_tasks, compact=compact, seed=settings.seed)
    stream = TokenStream(annotated, extra, Renderer(tokenizer), settings.ask.prompt, fit)
    with progress("fitting the experience model", fit.steps) as bar:
        loss = train_on_stream(
            learner,
            stream.batch,
            config=fit,
            on_step=lambda step, value: bar.advance(1, f"loss {value:.3f}"),
        )
    save_trained(learner, run.path / "model")
    write_tasks(run.path / "tasks.jsonl", games.seed_tasks)
    heldout = _annotate(annotator, games.heldout)[: settings.accuracy_examples]
    experience = make_experience(learner.model, tokenizer, settings)
    accuracy = asyncio.run(measure_accuracy(experience, heldout, reader)).as_dict()
    buffer.close()
    write_json_atomic(run.path / "accuracy.json", accuracy)  # last: it marks the dream complete
    return {
        "loss": loss,
        "examples": len(annotated),
        "transitions": logs.num_transitions,
        "tasks": len(games.seed_tasks),
        "accuracy": accuracy,
        "teacher": counters,
    }


def teach(
    settings: FitSettings,
    rollouts: Sequence[Rollout],
    folder: Path,
    chat: ChatModel | None = None,
) -> tuple[Rationales, dict[str, int]]:
    """Return the teacher's rationales and counters; none without a teacher.

    Answers are kept in `teacher_cache.jsonl`, so that a killed fit asks nothing twice; the
    annotations are written to `annotations.json`.
    """
    if chat is None and not settings.teacher.url:
        return {}, {}
    endpoint = None
    if chat is None:
        chat = endpoint = EndpointChat(settings.teacher.url, settings.teacher.model)
    teacher = Teacher(
        CachedChat(chat, folder / "teacher_cache.jsonl"), settings.teacher.ask, seed=settings.seed
    )

    async def ask() -> list[Annotation]:
        try:
            with progress("asking the teacher", len(rollouts)) as bar:
                return await teacher.annotate_all(rollouts, on_episode=bar.advance)
        finally:
            if endpoint is not None:
                await endpoint.close()

    annotations = asyncio.run(ask())
    if not annotations:
        reason = next(iter(teacher.reasons.values()), "no episodes")
        raise DataError(
            f"the teacher annotated none of {len(rollouts)} episodes; first reason: {reason}; "
            "check its URL, model and key, or fit without a teacher"
        )
    write_json_atomic(folder / "annotations.json", annotations)
    return rationales(annotations), dict(teacher.counters)


def _annotate(annotator: Annotator, rollouts: Iterable[Rollout]) -> list[AnnotatedTransition]:
    return [example for rollout in rollouts for example in annotator.annotate(rollout)]


def tokenizer_texts(
    annotated: Sequence[AnnotatedTransition], rollouts: Sequence[Rollout]
) -> list[str]:
    """Return everything the model reads and writes, to train a tokenizer on."""
    prompt = PromptConfig(style="compact", neighbours=0)
    texts = [rollout.transitions[0].observation.text for rollout in rollouts]
    texts += [
        action_text(t.action, t.thought) for r in rollouts for t in r.transitions if t.thought
    ]
    for example in annotated:
        texts += [message.content for message in step_messages(prompt, example.context)]
        texts.append(
            step_target(
                prompt,
                rationale=example.rationale,
                next_text=example.next_text,
                reward=example.reward,
                done=example.done,
            )
        )
        texts.append(action_text(example.context.action))
    return texts
