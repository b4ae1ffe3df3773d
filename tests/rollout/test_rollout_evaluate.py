from __future__ import annotations

import asyncio

import msgspec
import pytest
from rollout_fakes import CountingEnv, CountingSuite, Speaker, always, expert, gambler

from dreamgym.errors import ConfigError
from dreamgym.evaluate import Evaluation, compare, evaluate
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.stats import Rate
from dreamgym.types import Origin, Step, Task


def run(
    suite: CountingSuite,
    policy: Speaker,
    *,
    origin: Origin = Origin.REAL,
    attempts: int = 1,
    seed: int = 0,
    max_concurrent: int = 7,
) -> Evaluation:
    return asyncio.run(
        evaluate(
            suite,
            policy,
            suite.tasks("train"),
            seed=seed,
            limits=EpisodeLimits(max_steps=12),
            attempts=attempts,
            origin=origin,
            max_concurrent=max_concurrent,
        )
    )


def test_evl_05_every_id_once_and_the_same_panel_each_time() -> None:
    first = run(CountingSuite(128), Speaker(gambler))
    second = run(CountingSuite(128), Speaker(gambler), max_concurrent=1)
    assert sorted(o.task_id for o in first.outcomes) == sorted(f"count-{i}" for i in range(128))
    assert first == second
    assert len({o.seed for o in first.outcomes}) == 128
    assert first.panel == run(CountingSuite(128), Speaker(expert)).panel
    assert first.panel != run(CountingSuite(128), Speaker(gambler), seed=1).panel
    assert first.panel != run(CountingSuite(127), Speaker(gambler)).panel


def test_success_is_reported_with_counts_kinds_and_steps() -> None:
    result = run(CountingSuite(6), Speaker(expert), attempts=2)
    assert result.n == 12
    assert result.success == Rate.of(12, 12)
    assert result.by_kind == {f"to_{goal}": Rate.of(4, 4) for goal in (2, 3, 4)}
    assert result.num_transitions == sum(o.steps for o in result.outcomes)
    assert result.mean_steps == result.num_transitions / 12
    assert result.mode == "scripted"


def test_par_09_the_invalid_action_rate_leaves_out_actions_without_effect() -> None:
    replies = ["I would look", "<action>fly</action>", "<action>Take 1</action>"]

    def mixed(turn: int, heard: str, seed: int) -> str:
        return replies[turn] if turn < 3 else "<action>say 0</action>"

    result = run(CountingSuite(20), Speaker(mixed))
    assert result.invalid_action_rate == 2 / 4
    assert result.counters["invalid_format"] == result.counters["inadmissible"] == 20


class Failing(CountingSuite):
    """Odd tasks cannot be played."""

    def open(self, task: Task, *, seed: int) -> CountingEnv:
        env = super().open(task, seed=seed)
        if int(task.id.split("-")[1]) % 2:
            env.__class__ = BrokenEnv
        return env


class BrokenEnv(CountingEnv):
    async def step(self, action: str) -> Step:
        raise OSError("disk")


class UnscorableEnv(CountingEnv):
    async def step(self, action: str) -> Step:
        return msgspec.structs.replace(await super().step(action), reward=None, success=False)


class Unscorable(CountingSuite):
    def open(self, task: Task, *, seed: int) -> CountingEnv:
        env = super().open(task, seed=seed)
        if task.id == "count-0":
            env.__class__ = UnscorableEnv
        return env


def test_alg_09_faults_and_unscorable_episodes_are_no_failures() -> None:
    result = run(Failing(8), Speaker(expert))
    assert (result.n, result.num_faults, result.success) == (4, 4, Rate.of(4, 4))
    assert all(o.reward is None for o in result.outcomes if o.error)
    result = run(Unscorable(4), Speaker(expert))
    assert (result.n, result.num_unscorable, result.success) == (3, 1, Rate.of(3, 3))


class Tempered(Speaker):
    def __init__(self, temperature: float) -> None:
        super().__init__(expert)
        self.temperature = temperature


def test_greedy_and_sampled_results_are_told_apart() -> None:
    modes = [run(CountingSuite(), Tempered(t), attempts=2).mode for t in (0.0, 0.7)]
    assert modes == ["greedy", "sampled"]


def test_evl_07_simulated_and_real_numbers_stay_apart() -> None:
    dream = run(CountingSuite(10), Speaker(expert), origin=Origin.DREAM)
    real = run(CountingSuite(10), Speaker(always("<action>say 3</action>")))
    both = compare(dream, real)
    assert both.headline == both.real == real.success
    assert both.dream == dream.success == Rate.of(10, 10)
    assert both.gap == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="got 'real' and 'dream'"):
        compare(real, dream)


def test_an_empty_or_repeated_panel_is_refused() -> None:
    suite = CountingSuite(1)
    task = suite.tasks("train")[0]
    for tasks, message in (([], "panel is empty"), ([task, task], "occur twice.*count-0")):
        with pytest.raises(ConfigError, match=message):
            asyncio.run(evaluate(suite, Speaker(expert), tasks, seed=0, limits=EpisodeLimits()))


def test_an_evaluation_survives_json() -> None:
    result = run(CountingSuite(3), Speaker(gambler), attempts=2)
    assert msgspec.json.decode(msgspec.json.encode(result), type=Evaluation) == result
