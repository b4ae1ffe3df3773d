"""Collect episodes of policies in a suite into a record file; every real transition is counted.

A killed collection is resumed by running it again: finished episodes in the file are skipped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from dreamgym.envs.base import Policy, Suite
from dreamgym.errors import ConfigError
from dreamgym.records import RecordWriter, read_records
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.rollout.episode import EpisodeLimits, Parser
from dreamgym.rollout.group import EpisodeSpec, Player, episode_spec, gather_ordered
from dreamgym.types import Origin, Rollout, StopReason, Task


class CollectReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the file after collecting, earlier runs included."""

    num_episodes: int
    """Finished episodes, faults not counted."""
    num_transitions: int
    """All executed transitions, those of faulty and cut episodes included."""
    num_successes: int
    num_faults: int
    num_cut: int
    """Episodes ended by the transition budget; they are played again when resumed with more."""
    num_skipped: int
    """Episodes found in the file and not played again."""


async def collect(
    suite: Suite,
    policies: Policy | Sequence[Policy],
    tasks: Sequence[Task],
    *,
    episodes_per_task: int,
    seed: int,
    writer: RecordWriter,
    limits: EpisodeLimits,
    origin: Origin = Origin.REAL,
    budget: TransitionBudget | None = None,
    max_concurrent: int = 64,
    parser: Parser | None = None,
    on_episode: Callable[[Rollout], None] | None = None,
) -> CollectReport:
    """Play `episodes_per_task` episodes of each policy on each task and append them to `writer`.

    Records stand in the file in the order of policies, tasks and attempts, whatever the
    concurrency.  Episodes already in the file are skipped (their transitions are added to
    `budget.used`); faults and episodes the budget cut off are played again.
    """
    chosen = [policies] if not isinstance(policies, Sequence) else list(policies)
    _check(chosen, tasks, episodes_per_task)
    tally = _Tally()
    for rollout in read_records(writer.path, Rollout, kind="rollout").records:
        tally.add(rollout)  # retried episodes are in the file twice: all their steps were real
    if budget is not None:
        budget.used += tally.num_transitions
    num_skipped = 0
    jobs = []
    for policy in chosen:
        player = Player(suite, policy, limits=limits, origin=origin, budget=budget, parser=parser)
        for task in tasks:
            for attempt in range(episodes_per_task):
                spec = _spec(policy, task, attempt, seed)
                if tally.is_finished(spec.id):
                    num_skipped += 1
                else:
                    jobs.append(functools.partial(player.play, spec))

    def keep(rollout: Rollout) -> None:
        if rollout.stop is StopReason.BUDGET and not rollout.transitions:
            return  # never begun; nothing to record
        writer.write(rollout)
        tally.add(rollout)
        if on_episode is not None:
            on_episode(rollout)

    await gather_ordered(jobs, max_concurrent=max_concurrent, on_result=keep)
    return tally.report(num_skipped)


def read_rollouts(path: str | Path) -> list[Rollout]:
    """Return the episodes of a record file; of several with one id (a retried fault) the last."""
    latest: dict[str, Rollout] = {}
    for rollout in read_records(path, Rollout, kind="rollout").records:
        latest[rollout.id] = rollout
    return list(latest.values())


class _Tally:
    def __init__(self) -> None:
        self.num_transitions = 0
        self._stops: dict[str, StopReason] = {}
        self._successes: set[str] = set()

    def add(self, rollout: Rollout) -> None:
        self.num_transitions += len(rollout.transitions)
        self._stops[rollout.id] = rollout.stop
        if rollout.success:
            self._successes.add(rollout.id)

    def is_finished(self, episode_id: str) -> bool:
        stop = self._stops.get(episode_id)
        return stop is not None and stop not in {StopReason.FAULT, StopReason.BUDGET}

    def report(self, num_skipped: int) -> CollectReport:
        stops = list(self._stops.values())
        faults, cut = stops.count(StopReason.FAULT), stops.count(StopReason.BUDGET)
        return CollectReport(
            num_episodes=len(stops) - faults - cut,
            num_transitions=self.num_transitions,
            num_successes=len(self._successes),
            num_faults=faults,
            num_cut=cut,
            num_skipped=num_skipped,
        )


def _spec(policy: Policy, task: Task, attempt: int, seed: int) -> EpisodeSpec:
    spec = episode_spec(task, attempt, seed=seed)
    return msgspec.structs.replace(spec, id=f"{policy.name}/{spec.id}")


def _check(policies: Sequence[Policy], tasks: Sequence[Task], episodes_per_task: int) -> None:
    if episodes_per_task < 1:
        raise ConfigError(f"episodes_per_task must be at least 1; got {episodes_per_task}")
    for what, names in (("policy", [p.name for p in policies]), ("task", [t.id for t in tasks])):
        if not names:
            raise ConfigError(f"there is no {what} to collect with")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"{what} names must differ, or episodes get one id; twice: {twice}")
