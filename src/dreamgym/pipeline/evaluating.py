"""`dreamgym evaluate`: a policy on a fixed panel of the real suite."""

from __future__ import annotations

import asyncio

from dreamgym.evaluate import Evaluation, evaluate
from dreamgym.pipeline.settings import PlaySettings, Settings, SuiteSettings
from dreamgym.pipeline.suites import greedy, load_policy, open_suite
from dreamgym.progress import progress
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.seeds import derive_seed


class EvaluateSettings(Settings, frozen=True, kw_only=True):
    """What to evaluate and where."""

    policy: str = ""
    """A policy of the suite, a model folder, or a run folder with a `model/`."""
    suite: SuiteSettings = SuiteSettings()
    split: str = "valid_unseen"
    tasks: int = 200
    attempts: int = 1
    """Episodes per task."""
    greedy: bool = False
    """Temperature 0 instead of `play.temperature`."""
    seed: int = 0
    limits: EpisodeLimits = EpisodeLimits(max_steps=25)
    play: PlaySettings = PlaySettings()
    max_concurrent: int = 128


def evaluate_policy(settings: EvaluateSettings) -> Evaluation:
    """Play the panel; the same settings play the same panel."""
    suite, tasks = open_suite(settings.suite, settings.split, settings.tasks)
    policy = load_policy(settings.policy, suite, greedy(settings.play, wanted=settings.greedy))
    with progress(f"evaluating {policy.name}", len(tasks) * settings.attempts) as bar:
        return asyncio.run(
            evaluate(
                suite,
                policy,
                tasks,
                seed=derive_seed(settings.seed, "evaluate"),
                limits=settings.limits,
                attempts=settings.attempts,
                max_concurrent=settings.max_concurrent,
                on_episode=lambda rollout: bar.advance(),
            )
        )
