"""Disturbances: off by default, at the set rate, flagged, alike for a group, never remembered."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from dream_worlds import LIMITS, READER, TASK, WINNING, dream, from_known, play, real_suite
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dreamgym.dream.env import DreamConfig, DreamSuite
from dreamgym.dream.perturb import (
    FLAG,
    NAMES,
    PerturbConfig,
    PerturbedSuite,
    is_perturbed,
)
from dreamgym.errors import ConfigError
from dreamgym.pipeline.subscribers import BufferGrower
from dreamgym.probe import ActionList
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import run_group
from dreamgym.types import Origin, Rollout, RolloutGroup, Step


def disturbed(config: PerturbConfig) -> DreamSuite:
    plain = dream(from_known)
    return DreamSuite(
        [TASK], model=plain.model, reader=READER, config=DreamConfig(max_steps=20, perturb=config)
    )


def steps(config: PerturbConfig, actions: tuple[str, ...] = WINNING, seed: int = 0) -> list[Step]:
    async def run() -> list[Step]:
        env = disturbed(config).open(TASK, seed=seed)
        await env.start()
        found = [await env.step(action) for action in actions]
        await env.close()
        return found

    return asyncio.run(run())


def test_nothing_is_disturbed_by_default() -> None:
    assert not PerturbConfig().is_on and not DreamConfig().perturb.is_on
    rollout = play(dream(from_known), WINNING)
    assert rollout.success and not any(map(is_perturbed, rollout.transitions))


@pytest.mark.parametrize("name", NAMES)
def test_each_disturbance_is_flagged_and_counted(name: str) -> None:
    suite = disturbed(PerturbConfig(**{name: 1.0}))  # type: ignore[arg-type]  # rates only
    rollout = play(suite, WINNING)
    marked = [t for t in rollout.transitions if f"{FLAG}{name}" in t.flags]
    assert marked and len(marked) == suite.perturbed[name]
    assert all(is_perturbed(t) for t in marked)


def test_a_failed_action_leaves_the_world_where_it_was() -> None:
    failed = steps(PerturbConfig(failed_action=1.0, failed_text="It is stuck."))
    assert {step.observation.text for step in failed} == {"It is stuck."}
    assert all(step.reward == 0.0 and not step.terminated for step in failed)


def test_a_false_report_says_what_would_have_happened_and_nothing_has() -> None:  # EXP-13
    honest = steps(PerturbConfig(), WINNING[:1])
    told = steps(PerturbConfig(false_report=1.0), WINNING[:2])
    assert told[0].observation == honest[0].observation
    # Still not at the desk, so that nothing can be taken from it.
    assert told[1].observation.text == "Nothing happens."
    assert all(step.flags == (f"{FLAG}false_report",) for step in told)


def test_a_report_never_claims_the_end_of_an_episode() -> None:
    rollout = play(disturbed(PerturbConfig(false_report=1.0)), WINNING)
    assert not rollout.success  # nothing was ever done


def test_partial_results_are_cut_and_missing_items_are_gone() -> None:
    (whole,) = steps(PerturbConfig(), WINNING[:1])
    (cut,) = steps(PerturbConfig(partial_result=1.0), WINNING[:1])
    assert cut.observation.text.endswith(" ...")
    assert whole.observation.text.startswith(cut.observation.text.removesuffix(" ..."))
    (less,) = steps(PerturbConfig(missing_item=1.0), WINNING[:1])
    assert whole.observation.text.count("a pen") == 2 and less.observation.text.count("a pen") == 1


def test_a_delayed_result_comes_with_the_next_step() -> None:
    plain = steps(PerturbConfig(), WINNING[:2])
    for seed in range(50):
        late = steps(PerturbConfig(delay=0.5), WINNING[:2], seed)
        if late[0].flags == (f"{FLAG}delay",) and late[1].flags == (f"{FLAG}late_result",):
            break
    assert late[0].observation.text == PerturbConfig().delayed_text
    both = f"{plain[0].observation.text} {plain[1].observation.text}"
    assert late[1].observation.text == both


def test_the_end_is_told_as_it_is() -> None:
    rollout = play(disturbed(PerturbConfig(delay=0.5, missing_item=0.5)), WINNING)
    assert rollout.success and rollout.transitions[-1].terminated
    assert set(rollout.transitions[-1].flags) <= {f"{FLAG}late_result"}


def test_members_of_a_group_are_disturbed_alike() -> None:  # EXP-12
    config = PerturbConfig(failed_action=0.3, missing_item=0.3, delay=0.2)
    group = asyncio.run(
        run_group(
            disturbed(config),
            ActionList(WINNING),
            TASK,
            group_size=16,
            seed=7,
            limits=EpisodeLimits(max_steps=len(WINNING)),
            origin=Origin.DREAM,
        )
    )
    told = {
        tuple((t.next_observation.text, t.flags) for t in r.transitions) for r in group.rollouts
    }
    assert len(told) == 1 and len(set(group.rewards)) == 1


def test_the_rate_is_what_was_set_and_other_seeds_are_disturbed_elsewhere() -> None:
    config = PerturbConfig(failed_action=0.25)
    places = [
        tuple(
            any(f.startswith(FLAG) for f in step.flags)
            for step in steps(config, ("look",) * 20, seed)
        )
        for seed in range(30)
    ]
    share = sum(map(sum, places)) / 600
    assert 0.19 < share < 0.31  # three standard deviations
    assert len(set(places)) > 20


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(0, 0.2)), st.integers(0, 1000))
def test_at_most_one_disturbance_is_drawn_and_none_with_rate_0(
    rates: dict[str, float], seed: int
) -> None:
    from random import Random

    config = PerturbConfig(**rates)  # type: ignore[arg-type]  # rates only
    name = config.draw(Random(seed))
    assert name == "" or rates[name] > 0


def test_disturbed_steps_never_enter_the_replay_buffer() -> None:
    rollout = play(disturbed(PerturbConfig(missing_item=1.0)), WINNING)
    clean = [t for t in rollout.transitions if not is_perturbed(t)]
    assert 0 < len(clean) < len(rollout.transitions)
    buffer = ReplayBuffer(None, HashedNgramEncoder(), capacity=100)
    result: Any = _Iteration(rollout)
    asyncio.run(BufferGrower(buffer)(result, result))
    assert not any(is_perturbed(transition) for transition in buffer.transitions)
    assert len(buffer) == len(clean)


class _Iteration:
    """The part of a training iteration that the buffer's grower looks at."""

    def __init__(self, rollout: Rollout) -> None:
        self.groups = [RolloutGroup(task=rollout.task, rollouts=(rollout,))]
        self.metrics: dict[str, float] = {}


