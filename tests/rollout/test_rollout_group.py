from __future__ import annotations

import asyncio
import logging

import pytest
from rollout_fakes import (
    CountingEnv,
    CountingSuite,
    Speaker,
    always,
    counting_task,
    expert,
    gambler,
)

from dreamgym.errors import ConfigError, EnvError
from dreamgym.records import encode_line
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import gather_ordered, is_identical, run_group, run_groups
from dreamgym.seeds import derive_random
from dreamgym.types import Observation, Origin, RolloutGroup, StopReason, Task

LIMITS = EpisodeLimits(max_steps=12, max_invalid=4)


def play(
    suite: CountingSuite,
    policy: Speaker,
    *,
    group_size: int = 8,
    seed: int = 0,
    limits: EpisodeLimits = LIMITS,
    max_concurrent: int = 64,
    budget: TransitionBudget | None = None,
) -> list[RolloutGroup]:
    return asyncio.run(
        run_groups(
            suite,
            policy,
            suite.tasks("train"),
            group_size=group_size,
            seed=seed,
            limits=limits,
            origin=Origin.REAL,
            max_concurrent=max_concurrent,
            budget=budget,
        )
    )


def lines(groups: list[RolloutGroup]) -> bytes:
    return b"".join(encode_line(r) for group in groups for r in group.rollouts)


def test_exp_12_all_members_of_a_group_start_alike_and_tasks_differ() -> None:
    suite = CountingSuite()
    groups = play(suite, Speaker(expert))
    starts = [{r.transitions[0].observation.text for r in g.rollouts} for g in groups]
    assert all(len(start) == 1 for start in starts)
    assert starts[0] != starts[1]
    assert [len({e.seed for e in suite.opened if e.task == g.task}) for g in groups] == [1] * 4


class Moody(CountingSuite):
    """Breaks the promise: the start depends on how many episodes were opened."""

    def open(self, task: Task, *, seed: int) -> CountingEnv:
        env = super().open(task, seed=seed)
        env.value = len(self.opened)
        return env


def test_exp_12_members_that_start_differently_are_refused() -> None:
    with pytest.raises(EnvError, match="8 different first observations for task 'count-0'"):
        play(Moody(1), Speaker(always("<action>Add 1</action>")))


def test_det_05_members_differ_by_their_seed_and_reruns_agree() -> None:
    def say_seed(turn: int, heard: str, seed: int) -> str:
        return f"<action>say {seed}</action>"

    groups = play(CountingSuite(), Speaker(say_seed))
    texts = [r.completions[0].text for g in groups for r in g.rollouts]
    assert len(set(texts)) == len(texts) == 32
    assert lines(play(CountingSuite(), Speaker(say_seed))) == lines(groups)
    other = play(CountingSuite(), Speaker(say_seed), seed=1)
    assert not set(texts) & {r.completions[0].text for g in other for r in g.rollouts}


def test_det_05_identical_members_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        groups = play(CountingSuite(), Speaker(expert))
        assert all(is_identical(group) for group in groups)
    assert "token-identical" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        groups = play(CountingSuite(), Speaker(gambler))
        assert not all(is_identical(group) for group in groups)
    assert "token-identical" not in caplog.text


class Greedy(Speaker):
    temperature = 0.0


def test_det_05_a_greedy_policy_is_refused_in_a_group() -> None:
    with pytest.raises(ConfigError, match=r"greedy \(temperature 0\), so all 8 attempts"):
        play(CountingSuite(), Greedy(expert))
    assert play(CountingSuite(), Greedy(expert), group_size=1)


@pytest.mark.parametrize("max_concurrent", [1, 3, 64])
def test_records_are_byte_identical_whatever_the_concurrency(max_concurrent: int) -> None:
    def delay(task: Task) -> float:
        return derive_random("delay", max_concurrent, task.id).random() * 0.001

    straight = play(CountingSuite(), Speaker(gambler), max_concurrent=32)
    shuffled = play(CountingSuite(delay=delay), Speaker(gambler), max_concurrent=max_concurrent)
    assert lines(shuffled) == lines(straight)
    assert [g.task.id for g in shuffled] == [f"count-{i}" for i in range(4)]


