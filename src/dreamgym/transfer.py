"""Sim-to-real: a policy trained in a dream goes on in the real suite, every step counted.

The same loop as anywhere else on the real suite, with a budget of real transitions as its end
(DreamGym, arXiv 2511.03773, section on sim-to-real).  The same budget given to the policy from
before the dream is the baseline to compare with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from dreamgym.agent.policy import ModelPolicy
from dreamgym.curriculum.sampler import UniformSampler
from dreamgym.envs.base import Suite
from dreamgym.errors import ConfigError
from dreamgym.rl.algorithm import Algorithm
from dreamgym.rl.learner import Learner
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.runs import RunFolder
from dreamgym.seeds import derive_seed
from dreamgym.train import Loop, LoopConfig, Subscriber
from dreamgym.types import Origin, Task


class TransferConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much reality may be used, and in what portions."""

    budget: int = 4000
    """Real transitions in all, over resumed runs together."""
    loop: LoopConfig = LoopConfig(iterations=1000, tasks_per_iteration=8, group_size=8)
    """The budget normally ends before the iterations do."""

    def __post_init__(self) -> None:
        """Refuse a transfer that could not take a step."""
        if self.budget < 1:
            raise ConfigError(f"budget must be at least 1 real transition; got {self.budget}")


class TransferReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a transfer did."""

    iterations: int
    transitions: int
    """Real transitions used, those of earlier runs of the same folder included."""
    budget: int
    first_success: float | None
    """Training success of this run's first iteration; None if there was none."""
    last_success: float | None
    """Of its last iteration. Training success, not an evaluation."""


def transfer(
    suite: Suite,
    tasks: Sequence[Task],
    policy: ModelPolicy,
    learner: Learner,
    *,
    algorithm: Algorithm,
    config: TransferConfig,
    seed: int,
    run: RunFolder,
    publish: Callable[[int], None],
    subscribers: Sequence[Subscriber] = (),
    on_progress: Callable[[int, dict[str, float]], None] = lambda step, metrics: None,
) -> TransferReport:
    """Train `policy` on the real suite until the budget is used up; resumes by itself.

    `learner` holds the policy's weights and `publish(version)` hands them to its engine.  Raises
    `UserError` for tasks of an evaluation split.
    """
    budget = TransitionBudget(config.budget)
    successes: list[float] = []

    def note(step: int, metrics: dict[str, float]) -> None:
        successes.append(metrics["rollout/success"])
        on_progress(step, metrics)

    loop = Loop(
        suite=suite,
        policy=policy,
        learner=learner,
        algorithm=algorithm,
        sampler=UniformSampler(tasks, seed=derive_seed(seed, "transfer")),
        config=config.loop,
        stage="transfer",
        seed=seed,
        run=run,
        origin=Origin.REAL,
        publish=publish,
        budget=budget,
        subscribers=subscribers,
        on_progress=note,
    )
    loop.restore()
    asyncio.run(loop.train())
    return TransferReport(
        iterations=loop.step,
        transitions=budget.used,
        budget=config.budget,
        first_success=successes[0] if successes else None,
        last_success=successes[-1] if successes else None,
    )
