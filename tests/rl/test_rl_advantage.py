"""Group advantages and GAE against numbers worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.errors import ConfigError, DataError
from dreamgym.rl.advantage import gae, group_advantages, last_action_index


def close(found: tuple[float, ...], wanted: list[float], tolerance: float = 1e-4) -> bool:
    return all(abs(a - b) <= tolerance for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(("reward", "kind"), [(0.0, "all_fail"), (1.0, "all_pass")])
def test_alg_01_equal_rewards_give_exactly_zero_advantages(reward: float, kind: str) -> None:
    result = group_advantages([reward] * 4)
    assert result.advantages == (0.0,) * 4
    assert (result.dead, result.kind) == (True, kind)


@pytest.mark.parametrize("rewards", [[0.4] * 4, [0.7, 0.7, 0.7, 0.7000001]])
def test_alg_03_equal_graded_rewards_and_float_noise_are_dead(rewards: list[float]) -> None:
    result = group_advantages(rewards)
    assert (result.kind, result.advantages) == ("tied", (0.0,) * 4)


def test_alg_05_a_group_of_one_has_advantage_zero_and_no_nan() -> None:
    for scale in ("std", "mean", "loo"):
        result = group_advantages([0.7], scale=scale)
        assert (result.advantages, result.dead) == ((0.0,), True)


def test_alg_06_which_standard_deviation() -> None:
    rewards = [1, 0, 0, 0]
    assert close(group_advantages(rewards).advantages, [1.5, -0.5, -0.5, -0.5])
    population = group_advantages(rewards, ddof=0).advantages
    assert close(population, [1.7320, -0.5774, -0.5774, -0.5774])
    assert group_advantages(rewards, scale="mean").advantages == (0.75, -0.25, -0.25, -0.25)
    assert close(group_advantages(rewards, scale="loo").advantages, [1, -1 / 3, -1 / 3, -1 / 3])


def test_alg_07_statistics_are_of_the_group() -> None:
    a = group_advantages([1, 1, 0, 0]).advantages
    b = group_advantages([0.1, 0.1, 0, 0]).advantages
    assert close(a, [0.8660, 0.8660, -0.8660, -0.8660])
    assert close(b, [0.8660, 0.8660, -0.8660, -0.8660])


@pytest.mark.parametrize("missing", [None, math.nan])
def test_alg_09_a_missing_reward_is_left_out_of_the_statistics(missing: float | None) -> None:
    result = group_advantages([1, missing, 0, 0])
    assert close(result.advantages, [1.1547, 0.0, -0.5774, -0.5774])
    assert result.advantages[1] == 0.0
    assert (result.weights, result.num_scored) == ((1.0, 0.0, 1.0, 1.0), 3)
    mean = group_advantages([1, missing, 0, 0], scale="mean").advantages
    assert close(mean, [2 / 3, 0, -1 / 3, -1 / 3], 1e-12)


def test_alg_10_std_scaling_makes_a_small_penalty_a_full_signal() -> None:
    rewards = [0, 0, 0, -0.1]
    assert close(group_advantages(rewards).advantages, [0.5, 0.5, 0.5, -1.5])
    plain = group_advantages(rewards, scale="mean").advantages
    assert close(plain, [0.025, 0.025, 0.025, -0.075], 1e-12)
    assert group_advantages([0, 0, 0, 0]).dead


def test_alg_13_statistics_are_over_trajectories_not_turns() -> None:
    assert close(group_advantages([1, 0]).advantages, [0.7071, -0.7071])


def test_a_group_nobody_could_score_is_dead() -> None:
    result = group_advantages([None, None])
    assert (result.kind, result.advantages, result.num_scored) == ("unscored", (0.0, 0.0), 0)


def test_infinite_rewards_and_unknown_scales_are_refused() -> None:
    with pytest.raises(DataError, match="finite"):
        group_advantages([1.0, math.inf])
    with pytest.raises(ConfigError, match="scale"):
        group_advantages([1, 0], scale="rank")  # type: ignore[arg-type]


@given(
    st.lists(st.one_of(st.none(), st.floats(-10, 10)), min_size=1, max_size=12),
    st.sampled_from(["std", "mean", "loo"]),
)
def test_centred_advantages_sum_to_zero(rewards: list[float | None], scale: str) -> None:
    result = group_advantages(rewards, scale=scale)  # type: ignore[arg-type]
    assert all(math.isfinite(a) for a in result.advantages)
    assert abs(math.fsum(result.advantages)) < 1e-6
    assert result.dead == all(a == 0 for a in result.advantages)


def test_ppo_01_gae_runs_over_action_tokens_only() -> None:
    result = gae(
        [0, 0, 0, 0, 0, 0, 1],
        [0.1, 0.2, 9, 9, 9, 0.4, 0.5],
        [1, 1, 0, 0, 0, 1, 1],
        gamma=0.9,
        lam=0.8,
        terminated=True,
    )
    assert close(result.advantages, [0.407744, 0.4552, 0, 0, 0, 0.41, 0.5], 1e-12)
    assert close(result.returns, [0.507744, 0.6552, 0, 0, 0, 0.81, 1.0], 1e-12)


def test_ppo_03_the_last_position_is_found_under_left_padding() -> None:
    assert last_action_index([0, 0, 1, 1, 1]) == 4
    with pytest.raises(DataError):
        last_action_index([0, 0])


def test_ppo_04_the_last_action_token_is_the_end_token_itself() -> None:
    assert last_action_index([1, 1, 1, 0, 0]) == 2
    assert last_action_index([1, 1, 1, 1, 1]) == 4


def test_ppo_06_termination_and_truncation_differ() -> None:
    common = {"gamma": 0.99, "lam": 0.95}
    ended = gae([0, 0], [0.5, 0.6], [1, 1], terminated=True, bootstrap=0.7, **common)
    cut = gae([0, 0], [0.5, 0.6], [1, 1], terminated=False, bootstrap=0.7, **common)
    assert close(ended.advantages, [-0.470300, -0.600000], 1e-9)
    assert close(cut.advantages, [0.1814665, 0.093000], 1e-9)


def test_gae_with_lambda_one_is_return_minus_value() -> None:
    result = gae([0, 0, 2], [0.3, -1, 5], [1, 1, 1], gamma=1, lam=1, terminated=True)
    assert close(result.advantages, [1.7, 3.0, -3.0], 1e-12)
    assert close(result.returns, [2, 2, 2], 1e-12)


def test_values_at_observation_tokens_do_not_matter_even_nan() -> None:
    clean = gae([0, 0, 1], [0.2, 0, 0.4], [1, 0, 1], gamma=0.9, lam=0.9, terminated=True)
    dirty = gae([0, 0, 1], [0.2, math.nan, 0.4], [1, 0, 1], gamma=0.9, lam=0.9, terminated=True)
    assert clean == dirty


def test_a_reward_on_an_unsampled_token_is_refused() -> None:
    with pytest.raises(DataError, match="token 1"):
        gae([0, 1, 0], [0, 0, 0], [1, 0, 1], gamma=1, lam=1, terminated=True)
