"""Where the measured model comes from: a demo run, a dream folder, or a bare model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dreamgym.config import build_config
from dreamgym.dream.experience import ExperienceConfig
from dreamgym.envs.base import Policy, Suite
from dreamgym.envs.table import make_reader
from dreamgym.errors import ConfigError, unknown_name
from dreamgym.fidelity.direct import DirectChat
from dreamgym.fidelity.settings import FidelitySettings
from dreamgym.fidelity.subject import Instructed, Origins, Subject
from dreamgym.llm.base import ChatModel
from dreamgym.llm.connect import connect
from dreamgym.records import read_json
from dreamgym.types import Task

AGENTS = ("warm_start", "dream", "s2r", "baseline")
"""Policies a demo run may hold."""
EXPERIENCE = "experience"
"""The experience model of a demo run that is measured by default: the one dreaming began with."""
MAX_BATCH = 128


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The subject, the tasks it may be measured on, and those it may not."""

    subject: Subject
    tasks: list[Task]
    seen_tasks: frozenset[str]
    """Tasks of the logs the model was fitted on."""
    folder: Path
    """Where results go by default."""


def load_source(settings: FidelitySettings) -> Source:
    """Return what the settings name; raises `ConfigError` when there is nothing to measure."""
    from dreamgym.pipeline.models import quiet_transformers

    if settings.endpoint.url:
        return _from_endpoint(settings)
    if not settings.run and not settings.model:
        raise ConfigError(
            "nothing to measure; give a run folder, --model with a model folder, or --url with an "
            "endpoint"
        )
    quiet_transformers()
    if not settings.run:
        return _from_model(settings)
    folder = Path(settings.run).expanduser()
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{settings.run!r} is no run folder (it has no config.json); give a run of `dreamgym "
            "demo` or `dreamgym fit`, or a model folder with --model"
        )
    plain = read_json(folder / "config.json")
    if isinstance(plain, dict) and "preset" in plain:
        return _from_demo(folder, plain, settings)
    return _from_dream(folder, settings)


def _from_demo(folder: Path, plain: dict[str, Any], settings: FidelitySettings) -> Source:
    from dreamgym.demo.config import DemoConfig
    from dreamgym.demo.context import DemoContext
    from dreamgym.demo.logged import Logged, make_buffer
    from dreamgym.runs import RunFolder

    config = build_config(DemoConfig, plain)
    with RunFolder(folder) as run:
        ctx = DemoContext(config, run)
        name = settings.model or EXPERIENCE
        if not ctx.model_path(name).is_dir():
            known = sorted(path.name for path in (folder / "models").glob("*"))
            raise unknown_name("model of this run", name, known)
        logged = Logged(ctx)
        model, tokenizer = ctx.load_model(name)
        chat, direct = _chats(model, tokenizer, name, config.experience.max_context)
        agents: dict[str, Policy] = {
            agent: ctx.load_agent(agent).policy.with_temperature(0)
            if settings.greedy
            else ctx.load_agent(agent).policy
            for agent in AGENTS
            if ctx.model_path(agent).is_dir()
        }
        subject = Subject(
            name=name,
            suite=ctx.suite,
            chat=chat,
            direct=direct,
            ask=ctx.ask_config,
            reader=logged.reader,
            buffer=make_buffer(ctx, logged, durable=False) if config.levers.replay else None,
            agents=agents,
            max_steps=config.max_steps,
            origins=Origins(
                transitions=sum(len(r.transitions) for r in logged.rollouts),
                seconds=_fit_seconds(folder),
                path=str(folder),
            ),
        )
        tasks = list(ctx.suite.tasks(settings.split))[: settings.tasks]
        seen = frozenset(rollout.task.id for rollout in logged.fitting)
    return Source(subject=subject, tasks=tasks, seen_tasks=seen, folder=folder / "fidelity")


def _fit_seconds(folder: Path) -> float:
    stages = folder / "stages.json"
    if not stages.is_file():
        return 0.0
    found = read_json(stages)
    names = ("collect", "fit", "collect_agent", "refit")
    return float(sum(found[name]["seconds"] for name in names if name in found))


