"""Evaluation: a fixed panel of tasks, every id once per attempt, faults told apart from failures.

Numbers from a dream and from the real suite are never averaged; `compare` puts them side by side
and the headline is the real one.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from dreamgym.envs.base import Policy, Suite
from dreamgym.errors import ConfigError
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.rollout.episode import EpisodeLimits, Parser
from dreamgym.rollout.group import EpisodeSpec, Player, episode_spec, gather_ordered
from dreamgym.stats import Rate
from dreamgym.types import Origin, Rollout, StopReason, Task


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One episode of an evaluation."""

    task_id: str
    kind: str
    attempt: int
    seed: int
    """The policy's seed."""
    success: bool
    reward: float | None
    steps: int
    stop: StopReason
    error: str = ""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy achieves on a panel; rates are over scored episodes, faults apart."""

    suite: str
    policy: str
    origin: Origin
    mode: str
    """`greedy`, `sampled` or `scripted` (a policy without a temperature)."""
    n: int
    """Scored episodes."""
    success: Rate
    by_kind: dict[str, Rate]
    mean_reward: float
    mean_steps: float
    num_faults: int
    num_unscorable: int
    """Episodes without a reward that are not faults."""
    num_transitions: int
    """All executed transitions; in a real suite they are real ones and belong in the budget."""
    invalid_action_rate: float
    """Format errors and inadmissible actions per reply (no-effect actions are not invalid)."""
    counters: dict[str, int]
    stops: dict[str, int]
    panel: str
    """Hash of task ids, seeds and attempts: equal hashes played the same panel."""
    seed: int
    attempts: int
    outcomes: tuple[Outcome, ...]


class SimToReal(msgspec.Struct, frozen=True, kw_only=True):
    """A dream's number and reality's, apart."""

    headline: Rate
    """The real success."""
    real: Rate
    dream: Rate
    gap: float
    """Dream minus real."""


async def evaluate(
    suite: Suite,
    policy: Policy,
    tasks: Sequence[Task],
    *,
    seed: int,
    limits: EpisodeLimits,
    attempts: int = 1,
    origin: Origin = Origin.REAL,
    max_concurrent: int = 64,
    budget: TransitionBudget | None = None,
    parser: Parser | None = None,
    on_episode: Callable[[Rollout], None] | None = None,
) -> Evaluation:
    """Play every task `attempts` times and report; the same arguments play the same panel.

    Nothing played here may enter a buffer, seeds or a curriculum; `on_episode` is for progress
    and for keeping records apart from training data.
    """
    if not tasks:
        raise ConfigError("the evaluation panel is empty; check the split")
    if attempts < 1:
        raise ConfigError(f"attempts must be at least 1; got {attempts}")
    twice = sorted(i for i, count in Counter(task.id for task in tasks).items() if count > 1)
    if twice:
        raise ConfigError(f"task ids occur twice in the evaluation panel: {', '.join(twice[:5])}")
    player = Player(suite, policy, limits=limits, origin=origin, budget=budget, parser=parser)
    specs = [episode_spec(task, a, seed=seed) for task in tasks for a in range(attempts)]
    rollouts = await gather_ordered(
        [functools.partial(player.play, spec) for spec in specs],
        max_concurrent=max_concurrent,
        on_result=on_episode,
    )
    return _report(player, rollouts, specs, seed=seed, attempts=attempts)


def _report(
    player: Player,
    rollouts: Sequence[Rollout],
    specs: Sequence[EpisodeSpec],
    *,
    seed: int,
    attempts: int,
) -> Evaluation:
    scored = [r for r in rollouts if not r.is_fault and r.reward is not None]
    kinds = sorted({r.task.kind for r in scored})
    num_faults = sum(r.is_fault for r in rollouts)
    counters: Counter[str] = Counter()
    for rollout in rollouts:
        counters.update(rollout.counters)
    return Evaluation(
        suite=player.suite.name,
        policy=player.policy.name,
        origin=player.origin,
        mode=_mode(player.policy),
        n=len(scored),
        success=_success(scored),
        by_kind={kind: _success([r for r in scored if r.task.kind == kind]) for kind in kinds},
        mean_reward=_mean([r.reward or 0.0 for r in scored]),
        mean_steps=_mean([len(r.transitions) for r in scored]),
        num_faults=num_faults,
        num_unscorable=len(rollouts) - len(scored) - num_faults,
        num_transitions=sum(len(r.transitions) for r in rollouts),
        invalid_action_rate=_invalid_rate(scored),
        counters=dict(sorted(counters.items())),
        stops=dict(sorted(Counter(r.stop.value for r in rollouts).items())),
        panel=panel_hash([(s.task.id, s.attempt, s.env_seed, s.policy_seed) for s in specs]),
        seed=seed,
        attempts=attempts,
        outcomes=tuple(_outcome(r, s.policy_seed) for r, s in zip(rollouts, specs, strict=True)),
    )


def compare(dream: Evaluation, real: Evaluation) -> SimToReal:
    """Put a dream's evaluation beside the real one; raises `ConfigError` if they are mixed up."""
    if dream.origin is not Origin.DREAM or real.origin is not Origin.REAL:
        raise ConfigError(
            "compare needs an evaluation in a dream and one in the real suite; "
            f"got {dream.origin.value!r} and {real.origin.value!r}"
        )
    gap = dream.success.value - real.success.value
    return SimToReal(headline=real.success, real=real.success, dream=dream.success, gap=gap)


def panel_hash(panel: Sequence[tuple[str, int, int, int]]) -> str:
    """Return a short hash of (task id, attempt, env seed, policy seed) rows, order included."""
    text = json.dumps(panel, separators=(",", ":"))
    return hashlib.blake2b(text.encode("ascii"), digest_size=8).hexdigest()


def _mode(policy: Policy) -> str:
    temperature = getattr(policy, "temperature", None)
    if temperature is None:
        return "scripted"
    return "greedy" if temperature == 0 else "sampled"


def _success(scored: Sequence[Rollout]) -> Rate:
    return Rate.of(sum(r.success for r in scored), len(scored))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _invalid_rate(scored: Sequence[Rollout]) -> float:
    names = ("invalid_format", "inadmissible")
    invalid = sum(r.counters.get(name, 0) for r in scored for name in names)
    return invalid / max(sum(len(r.completions) for r in scored), 1)


def _outcome(rollout: Rollout, seed: int) -> Outcome:
    return Outcome(
        task_id=rollout.task.id,
        kind=rollout.task.kind,
        attempt=rollout.attempt,
        seed=seed,
        success=rollout.success,
        reward=rollout.reward,
        steps=len(rollout.transitions),
        stop=rollout.stop,
        error=rollout.error,
    )
