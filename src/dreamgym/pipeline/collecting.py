"""`dreamgym collect`: any policies in any suite into one record file."""

from __future__ import annotations

import asyncio

from dreamgym.collect import CollectReport, collect
from dreamgym.pipeline.settings import PlaySettings, Settings, SuiteSettings
from dreamgym.pipeline.suites import load_policies, open_suite, refuse_evaluation_split
from dreamgym.progress import progress
from dreamgym.records import RecordWriter
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.seeds import derive_seed


class CollectSettings(Settings, frozen=True, kw_only=True):
    """What to log."""

    suite: SuiteSettings = SuiteSettings()
    policy: tuple[str, ...] = ()
    """Names of the suite's policies, or model folders."""
    split: str = "train"
    allow_evaluation_split: bool = False
    tasks: int = 200
    """The first tasks of the split."""
    episodes: int = 1
    """Episodes per task and policy."""
    out: str = "logs.jsonl"
    """Record file; finished episodes already in it are not played again."""
    seed: int = 0
    budget: int | None = None
    """Largest number of real transitions in the file."""
    limits: EpisodeLimits = EpisodeLimits(max_steps=25)
    play: PlaySettings = PlaySettings()
    max_concurrent: int = 64


def collect_logs(settings: CollectSettings) -> CollectReport:
    """Play the episodes that are not in the file yet and append them."""
    refuse_evaluation_split(
        settings.split, allow=settings.allow_evaluation_split, purpose="training logs"
    )
    suite, tasks = open_suite(settings.suite, settings.split, settings.tasks)
    policies = load_policies(settings.policy, suite, settings.play)
    provenance = {
        "suite": settings.suite.name,
        "options": dict(settings.suite.options),
        "split": settings.split,
        "seed": settings.seed,
    }
    budget = None if settings.budget is None else TransitionBudget(settings.budget)
    total = len(tasks) * len(policies) * settings.episodes
    with (
        RecordWriter(settings.out, "rollout", provenance) as writer,
        progress("logging", total) as bar,
    ):
        return asyncio.run(
            collect(
                suite,
                policies,
                tasks,
                episodes_per_task=settings.episodes,
                seed=derive_seed(settings.seed, "collect"),
                writer=writer,
                limits=settings.limits,
                budget=budget,
                max_concurrent=settings.max_concurrent,
                on_episode=lambda rollout: bar.advance(),
            )
        )
