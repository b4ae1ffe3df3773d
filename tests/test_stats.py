from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.errors import UserError
from dreamgym.stats import (
    Rate,
    difference,
    mean_over_seeds,
    over_tasks,
    pass_at_k,
    pass_hat_k,
    t_quantile,
    wilson,
)


def test_evl_01_pass_at_k_is_unbiased_and_undefined_with_too_few_trials() -> None:
    assert pass_at_k(8, 2, 4) == pytest.approx(0.785714, abs=1e-6)
    assert pass_at_k(4, 1, 2) == 0.5
    assert pass_at_k(3, 0, 5) is None


def test_evl_03_pass_at_k_and_pass_hat_k_differ_and_short_tasks_are_reported() -> None:
    trials = [(4, 0), (4, 1), (4, 4)]
    assert over_tasks(pass_at_k, trials, k=2).value == pytest.approx(0.5)
    assert over_tasks(pass_hat_k, trials, k=2).value == pytest.approx(1 / 3)
    short = over_tasks(pass_hat_k, [*trials, (1, 1)], k=2)
    assert short.value == pytest.approx(1 / 3)
    assert (short.tasks, short.too_few_trials) == (3, 1)
    assert over_tasks(pass_at_k, [(1, 1)], k=2).value is None


@pytest.mark.parametrize(
    ("successes", "expected"),
    [(17, (0.6396, 0.9476)), (0, (0.0, 0.1611)), (20, (0.8388, 1.0))],
)
def test_evl_04_wilson_interval(successes: int, expected: tuple[float, float]) -> None:
    assert wilson(successes, 20) == pytest.approx(expected, abs=1e-4)


def test_evl_04_seed_interval_uses_student_t_not_the_normal() -> None:
    mean = mean_over_seeds([0.50, 0.60, 0.55])
    assert mean.value == pytest.approx(0.55)
    assert mean.half_width == pytest.approx(0.1242, abs=1e-4)
    assert mean.ci95 == pytest.approx((0.4258, 0.6742), abs=1e-4)


def test_one_seed_has_no_interval() -> None:
    assert mean_over_seeds([0.4]).ci95 is None


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [
        (0.975, 1, 12.70620474),
        (0.975, 4, 2.77644511),
        (0.95, 9, 1.83311293),
        (0.995, 30, 2.74999565),
        (0.975, 1000, 1.96233908),
        (0.025, 2, -4.30265273),
    ],
)
def test_t_quantile_agrees_with_tables(probability: float, degrees: int, expected: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=1e-7)


def test_newcombe_difference_agrees_with_the_published_example() -> None:
    # 56/70 against 48/80, Newcombe 1998 table II, method 10
    found = difference(Rate.of(56, 70), Rate.of(48, 80))
    assert found.value == pytest.approx(0.2)
    assert found.ci95 == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_no_trials_say_nothing() -> None:
    empty = Rate.of(0, 0)
    assert (empty.value, empty.ci95) == (0.0, (0.0, 1.0))
    assert difference(empty, Rate.of(3, 3)).ci95 == (-1.0, 1.0)


@pytest.mark.parametrize("call", [lambda: wilson(3, 2), lambda: pass_at_k(2, 1, 0),
                                  lambda: mean_over_seeds([]), lambda: t_quantile(1.0, 3),
                                  lambda: mean_over_seeds([float("nan")])])  # fmt: skip
def test_impossible_counts_are_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(UserError):
        call()


@given(st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_contains_the_proportion(counts: tuple[int, int]) -> None:
    rate = Rate.of(*counts)
    assert 0.0 <= rate.ci95[0] <= rate.value + 1e-12
    assert rate.value <= rate.ci95[1] <= 1.0


@given(st.integers(1, 40), st.data())
def test_pass_hat_k_never_exceeds_pass_at_k(n: int, data: st.DataObject) -> None:
    successes, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    reliable, possible = pass_hat_k(n, successes, k), pass_at_k(n, successes, k)
    assert reliable is not None and possible is not None
    assert 0.0 <= reliable <= possible + 1e-12 <= 1.0 + 1e-12
