"""Rollouts to training sequences."""

from __future__ import annotations

import functools
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_fakes import make_rollout, random_completions, turn

from dreamgym.errors import DataError
from dreamgym.rl.samples import attach_gae, rollout_to_samples
from dreamgym.types import Completion, StopReason

END = 2


def test_tok_11_every_turn_is_trained_not_only_the_last() -> None:
    turns = [turn([10, 11, 12], [3, 4, 5, 6, 7, END]) for _ in range(3)]
    (sample,) = rollout_to_samples(make_rollout(turns), 0.5)
    assert sum(sample.mask) == 15 + 3
    assert sample.mask == ((0,) * 3 + (1,) * 6) * 3
    assert sample.advantages == ((0.0,) * 3 + (0.5,) * 6) * 3


def test_tok_08_the_sampled_end_token_is_trained_even_if_it_is_also_padding() -> None:
    first = rollout_to_samples(make_rollout([turn([9], [5, 6, END])]), 1.0)[0]
    longer = rollout_to_samples(make_rollout([turn([9, END, END], [5, 6, 7, END])]), 1.0)[0]
    assert first.mask == (0, 1, 1, 1)
    assert longer.mask == (0, 0, 0, 1, 1, 1, 1)


def test_tok_03_sampled_ids_are_kept_as_sampled() -> None:
    completion = Completion(
        text="international", context_ids=(1,), token_ids=(7, 8), logprobs=(-0.5, -0.25)
    )
    (sample,) = rollout_to_samples(make_rollout([completion]), 1.0)
    assert sample.token_ids == (1, 7, 8)
    assert sample.logprobs == (0.0, -0.5, -0.25)


def test_tok_06_a_restart_splits_the_trajectory_and_its_parts_weigh_one() -> None:
    turns = [
        turn([1, 2], [3, 4]),
        turn([1, 2, 5], [6, 7, 8], restart=True),
        turn([9], [10]),
    ]
    samples = rollout_to_samples(make_rollout(turns), -0.5)
    assert [s.token_ids for s in samples] == [(1, 2, 3, 4), (1, 2, 5, 6, 7, 8, 9, 10)]
    assert [s.weight for s in samples] == [pytest.approx(2 / 6), pytest.approx(4 / 6)]


@pytest.mark.parametrize("reward", [None, math.nan])
def test_alg_16_faults_and_unscorable_rollouts_give_no_sample(reward: float | None) -> None:
    turns = [turn([1], [2])]
    assert rollout_to_samples(make_rollout(turns, stop=StopReason.FAULT), 1.0) == []
    assert rollout_to_samples(make_rollout(turns, reward=reward), 1.0) == []
    assert rollout_to_samples(make_rollout([], reward=0.0), 1.0) == []


def test_is_10_missing_log_probabilities_are_refused() -> None:
    stored = Completion(text="", context_ids=(1, 2), token_ids=(3, 4))
    with pytest.raises(DataError, match="2 tokens were sampled but 0 log-probabilities"):
        rollout_to_samples(make_rollout([stored]), 1.0)
    with pytest.raises(DataError, match="no recorded token ids"):
        rollout_to_samples(make_rollout([Completion(text="look")]), 1.0)


@pytest.mark.parametrize("bad", [math.nan, 0.5, -math.inf])
def test_numbers_that_are_no_log_probability_are_refused(bad: float) -> None:
    with pytest.raises(DataError, match="not the logarithm"):
        rollout_to_samples(make_rollout([turn([1], [2], logprob=bad)]), 1.0)


def test_a_sampled_token_without_any_context_is_refused() -> None:
    with pytest.raises(DataError, match="no context"):
        rollout_to_samples(make_rollout([turn([], [2])]), 1.0)


