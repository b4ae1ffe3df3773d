"""Which tasks the next iteration plays.

`UniformSampler` is the control; `CurriculumSampler` prefers tasks of high reward variance and
mixes in generated ones.  Samplers are deterministic: all their randomness and all they learnt
is in `state_dict`, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import floor, log
from typing import Any, Protocol

import msgspec

from dreamgym.curriculum.base import (
    SeedTasks,
    State,
    TaskSampler,
    check_size,
    generated_tokens,
    random_state,
    set_random_state,
)
from dreamgym.curriculum.value import TaskStats
from dreamgym.errors import ConfigError, UserError, unknown_name
from dreamgym.replay.guard import EVALUATION_SPLITS, EvaluationGuard
from dreamgym.seeds import derive_random, derive_seed
from dreamgym.types import RolloutGroup, Task

__all__ = [
    "CurriculumConfig", "CurriculumSampler", "TaskSampler", "TaskSource", "UniformSampler",
    "make_sampler",
]  # fmt: skip


class UniformSampler:
    """Every task equally often: shuffled passes over the tasks."""

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        seed: int,
        forbidden_tasks: Iterable[str] = (),
        forbidden_splits: Iterable[str] = EVALUATION_SPLITS,
    ) -> None:
        self._seeds = SeedTasks(
            tasks, forbidden_tasks=forbidden_tasks, forbidden_splits=forbidden_splits
        )
        self._random = derive_random(seed, "uniform sampler")
        self._queue: list[str] = []
        self._tokens = 0

    def next_batch(self, n: int) -> list[Task]:
        """Return n tasks; nothing comes again before everything came."""
        check_size(n)
        while len(self._queue) < n:
            tasks = list(self._seeds.by_id)
            self._random.shuffle(tasks)
            self._queue += tasks
        batch, self._queue = self._queue[:n], self._queue[n:]
        return [self._seeds.by_id[task_id] for task_id in batch]

    def observe(self, group: RolloutGroup) -> None:
        """Count the tokens the policy generated; nothing else is learnt."""
        self._tokens += generated_tokens(group)

    def metrics(self) -> dict[str, float]:
        """Return the tokens generated so far, at which samplers are compared."""
        return {"tokens": float(self._tokens), "generated_share": 0.0, "pool": 0.0}

    def state_dict(self) -> State:
        """Return JSON-able state."""
        return {
            "seeds": self._seeds.fingerprint(),
            "random": random_state(self._random),
            "queue": list(self._queue),
            "tokens": self._tokens,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore; raises `DataError` for the state of other seed tasks."""
        self._seeds.check(state)
        set_random_state(self._random, state["random"])
        self._queue = [str(task_id) for task_id in state["queue"]]
        self._tokens = int(state["tokens"])


