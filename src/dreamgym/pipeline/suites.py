"""Suites, their tasks, and policies by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dreamgym.envs.base import Policy, Suite
from dreamgym.envs.table import make_suite
from dreamgym.errors import ConfigError, unknown_name
from dreamgym.pipeline.settings import PlaySettings, SuiteSettings
from dreamgym.replay.guard import EVALUATION_SPLITS
from dreamgym.seeds import derive_seed

if TYPE_CHECKING:
    from dreamgym.types import Task


def open_suite(settings: SuiteSettings, split: str, num_tasks: int) -> tuple[Suite, list[Task]]:
    """Return a suite and tasks of a split, fewer where the split has fewer.

    A suite that generates its tasks is asked for as many.  Of given tasks a fixed random sample is
    taken: lists of games are often sorted by type and room, so the first ones would be all alike.
    Raises `ConfigError` for unknown names and for an empty split.
    """
    if num_tasks < 1:
        raise ConfigError(f"tasks must be at least 1; got {num_tasks}")
    suite = make_suite(settings.name, **settings.options)
    if getattr(suite, "source", "") == "generated" and "num_tasks" not in settings.options:
        suite = make_suite(settings.name, **settings.options, num_tasks=num_tasks)
    tasks = list(suite.tasks(split))
    if not tasks:
        raise ConfigError(f"split {split!r} of suite {settings.name!r} has no tasks")
    order = sorted(range(len(tasks)), key=lambda i: derive_seed("panel", split, tasks[i].id))
    return suite, [tasks[i] for i in sorted(order[:num_tasks])]


def refuse_evaluation_split(split: str, *, allow: bool, purpose: str) -> None:
    """Refuse evaluation tasks where something could be learned from them."""
    if split in EVALUATION_SPLITS and not allow:
        raise ConfigError(
            f"split {split!r} is for evaluation and may not be used for {purpose}; use the split "
            "'train', or pass --allow-evaluation-split if nothing will be trained on it"
        )


def load_policy(name: str, suite: Suite, play: PlaySettings) -> Policy:
    """Return one of the suite's policies by name, or the model in a folder as a policy.

    A folder may be a model folder or a run folder with one in `model/`.
    """
    if not name:
        raise ConfigError("no policy given; name a policy of the suite or a model folder")
    if is_path(name):
        from dreamgym.pipeline.models import load_agent

        return load_agent(name, play).policy
    make = getattr(suite, "policy", None)
    if make is None:
        raise unknown_name(f"policy of suite {suite.name!r}", name, ())
    policy: Policy = make(name)
    return policy


def load_policies(names: Sequence[str], suite: Suite, play: PlaySettings) -> list[Policy]:
    """Return policies by name; at least one, each once."""
    if not names:
        raise ConfigError("no policy given; name at least one, e.g. --policy noisy")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"policy {twice[0]!r} is given twice; use more episodes instead")
    return [load_policy(name, suite, play) for name in names]


def is_path(name: str) -> bool:
    """Return whether a policy or model name means a folder rather than a built-in name.

    >>> is_path("runs/agent"), is_path("expert")
    (True, False)
    """
    return "/" in name or "\\" in name or name.startswith((".", "~")) or Path(name).is_dir()


def greedy(play: PlaySettings, *, wanted: bool) -> PlaySettings:
    """Return the settings at temperature 0 if that is wanted."""
    return replace(play, temperature=0.0) if wanted else play
