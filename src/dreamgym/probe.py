"""A small look at reality during dream training: every real step it takes is counted.

The probe plays some episodes of the current policy in the real suite, and replays the actions of
some dreamt successes there.  Its finds are used three ways: the false-success rate is reported,
contradicted episodes refresh the experience model, and a policy that gets worse in reality while
its dream gets better is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from dreamgym.envs.base import Policy, Suite
from dreamgym.rollout.episode import EpisodeLimits, run_episode
from dreamgym.rollout.group import run_groups
from dreamgym.seeds import derive_random, derive_seed
from dreamgym.stats import Rate
from dreamgym.types import Completion, Observation, Origin, Rollout, Task


class ProbeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and how much the probe looks."""

    every: int = 10
    """Iterations between probes; 0 turns the probe off."""
    episodes: int = 32
    """Real episodes of the current policy per probe."""
    replays: int = 16
    """Dreamt successes whose actions are replayed for real, per probe."""
    tolerance: float = 0.12
    """A probe this far below the best one, while the dream did not fall, is a collapse."""
    refresh: bool = True
    """Continue training the experience model on what the probe found."""
    refresh_steps: int = 20
    """SFT steps per refresh, half of the examples new."""
    refresh_rate: float = 0.2
    """Learning rate of a refresh as a share of the peak rate of the fit."""
    max_rollbacks: int = 2
    """After this many rollbacks training stops at the best policy."""


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one probe saw."""

    step: int
    real: Rate
    """Success of the current policy in the real suite."""
    false_success: Rate
    """Share of replayed dreamt successes that fail in the real game of the same scenario."""
    transitions: int
    """Real transitions this probe used."""
    rollouts: tuple[Rollout, ...]
    """All real episodes of the probe, for the experience model and the buffer."""


class ActionList:
    """A policy that plays a fixed list of actions; the episode must end with the list."""

    def __init__(self, actions: Sequence[str]) -> None:
        self.name = "replay"
        self._actions = tuple(actions)

    def start(self, task: Task, *, seed: int) -> ActionList:
        """Return a fresh actor over the same actions."""
        fresh = ActionList(self._actions)
        fresh._position = 0
        return fresh

    _position = 0

    async def act(self, observation: Observation) -> Completion:
        """Return the next action of the list, as text."""
        action = self._actions[self._position]
        self._position += 1
        return Completion(text=f"<action>{action}</action>")

    async def close(self) -> None:
        """Nothing to release."""


async def replay(suite: Suite, rollout: Rollout, *, seed: int) -> Rollout:
    """Play a dreamt episode's actions in the real suite; the task's scenario is not used."""
    actions = [transition.action for transition in rollout.transitions]
    task = msgspec.structs.replace(rollout.task, scenario=None)
    return await run_episode(
        suite.open(task, seed=seed),
        ActionList(actions),
        task,
        episode_id=f"replay/{rollout.id}",
        attempt=rollout.attempt,
        seed=seed,
        limits=EpisodeLimits(max_steps=len(actions), max_invalid=len(actions) + 1),
        origin=Origin.REAL,
    )


async def probe(
    suite: Suite,
    policy: Policy,
    tasks: Sequence[Task],
    dreamt: Sequence[Rollout],
    *,
    step: int,
    seed: int,
    limits: EpisodeLimits,
    config: ProbeConfig,
) -> ProbeResult:
    """Play and replay; `tasks` are training tasks, never evaluation ones."""
    # The same games every time, so that two probes differ by the policy alone.
    chosen = derive_random(seed, "probe").sample(list(tasks), min(config.episodes, len(tasks)))
    rng = derive_random(seed, "probe", step)
    groups = await run_groups(
        suite,
        policy,
        chosen,
        group_size=1,
        seed=derive_seed(seed, "probe"),
        limits=limits,
        origin=Origin.REAL,
    )
    played = [rollout for group in groups for rollout in group.rollouts]
    candidates = [r for r in dreamt if r.success and not r.task.generated]
    picked = rng.sample(candidates, min(config.replays, len(candidates)))
    replayed = [await replay(suite, r, seed=derive_seed(seed, step, r.id)) for r in picked]
    scored = [r for r in played if not r.is_fault]
    checked = [r for r in replayed if not r.is_fault]
    return ProbeResult(
        step=step,
        real=Rate.of(sum(r.success for r in scored), len(scored)),
        false_success=Rate.of(sum(not r.success for r in checked), len(checked)),
        transitions=sum(len(r.transitions) for r in [*played, *replayed]),
        rollouts=(*scored, *checked),
    )


_NOISE = 1.96
"""Standard errors of the difference of two probes that chance is trusted with."""


def _standard_error(first: float, second: float, n: int) -> float:
    mean = (first + second) / 2
    return float((2 * mean * (1 - mean) / n) ** 0.5) if n else 0.0


Verdict = Literal["better", "ok", "collapse", "stop"]


class CollapseGuard:
    """Remembers the best probe and says when dream and reality have parted."""

    def __init__(self, config: ProbeConfig) -> None:
        self._config = config
        self.best_real = -1.0
        self.best_dream = 0.0
        self.best_step = -1
        self.rollbacks = 0

    def judge(self, real: float, dream: float, step: int, *, n: int = 0) -> Verdict:
        """Return what to do after a probe: keep as best, go on, roll back, or stop.

        `n` episodes per probe (0: unknown): a drop that chance explains is not a collapse, since
        the best of several noisy probes is too good by itself.
        """
        if real >= self.best_real:
            self.best_real, self.best_dream, self.best_step = real, dream, step
            return "better"
        drop = max(self._config.tolerance, _NOISE * _standard_error(self.best_real, real, n))
        if real < self.best_real - drop and dream >= self.best_dream:
            self.rollbacks += 1
            return "stop" if self.rollbacks > self._config.max_rollbacks else "collapse"
        return "ok"

    def state_dict(self) -> dict[str, float]:
        """Return the state kept in a checkpoint."""
        return {
            "best_real": self.best_real,
            "best_dream": self.best_dream,
            "best_step": self.best_step,
            "rollbacks": self.rollbacks,
        }

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore what `state_dict` returned."""
        self.best_real = float(state["best_real"])
        self.best_dream = float(state["best_dream"])
        self.best_step = int(state["best_step"])
        self.rollbacks = int(state["rollbacks"])