def test_ctx_05_a_cut_rollout_has_no_trained_token_at_all() -> None:
    whole = make_rollout([turn([1], [2, END])], reward=1.0, name="whole")
    cut_turn = msgspec.structs.replace(turn([1], [2, 3, 4, 5]), finish="length")
    for cut in (
        make_rollout([cut_turn], reward=0.0, name="cut"),
        make_rollout([turn([1], [2])], reward=0.0, stop=StopReason.CONTEXT, name="cut"),
    ):
        samples = [s for r in (whole, cut) for s in rollout_to_samples(r, 1.0, mask_truncated=True)]
        assert [s.rollout_id for s in samples] == ["whole"]
        assert rollout_to_samples(cut, 1.0) != []
    at_turn_limit = make_rollout([turn([1], [2])], stop=StopReason.TURN_LIMIT)
    assert rollout_to_samples(at_turn_limit, 1.0, mask_truncated=True) != []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.sets(st.integers(0, 5)))
def test_masks_count_sampled_tokens_and_keep_recorded_log_probabilities(
    seed: int, turns: int, restarts: set[int]
) -> None:
    completions = [
        msgspec.structs.replace(
            c,
            restart=i in restarts,
            logprobs=tuple(-0.01 * (k + i) for k in range(len(c.logprobs))),
        )
        for i, c in enumerate(random_completions(seed, turns))
    ]
    samples = rollout_to_samples(make_rollout(completions), 0.25)
    assert sum(sum(s.mask) for s in samples) == sum(len(c.token_ids) for c in completions)
    trained = [
        (i, p)
        for s in samples
        for i, p, m in zip(s.token_ids, s.logprobs, s.mask, strict=True)
        if m
    ]
    recorded = [x for c in completions for x in zip(c.token_ids, c.logprobs, strict=True)]
    assert trained == recorded
    assert sum(s.weight for s in samples) == pytest.approx(1.0)
    assert [i for s in samples for i in s.token_ids] == [
        i for c in completions for i in (*c.context_ids, *c.token_ids)
    ]


def test_ppo_04_the_outcome_reward_is_paid_on_the_last_sampled_token() -> None:
    (sample,) = rollout_to_samples(make_rollout([turn([1, 1], [2, END]), turn([3], [4])]), 0.0)
    (done,) = attach_gae(
        [sample],
        [[9.0, 9.0, 0.1, 0.2, 9.0, 0.3]],
        reward=1.0,
        gamma=1.0,
        lam=0.0,
        terminated=True,
    )
    # lam 0: one-step errors; only the last token sees the reward
    assert done.advantages == pytest.approx((0, 0, 0.1, 0.1, 0, 0.7))
    assert done.returns == pytest.approx((0, 0, 0.2, 0.3, 0, 1.0))
    assert done.values == pytest.approx((0, 0, 0.1, 0.2, 0, 0.3))


def test_gae_is_one_chain_over_the_parts_of_a_split_rollout() -> None:
    turns = [turn([1], [2, 3]), turn([4], [5])]
    split = [turns[0], msgspec.structs.replace(turns[1], restart=True)]
    whole = rollout_to_samples(make_rollout(turns), 0.0)
    parts = rollout_to_samples(make_rollout(split), 0.0)
    chain = functools.partial(attach_gae, reward=1.0, gamma=0.9, lam=0.8, terminated=True)
    one = chain(whole, [[0, 0.1, 0.2, 0, 0.3]])
    two = chain(parts, [[0, 0.1, 0.2], [0, 0.3]])
    assert one[0].advantages == two[0].advantages + two[1].advantages


def test_ppo_06_a_cut_rollout_is_bootstrapped() -> None:
    samples = rollout_to_samples(make_rollout([turn([1], [2, 3])], reward=0.0), 0.0)
    chain = functools.partial(attach_gae, samples, [[0, 0.5, 0.6]], reward=0.0, gamma=0.9, lam=1.0)
    ended = chain(terminated=True)[0]
    cut = chain(terminated=False)[0]
    assert ended.advantages == pytest.approx((0, -0.5, -0.6))
    assert cut.advantages == pytest.approx((0, 0.81 * 0.6 - 0.5, 0.9 * 0.6 - 0.6))
