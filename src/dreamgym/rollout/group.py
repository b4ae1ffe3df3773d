"""Groups of attempts at one task instance, and many groups at once.

All members of a group meet the same world: one task with its pinned scenario, one environment
seed.  Only the policy's sampling differs.  Results depend on names and seeds alone, never on how
many episodes run at the same time or in which order they finish.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from dreamgym.envs.base import Env, Policy, Suite
from dreamgym.errors import ConfigError, EnvError, UserError
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.rollout.clock import EnvClock
from dreamgym.rollout.episode import EpisodeLimits, Parser, run_episode
from dreamgym.seeds import derive_seed
from dreamgym.types import Observation, Origin, Rollout, RolloutGroup, Step, Task, Transition

log = logging.getLogger(__name__)

T = TypeVar("T")


class EpisodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which episode to play: everything that its outcome may depend on besides suite and policy."""

    task: Task
    attempt: int
    env_seed: int
    policy_seed: int
    id: str


def episode_spec(task: Task, attempt: int, *, seed: int, occurrence: int = 0) -> EpisodeSpec:
    """Return the spec of an attempt; `occurrence` tells apart repeats of a task in one batch."""
    world = derive_seed(seed, "env", task.id, occurrence)
    return EpisodeSpec(
        task=task,
        attempt=attempt,
        env_seed=world,
        policy_seed=derive_seed(seed, "policy", task.id, occurrence, attempt),
        id=f"{task.id}/{world:016x}/{attempt}",
    )


class Player:
    """Plays episodes of one suite with one policy under fixed rules."""

    def __init__(
        self,
        suite: Suite,
        policy: Policy,
        *,
        limits: EpisodeLimits,
        origin: Origin,
        budget: TransitionBudget | None = None,
        on_transition: Callable[[Transition], None] | None = None,
        parser: Parser | None = None,
    ) -> None:
        self.suite = suite
        self.policy = policy
        self.limits = limits
        self.origin = origin
        self.budget = budget
        self.on_transition = on_transition
        self.parser = parser

    async def play(self, spec: EpisodeSpec) -> Rollout:
        """Play one episode; opening the environment counts towards its wall-clock limit."""
        clock = EnvClock(self.limits.wall_seconds)
        started = time.monotonic()
        env: Env
        try:
            env = self.suite.open(spec.task, seed=spec.env_seed)
        except UserError:
            raise
        except Exception as error:  # recorded as this episode's fault, siblings go on
            env = _FailedEnv(error)
        clock.spend(time.monotonic() - started)
        return await run_episode(
            env,
            self.policy,
            spec.task,
            episode_id=spec.id,
            attempt=spec.attempt,
            seed=spec.policy_seed,
            limits=self.limits,
            origin=self.origin,
            budget=self.budget,
            on_transition=self.on_transition,
            parser=self.parser,
            clock=clock,
        )


async def run_group(
    suite: Suite,
    policy: Policy,
    task: Task,
    *,
    group_size: int,
    seed: int,
    limits: EpisodeLimits,
    origin: Origin,
    max_concurrent: int = 256,
    budget: TransitionBudget | None = None,
    on_transition: Callable[[Transition], None] | None = None,
    parser: Parser | None = None,
) -> RolloutGroup:
    """Play `group_size` attempts at one task; see `run_groups`."""
    groups = await run_groups(
        suite,
        policy,
        [task],
        group_size=group_size,
        seed=seed,
        limits=limits,
        origin=origin,
        max_concurrent=max_concurrent,
        budget=budget,
        on_transition=on_transition,
        parser=parser,
    )
    return groups[0]