def test_a_real_suite_can_be_disturbed_too() -> None:
    suite = PerturbedSuite(real_suite(), PerturbConfig(failed_action=1.0))
    task = suite.tasks("train")[0]

    async def run() -> Step:
        env = suite.open(task, seed=0)
        first = await env.start()
        assert first.actions
        step = await env.step(first.actions[0])
        await env.close()
        assert step.observation.actions == first.actions
        return step

    assert asyncio.run(run()).flags == (f"{FLAG}failed_action",)
    assert suite.counters == Counter({"failed_action": 1}) and suite.name == "household"


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"delay": 1.5}, r"perturb\.delay must be a probability in \[0, 1\]; got 1.5"),
        ({"delay": float("nan")}, r"perturb\.delay must be"),
        ({"delay": 0.6, "missing_item": 0.6}, "add up to more than 1"),
    ],
)
def test_bad_rates_are_refused(rates: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PerturbConfig(**rates)  # type: ignore[arg-type]  # rates only


def test_the_limit_of_the_episode_still_holds() -> None:
    suite = disturbed(PerturbConfig(failed_action=1.0))
    group = asyncio.run(
        run_group(
            suite,
            ActionList(["look"] * 20),
            TASK,
            group_size=1,
            seed=0,
            limits=replace(LIMITS, max_steps=6),
            origin=Origin.DREAM,
        )
    )
    assert len(group.rollouts[0].transitions) == 6
