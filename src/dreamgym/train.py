"""The training loop: the same for a dream and for a real suite.

    sample tasks -> play groups -> advantages -> samples -> update -> new policy version
                 `-> sampler.observe, subscribers (records, replay buffer, metrics)

The loop knows neither experience models nor engines; a dream run adds subscribers and a probe, a
sim-to-real run adds a budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from dreamgym.agent.policy import ModelPolicy
from dreamgym.curriculum.sampler import TaskSampler
from dreamgym.envs.base import Suite
from dreamgym.errors import ConfigError, TrainingError
from dreamgym.rl.algorithm import Algorithm
from dreamgym.rl.learner import Learner
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import run_groups
from dreamgym.runs import RunFolder
from dreamgym.seeds import derive_seed
from dreamgym.types import Origin, RolloutGroup, StopReason

MAX_EMPTY_UPDATES = 20
"""Iterations in a row without one informative group after which training stops with advice."""


class LoopConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Size of the training loop."""

    iterations: int = 60
    tasks_per_iteration: int = 12
    group_size: int = 8
    """Attempts per task (G); GRPO needs at least 2."""
    max_steps: int = 25
    """Steps per episode before it is truncated."""
    max_invalid: int = 5
    """Invalid actions after which an episode ends as failed."""
    max_idle: int | None = None
    """Steps without effect after which an episode ends as failed; None: no limit."""
    max_concurrent: int = 256
    checkpoint_every: int = 10
    """Iterations between checkpoints; the last one is always kept."""

    def __post_init__(self) -> None:
        """Refuse sizes that cannot train."""
        for name in ("iterations", "tasks_per_iteration", "group_size", "max_steps"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} must be at least 1; got {value}")


class IterationResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one iteration did, for subscribers."""

    step: int
    groups: tuple[RolloutGroup, ...]
    metrics: dict[str, float]


class Subscriber(Protocol):
    """Called after every iteration; may add metrics, may ask to stop by returning False."""

    async def __call__(self, loop: Loop, result: IterationResult) -> bool:
        """Return whether training should go on."""
        ...

    def state_dict(self) -> dict[str, object]:
        """Return JSON-able state for the checkpoint."""
        ...

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Restore what `state_dict` returned."""
        ...


