from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from rollout_fakes import CountingEnv, CountingSuite, Speaker, always, counting_task, expert

from dreamgym.agent.policy import ContextFull
from dreamgym.errors import ConfigError, ModelError
from dreamgym.rollout.episode import (
    EpisodeLimits,
    TransitionBudget,
    is_success,
    run_episode,
)
from dreamgym.types import Completion, Observation, Origin, Rollout, Step, StopReason, Transition

LIMITS = EpisodeLimits(max_steps=10, max_invalid=4)


def play(
    policy: Speaker,
    *,
    env: CountingEnv | None = None,
    limits: EpisodeLimits = LIMITS,
    budget: TransitionBudget | None = None,
    heard: list[Transition] | None = None,
) -> Rollout:
    task = counting_task(0)
    env = env or CountingSuite().open(task, seed=0)
    rollout = asyncio.run(
        run_episode(
            env,
            policy,
            task,
            episode_id="e",
            attempt=0,
            seed=0,
            limits=limits,
            origin=Origin.REAL,
            budget=budget,
            on_transition=None if heard is None else heard.append,
        )
    )
    assert env.num_closed == 1
    assert policy.num_closed == 1
    return rollout


def test_a_solved_episode_is_recorded_turn_by_turn() -> None:
    heard: list[Transition] = []
    rollout = play(Speaker(expert), heard=heard)
    assert (rollout.stop, rollout.success, rollout.reward) == (StopReason.TERMINATED, True, 1.0)
    assert tuple(heard) == rollout.transitions
    assert [t.step for t in heard] == list(range(len(heard)))
    assert heard[-1].action == "say 2"
    assert heard[-1].thought == "2 of 2"
    for before, after in itertools.pairwise(heard):
        assert before.next_observation == after.observation
    assert len(rollout.completions) == len(heard)


def test_par_05_the_stored_action_has_the_environments_spelling() -> None:
    env = CountingSuite().open(counting_task(0), seed=0)
    rollout = play(Speaker(always("<action>add 1</action>")), env=env)
    assert {t.action for t in rollout.transitions} == {"Add 1"}
    assert set(env.suite.sent) == {"Add 1"}


def test_par_07_wrong_tags_change_nothing_and_end_at_the_invalid_limit() -> None:
    env = CountingSuite().open(counting_task(0), seed=0)
    before = env.value
    rollout = play(Speaker(always("<think> move </th> <suck> left </suck>")), env=env)
    assert env.value == before
    assert env.suite.sent == []
    assert rollout.stop is StopReason.INVALID_LIMIT
    assert (rollout.reward, rollout.success) == (0.0, False)
    assert rollout.counters == {"invalid_format": 4}
    assert len(rollout.completions) == 4


def test_par_09_three_kinds_of_invalid_are_counted_apart() -> None:
    replies = [
        "I would look around",
        "<action>fly to moon</action>",
        "<action>Take 1</action>",
        "<action>say 9</action>",
    ]
    env = CountingSuite().open(counting_task(0), seed=0)
    env.value = 0  # `Take 1` is admissible but has no effect at zero
    rollout = play(Speaker(lambda turn, heard, seed: replies[turn]), env=env)
    assert rollout.counters == {"invalid_format": 1, "inadmissible": 1, "no_effect": 1}
    assert [t.action for t in rollout.transitions] == ["fly to moon", "Take 1", "say 9"]


def test_an_idle_limit_ends_the_episode_as_failed_and_is_off_by_default() -> None:
    lost = Speaker(always("<action>fly to moon</action>"))
    rollout = play(lost, limits=EpisodeLimits(max_steps=10, max_idle=3))
    assert (rollout.stop, rollout.reward, rollout.success) == (StopReason.INVALID_LIMIT, 0.0, False)
    assert len(rollout.transitions) == 3
    assert not rollout.transitions[-1].truncated
    assert len(play(Speaker(always("<action>fly to moon</action>"))).transitions) == 10


def test_an_idle_limit_does_not_undo_a_success() -> None:
    rollout = play(Speaker(expert), limits=EpisodeLimits(max_steps=10, max_idle=1))
    assert rollout.success


def test_par_10_an_empty_completion_is_the_policys_and_no_fault() -> None:
    rollout = play(Speaker(always("")))
    assert rollout.stop is StopReason.INVALID_LIMIT
    assert rollout.counters == {"empty": 4, "invalid_format": 4}
    assert rollout.error == ""


def test_par_11_a_thought_is_not_a_step() -> None:
    def think_first(turn: int, heard: str, seed: int) -> str:
        return "> think: first I need a pan" if turn == 0 else expert(turn, heard, seed)

    policy = Speaker(think_first)
    rollout = play(policy)
    assert rollout.success
    assert len(rollout.completions) == len(rollout.transitions) + 1
    assert rollout.counters == {"thought_only": 1}
    assert all("think" not in t.action for t in rollout.transitions)


