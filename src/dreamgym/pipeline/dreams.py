"""A dream folder: everything needed to dream, as `dreamgym fit` leaves it.

runs/em/
    config.json     what was asked for
    model/          the experience model (Hugging Face layout)
    tasks.jsonl     the tasks of fitted games, with their hindsight scenarios
    buffer/         the replay buffer of real transitions
    accuracy.json   whole-step accuracy on games held out of fitting
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dreamgym.config import build_config
from dreamgym.dream.annotate import AnnotateConfig
from dreamgym.dream.experience import ExperienceConfig, ExperienceModel
from dreamgym.dream.prompt import PromptConfig
from dreamgym.dream.teacher import TeacherConfig
from dreamgym.envs.base import StateReader
from dreamgym.envs.table import make_reader
from dreamgym.errors import ConfigError, DataError
from dreamgym.fit import FitConfig
from dreamgym.llm.local import LocalChat
from dreamgym.pipeline.models import load_folder
from dreamgym.pipeline.settings import ModelSettings, Settings
from dreamgym.records import RecordWriter, read_json, read_records
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.replay.guard import EVALUATION_SPLITS
from dreamgym.types import Task, Transition


class TeacherSettings(Settings, frozen=True, kw_only=True):
    """A teacher that writes the rationales; without one the suite's reader explains."""

    url: str = ""
    """Base URL of an OpenAI-compatible endpoint, e.g. `http://localhost:8000/v1`."""
    model: str = ""
    ask: TeacherConfig = TeacherConfig()

    def __post_init__(self) -> None:
        """Refuse half a teacher."""
        if bool(self.url) != bool(self.model):
            missing = "--teacher-model" if self.url else "--teacher-url"
            raise ConfigError(f"a teacher needs both a URL and a model name; {missing} is missing")


class FitSettings(Settings, frozen=True, kw_only=True):
    """What to fit an experience model on, and how it is asked later."""

    logs: tuple[str, ...] = ()
    """Record files of real episodes."""
    model: ModelSettings = ModelSettings()
    out: str = "runs/em"
    seed: int = 0
    heldout_share: float = 0.12
    """Share of the logged tasks kept out of fitting, to measure the model on."""
    accuracy_examples: int = 1500
    """Held-out examples the model is measured on."""
    buffer_capacity: int = 20000
    """Transitions the replay buffer holds."""
    annotate: AnnotateConfig = AnnotateConfig(negatives=2, neighbours=1, history=1)
    ask: ExperienceConfig = ExperienceConfig(
        prompt=PromptConfig(
            style="compact", scenario="relevant", past="actions", neighbours=1, history=1
        ),
        max_tokens=96,
    )
    fit: FitConfig = FitConfig(steps=900)
    teacher: TeacherSettings = TeacherSettings()

    def __post_init__(self) -> None:
        """Refuse shares that leave nothing to fit on."""
        if not 0 <= self.heldout_share < 1:
            raise ConfigError(f"heldout_share must be in [0, 1); got {self.heldout_share}")


class Dream(msgspec.Struct, frozen=True, kw_only=True):
    """What a dream folder holds, loaded."""

    path: str
    settings: FitSettings
    tasks: list[Task]
    reader: Any
    """A `StateReader` that has seen the real transitions."""
    transitions: list[Transition]
    """The contents of the replay buffer."""
    experience: Any
    """The `ExperienceModel`, ready to answer."""

    @property
    def suite(self) -> str:
        """The suite that is dreamt of."""
        return self.tasks[0].suite


def check_dream(path: str | Path) -> FitSettings:
    """Return the settings of a dream folder; raises `ConfigError` when it is not a complete one."""
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{str(folder)!r} is not a dream folder (it has no config.json); "
            "make one with `dreamgym fit`"
        )
    plain = read_json(folder / "config.json")
    if not isinstance(plain, dict) or "ask" not in plain or "heldout_share" not in plain:
        raise ConfigError(
            f"{str(folder)!r} is a run folder, but not one of `dreamgym fit`; give that one"
        )
    if not (folder / "accuracy.json").is_file():
        raise ConfigError(f"the fit in {str(folder)!r} is not finished; run `dreamgym fit` again")
    return build_config(FitSettings, plain)


def load_dream(path: str | Path) -> Dream:
    """Load a dream folder; raises `ConfigError` or `DataError` when it is not a complete one."""
    folder = Path(path)
    settings = check_dream(folder)
    tasks = read_records(folder / "tasks.jsonl", Task, kind="task").records
    if not tasks:
        raise DataError(f"{str(folder / 'tasks.jsonl')!r} holds no tasks")
    buffer = open_buffer(folder / "buffer", settings.buffer_capacity)
    transitions = buffer.transitions
    buffer.close()
    return Dream(
        path=str(folder),
        settings=settings,
        tasks=tasks,
        reader=make_reader(tasks[0].suite).learned(transitions),
        transitions=transitions,
        experience=load_experience(folder / "model", settings),
    )


def load_experience(folder: Path, settings: FitSettings) -> ExperienceModel:
    """Return the experience model in a model folder, ready to answer."""
    model, tokenizer = load_folder(folder)
    return make_experience(model, tokenizer, settings)


def make_experience(model: Any, tokenizer: Any, settings: FitSettings) -> ExperienceModel:
    """Return an experience model around weights in memory."""
    from dreamgym.llm.engine import make_engine

    window = int(getattr(model.config, "max_position_embeddings", settings.model.max_context))
    engine = make_engine(model, max_context=min(settings.model.max_context, window), max_batch=128)
    return ExperienceModel(LocalChat(engine, tokenizer, "experience"), settings.ask)


def open_buffer(folder: Path, capacity: int) -> ReplayBuffer:
    """Open (or make) a durable replay buffer that refuses evaluation tasks."""
    return ReplayBuffer(
        folder, HashedNgramEncoder(), capacity=capacity, forbidden_splits=EVALUATION_SPLITS
    )


def write_tasks(path: Path, tasks: Sequence[Task]) -> None:
    """Write a task file, replacing an earlier one."""
    path.unlink(missing_ok=True)
    with RecordWriter(path, "task") as writer:
        for task in tasks:
            writer.write(task)


def reader_for(suite: str, transitions: Sequence[Transition]) -> StateReader:
    """Return the reader of a suite that has seen these real transitions."""
    return make_reader(suite).learned(transitions)