class Loop:
    """One training run of one policy on one suite; resumable from its last checkpoint."""

    def __init__(
        self,
        *,
        suite: Suite,
        policy: ModelPolicy,
        learner: Learner,
        algorithm: Algorithm,
        sampler: TaskSampler,
        config: LoopConfig,
        stage: str,
        seed: int,
        run: RunFolder,
        origin: Origin,
        publish: Callable[[int], None],
        budget: TransitionBudget | None = None,
        subscribers: Sequence[Subscriber] = (),
        on_progress: Callable[[int, dict[str, float]], None] | None = None,
    ) -> None:
        if policy.temperature != learner.config.temperature:
            raise ConfigError(
                f"the policy samples at temperature {policy.temperature} but the learner scores at "
                f"{learner.config.temperature}, so every ratio would be wrong; give both the same"
            )
        self.suite = suite
        self.policy = policy
        self.learner = learner
        self.algorithm = algorithm
        self.sampler = sampler
        self.config = config
        self.stage = stage
        self.seed = seed
        self.run = run
        self.origin = origin
        self.budget = budget
        self.step = 0
        self.empty_updates = 0
        self.is_stopped = False
        """Whether a subscriber asked to stop; kept in the checkpoint."""
        self._publish = publish
        self._subscribers = tuple(subscribers)
        self._on_progress = on_progress or (lambda step, metrics: None)
        self._limits = EpisodeLimits(
            max_steps=config.max_steps, max_invalid=config.max_invalid, max_idle=config.max_idle
        )

    async def train(self) -> None:
        """Run to the end, to an exhausted budget, or until a subscriber says stop."""
        while not self.is_stopped and self.step < self.config.iterations and not self._exhausted():
            result = await self.iterate()
            self.is_stopped = not all([await call(self, result) for call in self._subscribers])
            self.run.log(self.step, stage=self.stage, **result.metrics)
            self._on_progress(self.step, result.metrics)
            self.step += 1
            if self.step % self.config.checkpoint_every == 0:
                self.save("latest")
        self.save("latest")

    async def iterate(self) -> IterationResult:
        """Play one batch of groups, learn from it, and publish the new weights."""
        started = time.monotonic()
        tasks = self.sampler.next_batch(self.config.tasks_per_iteration)
        groups = await run_groups(
            self.suite,
            self.policy,
            tasks,
            group_size=self.config.group_size,
            seed=derive_seed(self.seed, self.stage, self.step),
            limits=self._limits,
            max_concurrent=self.config.max_concurrent,
            origin=self.origin,
            budget=self.budget,
        )
        played = time.monotonic()
        for group in groups:
            self.sampler.observe(group)
        update = self.algorithm.update(self.learner, groups)
        self._count_empty(update.num_samples)
        self._publish(self.step + 1)
        metrics = {
            **group_metrics(groups),
            **{f"curriculum/{k}": v for k, v in self.sampler.metrics().items()},
            **update.metrics,
            "time/rollout": played - started,
            "time/update": time.monotonic() - played,
        }
        return IterationResult(step=self.step, groups=tuple(groups), metrics=metrics)

    def save(self, name: str) -> Path:
        """Write a checkpoint: policy, optimiser, sampler, subscribers, counters."""
        state = {
            "step": self.step,
            "empty_updates": self.empty_updates,
            "is_stopped": self.is_stopped,
            "budget_used": self.budget.used if self.budget else 0,
            "sampler": self.sampler.state_dict(),
            "subscribers": [call.state_dict() for call in self._subscribers],
        }
        return self.run.save_checkpoint(f"{self.stage}-{name}", self.learner.save, state)

    def restore(self, name: str = "latest") -> bool:
        """Continue from a checkpoint if there is one; returns whether there was."""
        found = self.run.load_checkpoint(f"{self.stage}-{name}", self.learner.load)
        if found is None:
            return False
        self.step = int(found["step"])
        self.empty_updates = int(found["empty_updates"])
        self.is_stopped = bool(found["is_stopped"])
        if self.budget is not None:
            self.budget.used = int(found["budget_used"])
        self.sampler.load_state_dict(found["sampler"])
        for call, state in zip(self._subscribers, found["subscribers"], strict=True):
            call.load_state_dict(state)
        self._publish(self.step)
        return True

    def republish(self) -> None:
        """Hand the learner's weights to the engine again, after they were set from outside."""
        self._publish(self.step + 1)

    def _exhausted(self) -> bool:
        return self.budget is not None and self.budget.remaining <= 0

    def _count_empty(self, num_samples: int) -> None:
        """An empty batch is a logged step; many in a row are an error with advice."""
        self.empty_updates = 0 if num_samples else self.empty_updates + 1
        if self.empty_updates >= MAX_EMPTY_UPDATES:
            raise TrainingError(
                f"{self.empty_updates} iterations in a row had no group with differing rewards, "
                "so there was nothing to learn from; use easier tasks, a stronger warm start "
                "(10-30 % success), a larger group_size or a higher temperature"
            )


def group_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Return success, faults, dead share and lengths of a batch of groups."""
    rollouts = [r for g in groups for r in g.rollouts]
    scored = [r for r in rollouts if not r.is_fault and r.reward is not None]
    faults = sum(r.is_fault for r in rollouts)
    steps = [len(r.transitions) for r in scored] or [0]
    dead = sum(_is_dead(g) for g in groups)
    invalid = sum(r.counters.get("invalid_format", 0) for r in rollouts)
    return {
        "rollout/success": sum(r.success for r in scored) / max(len(scored), 1),
        "reward/mean": sum(r.reward or 0.0 for r in scored) / max(len(scored), 1),
        "rollout/steps": sum(steps) / len(steps),
        "rollout/transitions": float(sum(steps)),
        "rollout/fault_share": faults / max(len(rollouts), 1),
        "rollout/truncated": sum(r.stop is StopReason.TURN_LIMIT for r in scored)
        / max(len(scored), 1),
        "rollout/invalid_format": float(invalid),
        "groups/dead_share": dead / max(len(groups), 1),
    }


def _is_dead(group: RolloutGroup) -> bool:
    rewards = [r for r in group.rewards if r is not None]
    return len(rewards) < 2 or max(rewards) - min(rewards) <= 1e-6