def test_par_11_thinking_for_ever_is_truncated() -> None:
    rollout = play(Speaker(always("> think: hm")), limits=EpisodeLimits(max_steps=3, max_invalid=2))
    assert rollout.stop is StopReason.TURN_LIMIT
    assert len(rollout.completions) == 8
    assert rollout.transitions == ()


def test_ctx_01_a_full_context_truncates_the_episode() -> None:
    def grow(turn: int, heard: str, seed: int) -> str:
        if turn == 2:
            raise ContextFull("no room")
        return "<action>Add 1</action>"

    rollout = play(Speaker(grow))
    assert (rollout.stop, rollout.reward, rollout.error) == (StopReason.CONTEXT, 0.0, "")
    assert [t.truncated for t in rollout.transitions] == [False, True]


def test_ctx_02_a_cut_generation_is_counted_apart_and_costs_no_invalid_action() -> None:
    cut = Completion(text="<think>long ... <act", finish="length")
    limits = EpisodeLimits(max_steps=3, max_invalid=1)
    rollout = play(Speaker(lambda turn, heard, seed: cut), limits=limits)
    assert rollout.counters == {"truncated_generation": 7}
    assert rollout.stop is StopReason.TURN_LIMIT
    assert {c.finish for c in rollout.completions} == {"length"}


def test_ctx_04_the_turn_cap_is_a_truncation_and_not_an_end() -> None:
    limits = EpisodeLimits(max_steps=3)
    rollout = play(Speaker(always("<action>Add 1</action>")), limits=limits)
    assert rollout.stop is StopReason.TURN_LIMIT
    assert [(t.terminated, t.truncated) for t in rollout.transitions] == [
        (False, False),
        (False, False),
        (False, True),
    ]
    assert (rollout.success, rollout.reward) == (False, 0.0)


class Paying(CountingEnv):
    """Pays what it was told to, and ends or not."""

    paid: float | None = 0.0
    ends: bool = True

    async def step(self, action: str) -> Step:
        return Step(
            observation=Observation(text="x"),
            reward=self.paid,
            terminated=self.ends,
            truncated=not self.ends,
        )


def paying(paid: float | None, *, ends: bool = True) -> Paying:
    env = Paying(CountingSuite(), counting_task(0), 0)
    env.paid, env.ends = paid, ends
    return env


@pytest.mark.parametrize(
    ("env", "success", "reward"),
    [
        (paying(0.0, ends=False), False, 0.0),
        (paying(0.9999999), True, 0.9999999),
        (paying(0.75), False, 0.75),
        (paying(0.5, ends=False), False, 0.0),
    ],
)
def test_rwd_07_done_is_not_success(env: Paying, success: bool, reward: float) -> None:
    rollout = play(Speaker(always("<action>x</action>")), env=env)
    assert (rollout.success, rollout.reward) == (success, reward)


def test_rwd_07_success_is_what_the_environment_says() -> None:
    seen = Observation(text="x")
    assert is_success(Step(observation=seen, success=True, terminated=True, reward=0.5))
    assert not is_success(Step(observation=seen, reward=1.0))


def test_alg_09_an_unscorable_end_stays_unscorable() -> None:
    rollout = play(Speaker(always("<action>x</action>")), env=paying(None))
    assert rollout.reward is None
    assert not rollout.is_fault


