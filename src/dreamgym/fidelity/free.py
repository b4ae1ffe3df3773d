"""The dream on its own: drift along real action sequences, and dreamt episodes replayed for real.

Drift feeds a logged episode's actions into a dream, which sees its own answers only, and asks how
long they agree with the log.  Word-to-world (W2R) goes the other way: policies play in the dream,
and what they did there is done again in reality.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from dreamgym.envs.base import Policy, Suite
from dreamgym.errors import FaultError
from dreamgym.evaluate import evaluate
from dreamgym.fidelity.panel import without_scenario
from dreamgym.fidelity.subject import Variant
from dreamgym.llm.budget import finish_all
from dreamgym.probe import replay
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.seeds import derive_seed
from dreamgym.types import Origin, Rollout, StopReason, Task

MAX_CONCURRENT = 64


class DriftRow(msgspec.Struct, frozen=True, kw_only=True):
    """One real episode walked again in the dream."""

    episode_id: str
    policy: str
    steps: int
    """Steps of the real episode."""
    agrees: tuple[bool, ...]
    """Per dreamt step: canonical state and end equal to the real ones."""
    dream_success: bool
    real_success: bool
    is_fault: bool = False

    @property
    def agreed(self) -> int:
        """Steps until the first disagreement."""
        return self.agrees.index(False) if False in self.agrees else len(self.agrees)


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One dreamt episode and what its actions do in reality."""

    task_id: str
    policy: str
    steps: int
    dream_success: bool
    replay_success: bool
    real_steps: int
    """Real transitions the replay took."""
    flags: tuple[str, ...] = ()
    is_fault: bool = False
    """The dream gave no usable answer: nothing was won, nothing was replayed."""


class FreePlay(msgspec.Struct, frozen=True, kw_only=True):
    """Dreamt episodes of several policies and their replays."""

    rows: list[Replayed]
    dream_success: dict[str, dict[str, bool]]
    """Policy -> task id -> success in the dream."""
    num_faults: int
    dream_steps: int
    dream_seconds: float
    real_steps: int
    real_seconds: float


async def drift(
    variant: Variant,
    episodes: Sequence[Rollout],
    *,
    tasks: dict[str, Task],
    seed: int,
    verify: bool = True,
    on_episode: Callable[[], object] = lambda: None,
) -> list[DriftRow]:
    """Walk each real episode's actions through a dream of its task."""
    suite = variant.dream([tasks[e.task.id] for e in episodes], verify=verify)
    gate = asyncio.Semaphore(MAX_CONCURRENT)

    async def one(episode: Rollout) -> DriftRow:
        async with gate:
            row = await _walk(variant, suite, tasks[episode.task.id], episode, seed)
        on_episode()
        return row

    return await finish_all(one(episode) for episode in episodes)


async def _walk(
    variant: Variant, suite: Suite, task: Task, episode: Rollout, seed: int
) -> DriftRow:
    reader = variant.subject.reader
    env = suite.open(variant.task(task), seed=derive_seed(seed, "drift", episode.id))
    agrees: list[bool] = []
    success = is_fault = False
    try:
        await env.start()
        for transition in episode.transitions:
            step = await env.step(transition.action)
            same = reader.canonical(step.observation.text) == reader.canonical(
                transition.next_observation.text
            )
            agrees.append(same and step.terminated == transition.terminated)
            success = step.success
            if step.terminated or step.truncated:
                break
    except FaultError:
        is_fault = True
        agrees.append(False)
    finally:
        await env.close()
    return DriftRow(
        episode_id=episode.id,
        policy=episode.policy,
        steps=len(episode.transitions),
        agrees=tuple(agrees),
        dream_success=success,
        real_success=episode.success,
        is_fault=is_fault,
    )


async def play_and_replay(
    variant: Variant,
    policies: Sequence[Policy],
    tasks: Sequence[Task],
    *,
    seed: int,
    verify: bool = True,
    on_episode: Callable[[], object] = lambda: None,
) -> FreePlay:
    """Play every task in the dream with every policy, then replay the actions for real."""
    started = time.monotonic()
    dreamt = await _dreamt(variant, policies, tasks, seed, verify, on_episode)
    dream_seconds = time.monotonic() - started
    scored = [r for r in dreamt if not r.is_fault and r.reward is not None]
    started = time.monotonic()
    rows = [await _replayed(variant.subject.suite, rollout, seed) for rollout in dreamt]
    real_seconds = time.monotonic() - started
    success: dict[str, dict[str, bool]] = {policy.name: {} for policy in policies}
    for rollout in scored:
        success[rollout.policy][rollout.task.id] = rollout.success
    return FreePlay(
        rows=[row for row in rows if row is not None],
        dream_success=success,
        num_faults=sum(r.stop is StopReason.FAULT for r in dreamt),
        dream_steps=sum(len(r.transitions) for r in dreamt),
        dream_seconds=dream_seconds,
        real_steps=sum(row.real_steps for row in rows if row is not None),
        real_seconds=real_seconds,
    )


async def _dreamt(
    variant: Variant,
    policies: Sequence[Policy],
    tasks: Sequence[Task],
    seed: int,
    verify: bool,
    on_episode: Callable[[], object],
) -> list[Rollout]:
    """Play every task with every policy in the dream; the order depends on names alone."""
    suite = variant.dream(tasks, verify=verify)
    limits = EpisodeLimits(max_steps=variant.subject.max_steps, max_invalid=5)
    dreamt: list[Rollout] = []

    def keep(rollout: Rollout) -> None:
        dreamt.append(rollout)
        on_episode()

    # All policies at once: their steps share the experience model's batches.
    async with asyncio.TaskGroup() as group:
        for policy in policies:
            group.create_task(
                evaluate(
                    suite,
                    policy,
                    [variant.task(task) for task in tasks],
                    seed=seed,
                    limits=limits,
                    origin=Origin.DREAM,
                    max_concurrent=max(MAX_CONCURRENT // len(policies), 1),
                    on_episode=keep,
                )
            )
    return sorted(dreamt, key=lambda r: (r.policy, r.task.id))


async def _replayed(suite: Suite, rollout: Rollout, seed: int) -> Replayed | None:
    """Replay one dreamt episode; None when the real environment failed us."""
    success, steps = False, 0
    is_fault = rollout.is_fault or rollout.reward is None
    if rollout.transitions and not is_fault:  # without an action nothing can be won
        task = without_scenario(rollout.task)
        again = await replay(
            suite,
            msgspec.structs.replace(rollout, task=task),
            seed=derive_seed(seed, "replay", rollout.id),
        )
        if again.is_fault:
            return None
        success, steps = again.success, len(again.transitions)
    return Replayed(
        task_id=rollout.task.id,
        policy=rollout.policy,
        steps=len(rollout.transitions),
        dream_success=rollout.success and not is_fault,
        replay_success=success,
        real_steps=steps,
        flags=tuple(sorted({f for t in rollout.transitions for f in t.flags})),
        is_fault=is_fault,
    )
