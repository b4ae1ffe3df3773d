"""The logged episodes of a demo run, their hindsight scenarios, and the buffer they seed."""

from __future__ import annotations

from collections.abc import Sequence

from dreamgym.collect import read_rollouts
from dreamgym.demo.context import DemoContext
from dreamgym.dream.annotate import scenario_tasks
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.types import Rollout, Task, Transition


class Logged:
    """Logged episodes with their hindsight scenarios, split into fitting and held-out games."""

    def __init__(self, ctx: DemoContext, *, with_agent: bool = True) -> None:
        shown = load_rollouts(ctx, "demonstrations")[: ctx.config.logs.demonstrations]
        own = load_rollouts(ctx, "agent_logs") if with_agent else []
        self.rollouts = [
            rollout
            for rollout in (*load_rollouts(ctx, "logs"), *shown, *own)
            if not rollout.is_fault
        ]
        self.reader = ctx.reader.learned([t for r in self.rollouts for t in r.transitions])
        self.tasks = scenario_tasks(self.rollouts, self.reader)
        self._ids = ids = [task.id for task in ctx.logged_tasks if task.id in self.tasks]
        count = int(len(ids) * ctx.config.logs.heldout_share)
        self.heldout_ids = frozenset(ids[len(ids) - count :])

    @property
    def fitting(self) -> list[Rollout]:
        """Episodes the experience model is trained on."""
        return [r for r in self.rollouts if r.task.id not in self.heldout_ids]

    @property
    def heldout(self) -> list[Rollout]:
        """Episodes of games the experience model never sees."""
        return [r for r in self.rollouts if r.task.id in self.heldout_ids]

    @property
    def seed_tasks(self) -> list[Task]:
        """Tasks a dream may start from, with their scenarios: fitted games without a
        demonstration, which the agent would only recite."""
        return [self.tasks[key] for key in self._ids if key not in self.heldout_ids]


def make_buffer(ctx: DemoContext, logged: Logged, *, durable: bool = True) -> ReplayBuffer:
    """Return the replay buffer seeded with the logged transitions of fitted games."""
    buffer = ReplayBuffer(
        ctx.run.path / "buffer" if durable else None,
        HashedNgramEncoder(),
        capacity=ctx.config.buffer_capacity,
        forbidden_splits=("valid_seen", "valid_unseen"),
    )
    transitions: list[Transition] = [t for r in logged.fitting for t in r.transitions]
    buffer.add(transitions)
    return buffer


def load_rollouts(ctx: DemoContext, name: str) -> list[Rollout]:
    """Return the recorded episodes of a record file, none if there is no such file."""
    path = ctx.run.record_path(name)
    return read_rollouts(path) if path.exists() else []


def count_transitions(rollouts: Sequence[Rollout]) -> int:
    """Return the number of real transitions in recorded episodes."""
    return sum(len(rollout.transitions) for rollout in rollouts)