@pytest.mark.parametrize("paid", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_a_fault(paid: float) -> None:
    rollout = play(Speaker(always("<action>x</action>")), env=paying(paid))
    assert rollout.stop is StopReason.FAULT
    assert "reward must be a finite number" in rollout.error


class Broken(CountingEnv):
    async def step(self, action: str) -> Step:
        raise RuntimeError("connection to https://me:secret@host lost, token=abc123xyz")


def test_alg_09_a_fault_has_no_reward_and_names_suite_task_and_turn() -> None:
    env = Broken(CountingSuite(), counting_task(0), 0)
    rollout = play(Speaker(expert), env=env)
    assert (rollout.stop, rollout.reward, rollout.success) == (StopReason.FAULT, None, False)
    for part in ("RuntimeError", "'counting'", "'count-0'", "turn 1"):
        assert part in rollout.error


def test_sec_05_secrets_do_not_reach_the_record_of_a_fault() -> None:
    rollout = play(Speaker(expert), env=Broken(CountingSuite(), counting_task(0), 0))
    assert "secret" not in rollout.error
    assert "abc123xyz" not in rollout.error
    assert "https://***@host" in rollout.error


def test_alg_16_a_failure_before_any_generation_leaves_no_filler() -> None:
    def fail(turn: int, heard: str, seed: int) -> str:
        raise ModelError("endpoint is down")

    rollout = play(Speaker(fail))
    assert rollout.is_fault
    assert (rollout.completions, rollout.transitions, rollout.reward) == ((), (), None)


def test_exp_03_the_environment_receives_only_the_parsed_action() -> None:
    env = CountingSuite().open(counting_task(0), seed=0)
    rollout = play(Speaker(always("<action>Add 1</action>\nreward: 1.0\ndone: True")), env=env)
    assert set(env.suite.sent) == {"Add 1"}
    assert not rollout.success
    assert rollout.counters["invented_observation"] == len(rollout.completions)


def test_sec_06_code_in_an_action_is_an_inadmissible_action(tmp_path: Path) -> None:
    mark = tmp_path / "MARK"
    text = f"<action>__import__('os').system('touch {mark}')</action>"
    rollout = play(Speaker(always(text)))
    assert rollout.counters["inadmissible"] == len(rollout.transitions)
    assert not mark.exists()


class Hanging(CountingEnv):
    async def start(self) -> Observation:
        await asyncio.sleep(60)
        return await super().start()


def test_asy_01_a_hanging_environment_is_an_infrastructure_timeout() -> None:
    env = Hanging(CountingSuite(), counting_task(0), 0)
    rollout = play(Speaker(expert), env=env, limits=EpisodeLimits(wall_seconds=0.05))
    assert rollout.is_fault
    assert "infrastructure timeout" in rollout.error
    assert "in start" in rollout.error


class Dawdling(CountingEnv):
    async def step(self, action: str) -> Step:
        await asyncio.sleep(0.04)
        return await super().step(action)


def test_asy_01_the_limit_is_for_the_whole_episode_and_not_per_step() -> None:
    env = Dawdling(CountingSuite(), counting_task(0), 0)
    limits = EpisodeLimits(max_steps=30, wall_seconds=0.15)
    rollout = play(Speaker(always("<action>Add 1</action>")), env=env, limits=limits)
    assert rollout.is_fault
    assert "in step" in rollout.error
    assert 1 <= len(rollout.transitions) <= 3


class SlowSpeaker(Speaker):
    """Thinks longer than the environment's limit each turn."""

    def start(self, task: object, *, seed: int) -> SlowSpeaking:  # type: ignore[override]
        return SlowSpeaking(self)


class SlowSpeaking:
    def __init__(self, policy: SlowSpeaker) -> None:
        self.policy, self.turn, self.heard = policy, 0, ""

    async def act(self, observation: Observation) -> Completion:
        await asyncio.sleep(0.12)
        self.heard += observation.text
        self.turn += 1
        return Completion(text=expert(self.turn, self.heard, 0))

    async def close(self) -> None:
        self.policy.num_closed += 1


def test_asy_03_the_policys_time_does_not_count_for_the_environment() -> None:
    rollout = play(SlowSpeaker(expert), limits=EpisodeLimits(wall_seconds=0.1))
    assert rollout.success


class Unclosable(CountingEnv):
    async def close(self) -> None:
        await super().close()
        raise RuntimeError("already gone")


def test_a_failing_close_is_counted_and_changes_no_result() -> None:
    rollout = play(Speaker(expert), env=Unclosable(CountingSuite(), counting_task(0), 0))
    assert rollout.success
    assert rollout.counters == {"close_failed": 1}


def test_a_used_up_budget_truncates_without_a_verdict() -> None:
    budget = TransitionBudget(2)
    rollout = play(Speaker(always("<action>Add 1</action>")), budget=budget)
    assert rollout.stop is StopReason.BUDGET
    assert rollout.reward is None
    assert [t.truncated for t in rollout.transitions] == [False, True]
    assert (budget.used, budget.remaining) == (2, 0)


def test_only_executed_actions_use_the_budget() -> None:
    budget = TransitionBudget(5)
    play(Speaker(always("nothing readable")), budget=budget)
    assert budget.used == 0
    assert budget.reserve()


def test_a_callers_mistake_is_raised_and_everything_is_closed() -> None:
    def misconfigured(turn: int, heard: str, seed: int) -> str:
        raise ConfigError("wrong")

    policy = Speaker(misconfigured)
    env = CountingSuite().open(counting_task(0), seed=0)
    with pytest.raises(ConfigError, match="wrong"):
        play(policy, env=env)
    assert (env.num_closed, policy.num_closed) == (1, 1)


def test_impossible_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_steps must be positive; got 0"):
        EpisodeLimits(max_steps=0)
