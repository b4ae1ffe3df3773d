"""The probe: every real step counted, false successes found by replay, collapse noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from household_worlds import episodes, suite
from msgspec.structs import replace

from dreamgym.envs.base import Env
from dreamgym.envs.household.guard import engine_calls
from dreamgym.errors import EnvError
from dreamgym.probe import CollapseGuard, ProbeConfig, ProbeResult, probe, replay
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.types import Observation, Origin, Rollout, Scenario, Step, Task

LIMITS = EpisodeLimits(max_steps=40)


class CountedSuite:
    """The real suite, counting its steps; episodes of some tasks break after two steps."""

    name = "household"

    def __init__(self, broken: frozenset[str] = frozenset()) -> None:
        self.steps = 0
        self.opened: list[Task] = []
        self.broken = broken

    def tasks(self, split: str) -> Sequence[Task]:
        return suite().tasks(split)

    def open(self, task: Task, *, seed: int) -> Env:
        self.opened.append(task)
        return CountedEnv(self, suite().open(task, seed=seed), task.id in self.broken)


class CountedEnv:
    def __init__(self, owner: CountedSuite, inner: Env, is_broken: bool) -> None:
        self.owner, self.inner, self.is_broken = owner, inner, is_broken
        self.count = 0

    async def start(self) -> Observation:
        return await self.inner.start()

    async def step(self, action: str) -> Step:
        if self.is_broken and self.count == 2:
            raise EnvError("the simulator died")
        self.count += 1
        self.owner.steps += 1
        return await self.inner.step(action)

    async def close(self) -> None:
        await self.inner.close()


def dreamt(rollout: Rollout, *, keep: int | None = None, name: str = "") -> Rollout:
    """Return a real episode as if it had been dreamt, cut to its first actions."""
    transitions = tuple(replace(t, origin=Origin.DREAM) for t in rollout.transitions[:keep])
    scenario = Scenario(first_observation="as dreamt")
    return replace(
        rollout,
        id=name or f"dreamt/{rollout.id}",
        task=replace(rollout.task, scenario=scenario),
        transitions=transitions,
    )


def look(
    world: CountedSuite, wins: Sequence[Rollout], policy: str = "expert", **options: Any
) -> ProbeResult:
    return asyncio.run(
        probe(
            world,
            suite().policy(policy),
            suite().tasks("train"),
            wins,
            step=3,
            seed=0,
            limits=LIMITS,
            config=ProbeConfig(**options),
        )
    )


def test_a_replayed_dream_is_played_in_the_real_game_action_by_action() -> None:
    real = episodes()[0]
    before = engine_calls()
    again = asyncio.run(replay(suite(), dreamt(real), seed=9))
    assert engine_calls() > before
    assert again.success
    assert [t.action for t in again.transitions] == [t.action for t in real.transitions]
    assert [t.next_observation for t in again.transitions] == [
        t.next_observation for t in real.transitions
    ]
    assert {t.origin for t in again.transitions} == {Origin.REAL}
    assert again.task.scenario is None
    assert len({t.episode_id for t in again.transitions} & {real.id}) == 0


def test_a_dreamt_success_that_fails_for_real_is_a_false_success() -> None:
    true = [dreamt(r) for r in episodes()[:3]]
    false = [dreamt(r, keep=2, name=f"false/{r.id}") for r in episodes()[:5]]
    found = look(CountedSuite(), [*true, *false], episodes=2, replays=16)
    assert (found.false_success.successes, found.false_success.n) == (5, 8)
    assert found.false_success.value == pytest.approx(5 / 8)


def test_dreamt_failures_and_generated_tasks_are_not_replayed() -> None:
    lost = replace(dreamt(episodes()[0]), success=False)
    made = replace(dreamt(episodes()[1]), task=replace(episodes()[1].task, generated=True))
    found = look(CountedSuite(), [lost, made], episodes=1)
    assert found.false_success.n == 0
    assert found.false_success.ci95 == (0.0, 1.0)


def test_every_real_transition_is_counted_those_of_faults_included() -> None:
    for broken in (frozenset[str](), frozenset({suite().tasks("train")[0].id})):
        world = CountedSuite(broken)
        found = look(world, [dreamt(r) for r in episodes()], episodes=6, replays=6)
        assert found.transitions == world.steps > 20
        assert found.real.n == 6 - len(broken)
        assert found.false_success.n == 6 - len(broken)
        assert not any(r.is_fault for r in found.rollouts)
        assert len(found.rollouts) == 12 - 2 * len(broken)
        kept = sum(len(r.transitions) for r in found.rollouts)
        assert found.transitions == kept + 4 * len(broken)


def test_the_real_rate_is_the_success_of_the_policy() -> None:
    expert = look(CountedSuite(), [], episodes=6)
    assert (expert.real.successes, expert.real.n) == (6, 6)
    wanderer = look(CountedSuite(), [], policy="random", episodes=6)
    wins = sum(r.success for r in wanderer.rollouts)
    assert (wanderer.real.successes, wanderer.real.n) == (wins, 6)
    assert wanderer.real.value < 1.0


def test_a_probe_plays_no_more_than_it_was_given_and_depends_on_seed_and_step() -> None:
    world = CountedSuite()
    wins = [dreamt(r) for r in episodes()]
    found = look(world, wins, episodes=2, replays=3)
    assert len(world.opened) == 5
    assert (found.real.n, found.false_success.n) == (2, 3)
    assert len({task.id for task in world.opened[:2]}) == 2
    again = look(CountedSuite(), wins, episodes=2, replays=3)
    assert [r.id for r in again.rollouts] == [r.id for r in found.rollouts]


def guard(**options: Any) -> CollapseGuard:
    return CollapseGuard(ProbeConfig(**options))


def test_the_first_probe_and_every_better_or_equal_one_is_kept() -> None:
    judge = guard().judge
    assert [judge(r, 0.5, i) for i, r in enumerate((0.0, 0.2, 0.2, 0.7))] == ["better"] * 4


def test_within_the_tolerance_nothing_happens() -> None:
    watch = guard(tolerance=0.12)
    watch.judge(0.5, 0.5, 0)
    assert watch.judge(0.39, 0.9, 1) == "ok"
    assert watch.rollbacks == 0
    assert watch.best_step == 0


def test_reality_falling_while_the_dream_does_not_is_a_collapse_and_finally_a_stop() -> None:
    watch = guard(tolerance=0.12, max_rollbacks=2)
    watch.judge(0.5, 0.5, 0)
    verdicts = [watch.judge(0.2, 0.9, step) for step in (1, 2, 3)]
    assert verdicts == ["collapse", "collapse", "stop"]
    assert watch.best_real == 0.5


def test_a_drop_that_chance_explains_is_not_a_collapse() -> None:
    watch = guard(tolerance=0.12)
    watch.judge(0.47, 0.2, 0, n=32)
    assert watch.judge(0.25, 0.9, 1, n=32) == "ok"  # two standard errors are 0.23
    assert watch.judge(0.25, 0.9, 2, n=200) == "collapse"


def test_falling_together_is_not_a_collapse() -> None:
    watch = guard(tolerance=0.12)
    watch.judge(0.5, 0.5, 0)
    assert watch.judge(0.2, 0.3, 1) == "ok"


def test_the_guards_state_goes_through_json() -> None:
    import json

    watch = guard(max_rollbacks=1)
    watch.judge(0.6, 0.4, 4)
    assert watch.judge(0.1, 0.8, 5) == "collapse"
    other = guard(max_rollbacks=1)
    other.load_state_dict(json.loads(json.dumps(watch.state_dict())))
    assert other.state_dict() == watch.state_dict()
    assert other.judge(0.1, 0.8, 6) == "stop"
    assert other.judge(0.6, 0.1, 7) == "better"