def test_a_task_twice_in_a_batch_is_played_twice_and_not_copied() -> None:
    suite = CountingSuite(1)
    task = suite.tasks("train")[0]
    groups = asyncio.run(
        run_groups(
            suite,
            Speaker(gambler),
            [task, task],
            group_size=4,
            seed=0,
            limits=LIMITS,
            origin=Origin.DREAM,
        )
    )
    ids = [r.id for g in groups for r in g.rollouts]
    assert len(set(ids)) == 8
    assert lines(groups[:1]) != lines(groups[1:])


class Flaky(CountingSuite):
    """The third task hangs, the second cannot be opened, all others work."""

    def open(self, task: Task, *, seed: int) -> CountingEnv:
        if task.id == "count-1":
            raise OSError("no such game file")
        env = super().open(task, seed=seed)
        if task.id == "count-2":
            env.__class__ = HangingEnv
        return env


class HangingEnv(CountingEnv):
    async def start(self) -> Observation:
        await asyncio.sleep(60)
        return await super().start()


def test_asy_01_one_hanging_or_failing_episode_harms_nobody() -> None:
    suite = Flaky(8)
    limits = EpisodeLimits(max_steps=12, wall_seconds=0.3)
    groups = play(suite, Speaker(expert), group_size=1, limits=limits)
    rollouts = [g.rollouts[0] for g in groups]
    assert [r.success for r in rollouts] == [i not in {1, 2} for i in range(8)]
    assert "no such game file" in rollouts[1].error
    assert "infrastructure timeout" in rollouts[2].error
    assert groups[1].rewards == groups[2].rewards == [None]
    assert [env.num_closed for env in suite.opened] == [1] * 7


def test_asy_04_cancelled_episodes_are_closed_once_and_leave_nothing_running() -> None:
    suite = CountingSuite(20, delay=lambda task: 5.0)
    policy = Speaker(expert)

    async def run() -> int:
        playing = asyncio.create_task(
            run_groups(
                suite,
                policy,
                suite.tasks("train"),
                group_size=1,
                seed=0,
                limits=LIMITS,
                origin=Origin.REAL,
            )
        )
        await asyncio.sleep(0.05)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1
    assert [env.num_closed for env in suite.opened] == [1] * 20
    assert policy.num_closed == 20


def test_concurrent_episodes_never_exceed_the_budget_together() -> None:
    suite = CountingSuite(8, delay=lambda task: 0.001)
    budget = TransitionBudget(25)
    groups = play(suite, Speaker(gambler), group_size=4, budget=budget)
    rollouts = [r for g in groups for r in g.rollouts]
    assert sum(len(r.transitions) for r in rollouts) == budget.used == len(suite.sent) == 25
    assert any(r.stop is StopReason.BUDGET for r in rollouts)


def test_one_group_is_a_group() -> None:
    suite = CountingSuite()
    task = counting_task(1)
    group = asyncio.run(
        run_group(
            suite,
            Speaker(gambler),
            task,
            group_size=5,
            seed=3,
            limits=LIMITS,
            origin=Origin.DREAM,
        )
    )
    assert [r.attempt for r in group.rollouts] == list(range(5))
    assert {t.origin for r in group.rollouts for t in r.transitions} == {Origin.DREAM}


def test_results_are_reported_in_order_as_early_as_possible() -> None:
    reported: list[int] = []
    finished: list[int] = []

    async def job(index: int) -> int:
        await asyncio.sleep(0.02 if index == 0 else 0.001 * index)
        finished.append(index)
        return index

    results = asyncio.run(
        gather_ordered(
            [lambda i=i: job(i) for i in range(5)],  # type: ignore[misc]
            max_concurrent=5,
            on_result=reported.append,
        )
    )
    assert results == reported == list(range(5))
    assert finished[-1] == 0


def test_a_callers_mistake_inside_a_group_is_raised_plainly() -> None:
    def wrong(turn: int, heard: str, seed: int) -> str:
        raise ConfigError("no such model")

    with pytest.raises(ConfigError, match="no such model"):
        play(CountingSuite(), Speaker(wrong))