class TaskSource(Protocol):
    """Writes new tasks from old ones; `generate.TaskGenerator` is one."""

    async def generate(
        self, seeds: Sequence[Task], *, seed: int, existing: Sequence[Task]
    ) -> list[Task]:
        """Return variations of `seeds` that are none of `existing`; may return none."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return counters to log."""
        ...

    def state_dict(self) -> State:
        """Return JSON-able state."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        ...


class CurriculumConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tasks are weighted, grown and retired; the paper gives none of these numbers."""

    max_generated_share: float = 0.3
    """Lambda: a batch of n has at most floor(lambda n) generated tasks."""
    pool_size: int = 64
    """Generated tasks kept; the least valuable leave first."""
    min_value: float = 0.01
    """Reward variance below which a group taught nothing."""
    retire_after: int = 2
    """Groups in a row below `min_value` after which a generated task is retired."""
    exploration: float = 0.05
    """Added to every task's value as sampling weight, so that no seed is given up for ever."""
    parents: int = 4
    """Seed tasks varied per `grow` (m in the paper)."""
    disagree_after: int = 16
    """Failed dreamt attempts after which a task solved for real is flagged."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        if not 0.0 <= self.max_generated_share <= 1.0:
            raise ConfigError(
                f"max_generated_share must be in [0, 1]; got {self.max_generated_share}"
            )
        if self.exploration <= 0.0:
            raise ConfigError(f"exploration must be above 0; got {self.exploration}")
        for name in ("pool_size", "retire_after", "parents", "disagree_after"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}")


class CurriculumSampler:
    """Prefers tasks of high reward variance and mixes in generated variations of them.

    Options are the fields of `CurriculumConfig`.  Where there are fewer seed tasks than a batch
    needs, they are repeated; generated tasks never fill their place.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        seed: int,
        generator: TaskSource | None = None,
        forbidden_tasks: Iterable[str] = (),
        forbidden_splits: Iterable[str] = EVALUATION_SPLITS,
        **options: Any,  # fields of CurriculumConfig
    ) -> None:
        self.config = CurriculumConfig(**options)
        self.generator = generator
        self._guard = EvaluationGuard(forbidden_tasks, forbidden_splits)
        self._seeds = SeedTasks(
            tasks, forbidden_tasks=self._guard.tasks, forbidden_splits=self._guard.splits
        )
        self._seed = seed
        self._random = derive_random(seed, "curriculum sampler")
        self._stats: dict[str, TaskStats] = {}
        self._pool: dict[str, Task] = {}
        self._retired: dict[str, Task] = {}
        self._round = 0
        self._tokens = 0
        self._last_share = 0.0

    @property
    def pool(self) -> list[Task]:
        """The generated tasks in use, oldest first."""
        return list(self._pool.values())

    def stats(self, task_id: str) -> TaskStats:
        """Return what is known of a task."""
        return self._stats.get(task_id, TaskStats())

    def next_batch(self, n: int) -> list[Task]:
        """Return n tasks, drawn by value without return as far as they go."""
        check_size(n)
        # the small number undoes rounding: 0.29 * 100 is 28.999999999999996
        allowed = floor(self.config.max_generated_share * n + 1e-9)
        generated = self._drawn(self.pool)[:allowed]
        seeds: list[Task] = []
        while len(seeds) < n - len(generated):
            seeds += self._drawn(self._seeds.tasks)
        self._last_share = len(generated) / n
        return seeds[: n - len(generated)] + generated

    def observe(self, group: RolloutGroup) -> None:
        """Update the task's value; a generated task that keeps teaching nothing is retired."""
        self._tokens += generated_tokens(group)
        task_id = group.task.id
        if task_id not in self._seeds.by_id and task_id not in self._pool:
            return  # retired since it was handed out
        stats = self.stats(task_id).observed(group, min_value=self.config.min_value)
        self._stats[task_id] = stats
        if task_id in self._pool and stats.zero_streak >= self.config.retire_after:
            self._retire(task_id)

    def report_real(self, task_id: str, success: bool) -> None:
        """Note how an episode of this task ended in the real environment."""
        if task_id in self._seeds.by_id:
            self._stats[task_id] = self.stats(task_id).reported(success)

    def disagreements(self) -> list[str]:
        """Return ids of tasks solved for real but never in the dream.

        The experience model is wrong about them; they are not hard, and are not varied.
        """
        wanted = self.config.disagree_after
        return [i for i, s in self._stats.items() if s.disagrees(min_attempts=wanted)]

    async def grow(self) -> int:
        """Let the generator vary the most valuable seed tasks; return how many came in.

        Without a generator, or before any seed task has shown differing rewards, nothing happens.
        """
        parents = self._parents()
        if self.generator is None or not parents:
            return 0
        self._round += 1
        tasks = await self.generator.generate(
            parents,
            seed=derive_seed(self._seed, "grow", self._round),
            existing=[*self._seeds.tasks, *self._pool.values(), *self._retired.values()],
        )
        return self.add_generated(tasks)

    def add_generated(self, tasks: Iterable[Task]) -> int:
        """Add generated tasks to the pool and return how many are new.

        Raises `UserError` for an evaluation task, or for one that is not marked as generated.
        """
        count = 0
        for task in tasks:
            self._guard.allows(task.id, split=task.split, where="the curriculum")
            if not task.generated:
                raise UserError(
                    f"task {task.id!r} is not marked as generated; only variations enter the pool"
                )
            if any(task.id in known for known in (self._seeds.by_id, self._pool, self._retired)):
                continue
            self._pool[task.id] = task
            count += 1
            if len(self._pool) > self.config.pool_size:
                self._retire(min(self._pool, key=lambda i: self.stats(i).value))
        return count

    def metrics(self) -> dict[str, float]:
        """Return shares, pool size and values; `mean_value` is over tasks tried so far."""
        tried = [s for s in self._stats.values() if s.groups]
        teaching = sum(s.value >= self.config.min_value for s in tried)
        return {
            "tokens": float(self._tokens),
            "generated_share": self._last_share,
            "pool": float(len(self._pool)),
            "retired": float(len(self._retired)),
            "mean_value": sum(s.value for s in tried) / max(len(tried), 1),
            "teaching_share": teaching / max(len(tried), 1),
            "disagreements": float(len(self.disagreements())),
            **{f"generator/{k}": v for k, v in self._generator_metrics().items()},
        }

    def state_dict(self) -> State:
        """Return JSON-able state, the generator's included."""
        return {
            "seeds": self._seeds.fingerprint(),
            "random": random_state(self._random),
            "stats": {i: msgspec.to_builtins(stats) for i, stats in self._stats.items()},
            "pool": [msgspec.to_builtins(task) for task in self._pool.values()],
            "retired": [msgspec.to_builtins(task) for task in self._retired.values()],
            "round": self._round,
            "tokens": self._tokens,
            "last_share": self._last_share,
            "generator": self.generator.state_dict() if self.generator else None,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore; raises `DataError` for the state of other seed tasks."""
        self._seeds.check(state)
        set_random_state(self._random, state["random"])
        self._stats = msgspec.convert(state["stats"], dict[str, TaskStats])
        self._pool = {t.id: t for t in msgspec.convert(state["pool"], list[Task])}
        self._retired = {t.id: t for t in msgspec.convert(state["retired"], list[Task])}
        self._round = int(state["round"])
        self._tokens = int(state["tokens"])
        self._last_share = float(state["last_share"])
        if self.generator is not None and state["generator"] is not None:
            self.generator.load_state_dict(state["generator"])

    def _drawn(self, tasks: Sequence[Task]) -> list[Task]:
        """Return all tasks in an order drawn by weight without return."""
        # the order of exponential waiting times with rates w (Efraimidis and Spirakis 2006)
        waits = [-log(1.0 - self._random.random()) / self._weight(task) for task in tasks]
        order = sorted(range(len(tasks)), key=waits.__getitem__)
        return [tasks[i] for i in order]

    def _weight(self, task: Task) -> float:
        return self.config.exploration + self.stats(task.id).value

    def _parents(self) -> list[Task]:
        wrong = set(self.disagreements())
        fit = [
            (task, stats)
            for task in self._seeds.tasks
            if (stats := self.stats(task.id)).groups
            and stats.value >= self.config.min_value
            and task.id not in wrong
        ]
        fit.sort(key=lambda pair: (-pair[1].value, pair[0].id))
        return [task for task, _ in fit[: self.config.parents]]

    def _retire(self, task_id: str) -> None:
        # its text stays known, so that it is not written again; its world is not needed
        self._retired[task_id] = msgspec.structs.replace(self._pool.pop(task_id), scenario=None)

    def _generator_metrics(self) -> dict[str, float]:
        return self.generator.metrics() if self.generator is not None else {}


def make_sampler(name: str, tasks: Sequence[Task], *, seed: int, **options: Any) -> TaskSampler:
    """Return a sampler by name: `uniform`, or `variance` for the curriculum.

    Raises `ConfigError` for an unknown name or option.
    """
    samplers: dict[str, Callable[..., TaskSampler]] = {
        "uniform": UniformSampler,
        "variance": CurriculumSampler,
    }
    if name not in samplers:
        raise unknown_name("sampler", name, samplers)
    try:
        return samplers[name](tasks, seed=seed, **options)
    except TypeError as error:
        raise ConfigError(f"options of sampler {name!r}: {error}") from error
