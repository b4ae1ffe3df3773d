from __future__ import annotations

import math

import pytest
from curriculum_fakes import group, seed_task
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.curriculum.value import TaskStats, informative_share, success_rate, task_value
from dreamgym.errors import UserError


def test_cur_01_the_value_is_the_variance_not_p_times_one_minus_p() -> None:
    expected = [0, 0.109375, 0.1875, 0.234375, 0.25, 0.234375, 0.1875, 0.109375, 0]
    for wins, value in enumerate(expected):
        assert task_value([1.0] * wins + [0.0] * (8 - wins)) == pytest.approx(value, abs=1e-12)
    graded = [0.45, 0.46, 0.47, 0.48, 0.52, 0.53, 0.54, 0.55]
    assert task_value(graded) == pytest.approx(0.00135, abs=1e-9)
    assert task_value([0.5] * 8) == 0.0


@pytest.mark.parametrize(("size", "share"), [(2, 0.298), (4, 0.551), (8, 0.799), (16, 0.960)])
def test_cur_02_share_of_informative_groups_by_group_size(size: int, share: float) -> None:
    assert informative_share(0.1819, size) == pytest.approx(share, abs=5e-4)


def test_informative_share_refuses_what_is_no_probability() -> None:
    with pytest.raises(UserError, match=r"p in \[0, 1\]"):
        informative_share(1.2, 4)


def test_cur_11_unscored_rewards_do_not_lower_the_success_rate() -> None:
    rate = success_rate([1.0, math.nan, 1.0, math.nan])
    assert (rate.value, rate.n) == (1.0, 2)
    assert task_value([1.0, None, 0.0, math.nan]) == 0.25
    assert task_value([1.0, None]) == 0.0


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20))
def test_value_is_not_negative_and_zero_for_equal_rewards(rewards: list[float]) -> None:
    assert 0.0 <= task_value(rewards) <= 1.0 + 1e-12
    assert task_value([rewards[0]] * len(rewards)) == pytest.approx(0.0, abs=1e-30)


def test_a_group_of_faults_is_no_evidence() -> None:
    stats = TaskStats().observed(group(seed_task(), [], faults=4), min_value=0.01)
    assert stats == TaskStats()
    one = TaskStats().observed(group(seed_task(), [0.0], faults=3), min_value=0.01)
    assert (one.groups, one.attempts, one.zero_streak) == (0, 1, 0)


def test_newer_groups_count_more_and_dead_groups_in_a_row_are_counted() -> None:
    task = seed_task()
    stats = TaskStats().observed(group(task, [1.0, 0.0]), min_value=0.01)
    assert stats.value == 0.25
    for streak in (1, 2):
        stats = stats.observed(group(task, [0.0, 0.0]), min_value=0.01)
        assert (stats.value, stats.zero_streak) == (0.25 / 2**streak, streak)
    assert stats.observed(group(task, [1.0, 0.0]), min_value=0.01).zero_streak == 0