async def run_groups(
    suite: Suite,
    policy: Policy,
    tasks: Sequence[Task],
    *,
    group_size: int,
    seed: int,
    limits: EpisodeLimits,
    origin: Origin,
    max_concurrent: int = 256,
    budget: TransitionBudget | None = None,
    on_transition: Callable[[Transition], None] | None = None,
    parser: Parser | None = None,
) -> list[RolloutGroup]:
    """Play a group per task concurrently; results are in the order of `tasks`.

    A failing or hanging episode is a fault of its own and harms no other.  Raises `ConfigError`
    for a group of several greedy attempts, and `EnvError` when members of a group start from
    different observations: their rewards could not be compared.
    """
    _check_size(policy, group_size)
    player = Player(
        suite,
        policy,
        limits=limits,
        origin=origin,
        budget=budget,
        on_transition=on_transition,
        parser=parser,
    )
    specs = []
    seen: Counter[str] = Counter()
    for task in tasks:
        occurrence = seen[task.id]
        seen[task.id] += 1
        specs += [
            episode_spec(task, attempt, seed=seed, occurrence=occurrence)
            for attempt in range(group_size)
        ]
    rollouts = await gather_ordered(
        [functools.partial(player.play, spec) for spec in specs],
        max_concurrent=max_concurrent,
    )
    groups = []
    for index, task in enumerate(tasks):
        members = tuple(rollouts[index * group_size : (index + 1) * group_size])
        groups.append(RolloutGroup(task=task, rollouts=members))
    _check_groups(groups)
    return groups


async def gather_ordered(
    jobs: Sequence[Callable[[], Awaitable[T]]],
    *,
    max_concurrent: int,
    on_result: Callable[[T], None] | None = None,
) -> list[T]:
    """Run the jobs, at most `max_concurrent` at a time; results are in the order of the jobs.

    `on_result` is called in that order too, as soon as all earlier results are there.  The first
    exception cancels the rest and is raised as it is.
    """
    if max_concurrent < 1:
        raise ConfigError(f"max_concurrent must be at least 1; got {max_concurrent}")
    gate = asyncio.Semaphore(max_concurrent)
    results: dict[int, T] = {}
    reported = 0

    async def run(index: int) -> None:
        nonlocal reported
        async with gate:
            results[index] = await jobs[index]()
        while on_result is not None and reported in results:
            reported += 1
            on_result(results[reported - 1])

    try:
        async with asyncio.TaskGroup() as group:
            for index in range(len(jobs)):
                group.create_task(run(index))
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return [results[index] for index in range(len(jobs))]


def is_identical(group: RolloutGroup) -> bool:
    """Return whether all members (at least two) produced exactly the same tokens or text."""
    played = [r for r in group.rollouts if not r.is_fault and r.completions]
    said = {tuple(c.token_ids or c.text for c in r.completions) for r in played}
    return len(played) > 1 and len(said) == 1


def _check_size(policy: Policy, group_size: int) -> None:
    if group_size < 1:
        raise ConfigError(f"group_size must be at least 1; got {group_size}")
    if group_size > 1 and getattr(policy, "temperature", None) == 0:
        raise ConfigError(
            f"policy {policy.name!r} is greedy (temperature 0), so all {group_size} attempts of a "
            "group would be the same; set a temperature above 0"
        )


def _check_groups(groups: Sequence[RolloutGroup]) -> None:
    for group in groups:
        starts = {r.transitions[0].observation.text for r in group.rollouts if r.transitions}
        if len(starts) > 1:
            raise EnvError(
                f"suite {group.task.suite!r} gave {len(starts)} different first observations for "
                f"task {group.task.id!r} with one seed; the attempts of a group must start alike"
            )
    several = [g for g in groups if len(g.rollouts) > 1]
    same = sum(is_identical(group) for group in several)
    if several and same == len(several):
        log.warning(
            "all members of all %d groups are token-identical: the sampling seed has no effect or "
            "the policy has become deterministic; such groups teach nothing",
            same,
        )


class _FailedEnv:
    """Stands in for an environment that could not be opened."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def start(self) -> Observation:
        raise self._error

    async def step(self, action: str) -> Step:
        raise self._error

    async def close(self) -> None:
        """Nothing was opened."""