def _from_dream(folder: Path, settings: FidelitySettings) -> Source:
    from dreamgym.pipeline.dreams import check_dream, load_dream, open_buffer
    from dreamgym.pipeline.models import load_folder

    fitted = check_dream(folder)
    dream = load_dream(folder)
    model, tokenizer = load_folder(_model_of(settings, folder / "model"))
    chat, direct = _chats(model, tokenizer, folder.name, fitted.model.max_context)
    suite, tasks = _tasks(settings)
    subject = Subject(
        name=folder.name,
        suite=suite,
        chat=chat,
        direct=direct,
        ask=dream.settings.ask,
        reader=dream.reader,
        buffer=open_buffer(folder / "buffer", fitted.buffer_capacity)
        if fitted.ask.prompt.neighbours
        else None,
        agents={},
        max_steps=settings.max_steps,
        origins=Origins(transitions=len(dream.transitions), path=str(folder)),
    )
    seen = frozenset(task.id for task in dream.tasks)
    return Source(subject=subject, tasks=tasks, seen_tasks=seen, folder=folder / "fidelity")


def _from_model(settings: FidelitySettings) -> Source:
    from dreamgym.pipeline.models import load_folder, model_folder

    if not settings.out:
        raise ConfigError("a bare model folder has no place for results; give --out")
    folder = model_folder(settings.model)
    model, tokenizer = load_folder(folder)
    window = int(getattr(model.config, "max_position_embeddings", settings.play.max_context))
    chat, direct = _chats(model, tokenizer, folder.name, min(window, 4096))
    suite, tasks = _tasks(settings)
    subject = _bare(settings, suite, chat, direct, settings.ask)
    return Source(subject=subject, tasks=tasks, seen_tasks=frozenset(), folder=Path(settings.out))


def _from_endpoint(settings: FidelitySettings) -> Source:
    if not settings.out:
        raise ConfigError("an endpoint has no place for results; give --out")
    found = connect(settings.endpoint, Path(settings.out), name="experience")
    made = bare_source(settings, found.chat, Instructed(found.chat), out=Path(settings.out))
    subject = msgspec.structs.replace(made.subject, price=found.price, close=found.endpoint.close)
    return msgspec.structs.replace(made, subject=subject)


def bare_source(
    settings: FidelitySettings, chat: ChatModel, direct: ChatModel, *, out: Path
) -> Source:
    """Return a source around any chat model, such as an endpoint or a scripted one."""
    suite, tasks = _tasks(settings)
    subject = _bare(settings, suite, chat, direct, settings.ask)
    return Source(subject=subject, tasks=tasks, seen_tasks=frozenset(), folder=out)


def _bare(
    settings: FidelitySettings,
    suite: Suite,
    chat: ChatModel,
    direct: ChatModel,
    ask: ExperienceConfig,
) -> Subject:
    return Subject(
        name=chat.name,
        suite=suite,
        chat=chat,
        direct=direct,
        ask=ask,
        reader=make_reader(settings.suite.name),
        buffer=None,
        agents={},
        max_steps=settings.max_steps,
    )


def _tasks(settings: FidelitySettings) -> tuple[Suite, list[Task]]:
    from dreamgym.pipeline.suites import open_suite

    return open_suite(settings.suite, settings.split, settings.tasks)


def _model_of(settings: FidelitySettings, default: Path) -> Path:
    from dreamgym.pipeline.models import model_folder

    return model_folder(settings.model) if settings.model else default


# Any: models and tokenizers share no typed base.
def _chats(model: Any, tokenizer: Any, name: str, max_context: int) -> tuple[ChatModel, ChatModel]:
    """Return the model as a chat model, and as one that answers without reasoning."""
    from dreamgym.llm.engine import make_engine
    from dreamgym.llm.local import LocalChat

    window = int(getattr(model.config, "max_position_embeddings", max_context))
    engine = make_engine(model, max_context=min(max_context, window), max_batch=MAX_BATCH)
    return LocalChat(engine, tokenizer, name), DirectChat(engine, tokenizer, name)
