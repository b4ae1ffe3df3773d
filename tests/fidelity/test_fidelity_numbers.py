"""Calibration, ranks, bounds and break-even against values worked by hand."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.errors import UserError
from dreamgym.fidelity.bound import bound, clustered_share
from dreamgym.fidelity.calibration import auroc, calibrate
from dreamgym.fidelity.costs import StepCost, break_even
from dreamgym.fidelity.rank import count_pairs, rank_agreement
from dreamgym.stats import wilson

EIGHTHS = st.integers(0, 8).map(lambda number: number / 8)  # so that 1 - x is exact
PAIRS = st.lists(st.tuples(EIGHTHS, st.booleans()), min_size=1, max_size=60)


def test_calibration_error_of_two_bins_by_hand() -> None:
    pairs = [(0.95, True)] * 8 + [(0.95, False)] * 2 + [(0.15, True)] * 1 + [(0.15, False)] * 9
    found = calibrate(pairs)
    # (10/20) * |0.95 - 0.8| + (10/20) * |0.15 - 0.1|
    assert found.ece == pytest.approx(0.1)
    assert found.brier == pytest.approx(
        (8 * 0.05**2 + 2 * 0.95**2 + 1 * 0.85**2 + 9 * 0.15**2) / 20
    )
    assert found.auroc == pytest.approx((8 * 9 + 0.5 * (8 * 2 + 1 * 9)) / (9 * 11))


def test_dropping_unsure_answers_raises_accuracy_where_confidence_means_something() -> None:
    found = calibrate([(0.9, True)] * 5 + [(0.1, False)] * 5)
    assert dict(found.selective) == {1.0: 0.5, 0.95: 0.5, 0.9: 5 / 9, 0.8: 0.625, 0.5: 1.0}


def test_without_answers_there_is_no_calibration_and_outside_0_1_an_error() -> None:
    assert calibrate([]).ece is None and calibrate([]).bins == ()
    with pytest.raises(UserError, match=r"\[0, 1\]; got 1.5"):
        calibrate([(1.5, True)])


@given(PAIRS)
def test_errors_lie_in_0_1_and_no_answer_is_lost(pairs: list[tuple[float, bool]]) -> None:
    found = calibrate(pairs)
    assert found.ece is not None and found.adaptive_ece is not None
    assert 0 <= found.ece <= 1 and 0 <= found.adaptive_ece <= 1
    assert sum(one.right.n for one in found.bins) == len(pairs)
    mirrored = auroc([(1 - confidence, right) for confidence, right in pairs])
    if found.auroc is not None and mirrored is not None:
        assert found.auroc + mirrored == pytest.approx(1)


def test_reversed_orders_have_kendall_minus_one() -> None:
    dream = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
    real = {name: 1 - value for name, value in dream.items()}
    found = rank_agreement(dream, real)
    assert found.kendall == pytest.approx(-1) and found.spearman == pytest.approx(-1)
    assert (found.pairs_agreeing, found.pairs_reversed, found.pairs_tied) == (0, 6, 0)
    assert found.is_enough


def test_one_exchanged_pair_of_four_by_hand() -> None:
    found = rank_agreement({"a": 1, "b": 2, "c": 3, "d": 4}, {"a": 1, "b": 3, "c": 2, "d": 4})
    assert found.kendall == pytest.approx((5 - 1) / 6)
    assert found.spearman == pytest.approx(1 - 6 * 2 / (4 * 15))


def test_equal_policies_have_no_rank_correlation_and_three_are_too_few() -> None:
    same = rank_agreement({"a": 0.5, "b": 0.5}, {"a": 0.1, "b": 0.2})
    assert same.kendall is None and same.pairs_tied == 1
    assert not rank_agreement(dict.fromkeys("abc", 1.0), dict.fromkeys("abc", 1.0)).is_enough
    with pytest.raises(UserError, match="only one of them has b"):
        rank_agreement({"a": 1}, {"a": 1, "b": 2})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_every_pair_is_counted_once(values: list[tuple[int, int]]) -> None:
    counts = count_pairs([a for a, _ in values], [b for _, b in values])
    assert sum(counts) == len(values) * (len(values) - 1) // 2


def test_independent_steps_get_about_the_plain_interval_and_alike_ones_a_wider() -> None:
    rng = Random(1)
    alone = clustered_share([(i, float(rng.random() < 0.2)) for i in range(400)])
    plain = wilson(round(alone.value * 400), 400)
    assert alone.ci95 == pytest.approx(plain, abs=0.005)
    alike = clustered_share([(i // 20, float(i // 20 < 4)) for i in range(400)])
    assert alike.value == pytest.approx(0.2)
    assert alike.ci95 == pytest.approx(wilson(4, 20), abs=0.02)


def test_no_error_in_sight_counts_episodes_not_steps() -> None:
    found = clustered_share([(i % 10, 0.0) for i in range(1000)])
    assert found.ci95 == pytest.approx(wilson(0, 10))
    assert clustered_share([]).ci95 == (0.0, 1.0)


def test_the_bound_by_hand_and_when_it_says_nothing() -> None:
    errors = [(i, float(i < 1)) for i in range(100)]
    half = [(i, float(i < 50)) for i in range(100)]
    small = bound(clustered_share(errors), clustered_share(errors), horizon=10)
    assert small.gap_outcome == pytest.approx(10 * 0.02)
    assert small.gap_general == pytest.approx(10 * 0.01 + 100 * 0.01)
    assert not small.is_vacuous and small.gap_outcome < small.gap_outcome_high <= 1
    big = bound(clustered_share(half), clustered_share(half), horizon=10)
    assert big.gap_outcome == 1.0 and big.is_vacuous


def test_the_bound_holds_for_a_world_that_is_wrong_now_and_then() -> None:
    """A chain with per-step error e keeps within H * e of the true one."""
    error, horizon, rng = 0.02, 15, Random(0)
    broken = sum(
        any(rng.random() < error for _ in range(horizon)) for _ in range(4000)
    )  # an episode whose outcome may differ
    assert broken / 4000 <= horizon * error


def test_break_even_by_hand_and_never_where_reality_is_faster() -> None:
    dream = StepCost(steps=1000, seconds=10, concurrency=64)
    slow = StepCost(steps=10, seconds=20, concurrency=1)
    found = break_even(dream, slow, fixed_seconds=199, fixed_transitions=70)
    assert found.steps_in_time == pytest.approx(199 / (2 - 0.01))
    assert found.speed_ratio == pytest.approx(200)
    fast = StepCost(steps=10000, seconds=1, concurrency=1)
    never = break_even(dream, fast, fixed_seconds=199, fixed_transitions=70)
    assert never.steps_in_time is None
    assert never.real_seconds_needed == pytest.approx(0.01)
    assert never.saves_transitions_after == 70


def test_an_unknown_price_gives_no_break_even_in_money() -> None:  # API-03
    dream = StepCost(steps=10, seconds=1, concurrency=1, money_per_step=None)
    real = StepCost(steps=10, seconds=1, concurrency=1, money_per_step=0.5)
    assert break_even(dream, real, fixed_seconds=0, fixed_transitions=0).steps_in_money is None
    priced = StepCost(steps=10, seconds=1, concurrency=1, money_per_step=0.1)
    found = break_even(priced, real, fixed_seconds=0, fixed_transitions=0, fixed_money=4.0)
    assert found.steps_in_money == pytest.approx(10)
    assert math.isclose(found.fixed_seconds, 0)
