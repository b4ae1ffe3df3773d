"""`dreamgym judge`: trajectories from files, a judge from settings, one JSON file out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from dreamgym.collect import read_rollouts
from dreamgym.errors import ConfigError
from dreamgym.judge.judge import Judge, JudgeResult, make_pairs
from dreamgym.judge.rubrics import TextLimits
from dreamgym.llm.base import ChatModel
from dreamgym.llm.budget import Spent
from dreamgym.llm.connect import Connection, EndpointSettings, connect
from dreamgym.pipeline.settings import Settings
from dreamgym.progress import progress
from dreamgym.records import read_json, write_json_atomic
from dreamgym.types import Rollout

JSON_NAME = "judge.json"
REAL_RECORDS = ("agent_logs", "logs")
"""Record files of a run with real episodes, the agent's own first."""
DREAM_RECORDS = ("dream",)


class JudgeSettings(Settings, frozen=True, kw_only=True):
    """What to judge, and by whom: an endpoint, or a model folder."""

    run: str = ""
    """A run folder with recorded real and dreamt episodes."""
    real: tuple[str, ...] = ()
    """Record files of real episodes; empty: those of the run."""
    dream: tuple[str, ...] = ()
    """Record files of dreamt episodes; empty: those of the run."""
    endpoint: EndpointSettings = EndpointSettings()
    model: str = ""
    """A model folder instead of an endpoint."""
    pairs: int = 100
    attempts: int = 3
    """Questions per verdict, the first one included."""
    seed: int = 0
    text: TextLimits = TextLimits()
    out: str = ""
    """Folder of the result; empty: `judge/` in the run."""
    own_models: tuple[str, ...] = ()
    """Further names of models that wrote the trajectories."""

    def __post_init__(self) -> None:
        """Refuse what cannot be judged."""
        for name in ("pairs", "attempts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.endpoint.url and self.model:
            raise ConfigError("one judge is enough: give an endpoint or a model folder, not both")


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The result and what it cost; `spent` is None for a local model."""

    result: JudgeResult
    spent: Spent | None


def run_judge(settings: JudgeSettings, *, chat: ChatModel | None = None) -> tuple[Judged, Path]:
    """Judge and write `judge.json`; `chat` replaces the judge of the settings."""
    folder = _folder(settings)
    pairs = make_pairs(
        _rollouts(settings, "real", settings.real, REAL_RECORDS),
        _rollouts(settings, "dream", settings.dream, DREAM_RECORDS),
        count=settings.pairs,
        seed=settings.seed,
    )
    folder.mkdir(parents=True, exist_ok=True)
    connection: Connection | None = None
    if chat is None and not settings.model:
        connection = connect(settings.endpoint, folder, name="judge")
        chat = connection.chat
    judge = Judge(
        chat or _local(settings),
        seed=settings.seed,
        attempts=settings.attempts,
        limits=settings.text,
    )

    async def ask() -> JudgeResult:
        try:
            with progress("judging", len(pairs)) as bar:
                return await judge.judge(
                    pairs, own_models=_own_models(settings), on_pair=bar.advance
                )
        finally:
            if connection is not None:
                await connection.endpoint.close()

    try:
        result = asyncio.run(ask())
    finally:
        if connection is not None:
            connection.budget.close()
    found = Judged(result=result, spent=connection.budget.spent if connection else None)
    write_json_atomic(folder / JSON_NAME, found)
    return found, folder


def _folder(settings: JudgeSettings) -> Path:
    if settings.out:
        return Path(settings.out)
    if not settings.run:
        raise ConfigError("nowhere to write the result; give a run folder or --out")
    return Path(settings.run) / "judge"


def _rollouts(
    settings: JudgeSettings, side: str, given: tuple[str, ...], names: tuple[str, ...]
) -> list[Rollout]:
    if given:
        return [rollout for path in given for rollout in read_rollouts(path)]
    if not settings.run:
        raise ConfigError(f"no {side} episodes given; pass --{side} with a record file, or a run")
    records = Path(settings.run) / "records"
    for name in names:
        path = records / f"{name}.jsonl"
        if path.exists():
            return read_rollouts(path)
    raise ConfigError(
        f"the run {settings.run!r} holds no {side} episodes (looked for "
        f"{', '.join(name + '.jsonl' for name in names)}); pass --{side} with a record file"
    )


def _own_models(settings: JudgeSettings) -> list[str]:
    """Return the names of the models behind the trajectories, as far as the run tells them."""
    found = list(settings.own_models)
    path = Path(settings.run) / "config.json" if settings.run else None
    if path is not None and path.is_file():
        found += _names(read_json(path))
    return [name for name in found if name]


# Any: whatever JSON a run's config is.
def _names(config: Any) -> list[str]:
    """Return the values of keys that name a model in a run's config."""
    found: list[str] = []
    if isinstance(config, dict):
        for key, value in config.items():
            if key in ("model", "pretrained", "name") and isinstance(value, str):
                found.append(value)
            else:
                found += _names(value)
    return found


def _local(settings: JudgeSettings) -> ChatModel:
    from dreamgym.llm.engine import make_engine
    from dreamgym.llm.local import LocalChat
    from dreamgym.pipeline.models import load_folder, model_folder

    folder = model_folder(settings.model)
    model, tokenizer = load_folder(folder)
    name = folder.parent.name if folder.name == "model" else folder.name
    return LocalChat(make_engine(model), tokenizer, name)
