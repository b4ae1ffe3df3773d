"""The held-out panel: evaluation tasks, real episodes of several policies on them, scenarios.

Every real step is counted.  The episodes are kept in a record file and not played again; they are
never training data.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from dreamgym.collect import collect, read_rollouts
from dreamgym.dream.annotate import scenario_tasks
from dreamgym.envs.base import Actor, Policy, StateReader, Suite
from dreamgym.errors import ConfigError, DataError
from dreamgym.progress import progress
from dreamgym.records import RecordWriter
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.seeds import derive_random
from dreamgym.types import Rollout, Task

SURVEYORS = ("survey",)
"""Policies whose episodes show where things are: they complete the scenarios, and are not
measured on."""
PLAYERS = ("expert", "noisy:p=0.15", "noisy:p=0.3", "noisy:p=0.6", "random")
"""Policies of different strength, as far as the suite has them."""


class Named:
    """A policy under another name, so that two settings of one can be told apart."""

    def __init__(self, name: str, inner: Policy) -> None:
        self.name = name
        self._inner = inner

    def start(self, task: Task, *, seed: int) -> Actor:
        """Return an actor of the wrapped policy."""
        return self._inner.start(task, seed=seed)


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Real episodes of tasks the experience model never saw."""

    episodes: list[Rollout]
    """What the model is measured on."""
    tasks: dict[str, Task]
    """Their tasks, with scenarios in hindsight from all real episodes, surveys included."""
    num_transitions: int
    """Real transitions played for the panel, surveys included."""
    seconds: float = 0.0
    num_faults: int = 0

    def real_success(self) -> dict[str, dict[str, float]]:
        """Return policy -> task id -> real success of its episodes there."""
        found: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
        for episode in self.episodes:
            found[episode.policy][episode.task.id].append(episode.success)
        return {
            policy: {task: sum(won) / len(won) for task, won in by_task.items()}
            for policy, by_task in found.items()
        }


def make_policies(suite: Suite, names: Iterable[str], *, optional: bool = False) -> list[Policy]:
    """Return policies of the suite by name, such as `noisy:p=0.3`.

    `optional` leaves out what the suite does not have; otherwise that raises `ConfigError`.
    """
    found: list[Policy] = []
    for text in names:
        try:
            found.append(_policy(suite, text))
        except ConfigError:
            if not optional:
                raise
    return found


def _policy(suite: Suite, text: str) -> Policy:
    name, _, listed = text.partition(":")
    make = getattr(suite, "policy", None)
    if make is None:
        raise ConfigError(
            f"suite {suite.name!r} has no built-in policies, so {name!r} cannot play; "
            "give model folders with --policy, or recorded episodes with --episodes"
        )
    options: dict[str, float] = {}
    for part in filter(None, listed.split(",")):
        key, found, value = part.partition("=")
        try:
            options[key.strip()] = float(value)
        except ValueError:
            found = ""
        if not found:
            raise ConfigError(f"policy {text!r} must have the form name:option=number")
    return Named(text, make(name, **options))


def play_panel(
    suite: Suite,
    tasks: Sequence[Task],
    policies: Sequence[Policy],
    *,
    surveyors: Sequence[Policy],
    path: Path,
    seed: int,
    limits: EpisodeLimits,
    survey_limits: EpisodeLimits,
) -> list[Rollout]:
    """Play every task once with every policy and surveyor, and return the recorded episodes.

    What the file at `path` already holds is not played again.
    """
    with RecordWriter(path, "rollout", {"suite": suite.name, "purpose": "fidelity"}) as writer:
        for chosen, within in ((policies, limits), (surveyors, survey_limits)):
            if not chosen:
                continue
            with progress("playing real episodes", len(tasks) * len(chosen)) as bar:
                asyncio.run(
                    collect(
                        suite,
                        chosen,
                        tasks,
                        episodes_per_task=1,
                        seed=seed,
                        writer=writer,
                        limits=within,
                        on_episode=lambda rollout: bar.advance(),
                    )
                )
    return read_rollouts(path)


def make_panel(
    rollouts: Sequence[Rollout],
    reader: StateReader,
    *,
    surveyors: Sequence[str] = (),
    seen_tasks: Iterable[str] = (),
    seconds: float = 0.0,
) -> Panel:
    """Return the panel of recorded episodes; those of `surveyors` only complete scenarios.

    Raises `DataError` without a usable episode, and for tasks the experience model was fitted on
    (`seen_tasks`): accuracy on them would say nothing.
    """
    usable = [r for r in rollouts if r.transitions and not r.is_fault]
    known = set(seen_tasks)
    both = sorted({r.task.id for r in usable} & known)
    if both:
        raise DataError(
            f"{len(both)} task(s) of the episodes were used to fit the experience model, such as "
            f"{both[0]!r}; measure on episodes of other tasks"
        )
    measured = [r for r in usable if r.policy not in surveyors]
    if not measured:
        raise DataError("there is no usable held-out episode to measure on")
    return Panel(
        episodes=measured,
        tasks=scenario_tasks(usable, reader),
        num_transitions=sum(len(r.transitions) for r in rollouts),
        seconds=seconds,
        num_faults=sum(r.is_fault for r in rollouts),
    )


def sample_episodes(episodes: Sequence[Rollout], *, max_steps: int, seed: int) -> list[Rollout]:
    """Return whole episodes, drawn at random, with at most `max_steps` steps in all.

    Policies take turns, so that each is in the sample; at least one episode is returned.
    """
    by_policy: Mapping[str, list[Rollout]] = defaultdict(list)
    for episode in episodes:
        by_policy[episode.policy].append(episode)
    for name, found in by_policy.items():
        derive_random(seed, "fidelity sample", name).shuffle(found)
    chosen: list[Rollout] = []
    used = 0
    while any(by_policy.values()):
        for name in sorted(by_policy):
            if not by_policy[name]:
                continue
            episode = by_policy[name].pop()
            if chosen and used + len(episode.transitions) > max_steps:
                return chosen
            chosen.append(episode)
            used += len(episode.transitions)
    return chosen


def without_scenario(task: Task) -> Task:
    """Return the task as the real suite knows it."""
    return replace(task, scenario=None)
