from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from rollout_fakes import CountingEnv, CountingSuite, Speaker, expert, gambler

from dreamgym.collect import CollectReport, collect, read_rollouts
from dreamgym.errors import ConfigError
from dreamgym.records import RecordWriter
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.types import Step, Task

LIMITS = EpisodeLimits(max_steps=12)


def run(
    path: Path,
    suite: CountingSuite,
    policies: Speaker | Sequence[Speaker],
    *,
    budget: TransitionBudget | None = None,
    max_concurrent: int = 8,
    episodes_per_task: int = 2,
) -> CollectReport:
    with RecordWriter(path, "rollout") as writer:
        return asyncio.run(
            collect(
                suite,
                policies,
                suite.tasks("train"),
                episodes_per_task=episodes_per_task,
                seed=0,
                writer=writer,
                limits=LIMITS,
                budget=budget,
                max_concurrent=max_concurrent,
            )
        )


def test_collecting_writes_every_episode_of_every_policy_and_counts_it(tmp_path: Path) -> None:
    suite = CountingSuite()
    report = run(tmp_path / "a.jsonl", suite, [Speaker(expert, "expert"), Speaker(gambler)])
    rollouts = read_rollouts(tmp_path / "a.jsonl")
    assert report.num_episodes == len(rollouts) == 16
    assert report.num_transitions == len(suite.sent) == sum(len(r.transitions) for r in rollouts)
    assert report.num_successes == sum(r.success for r in rollouts) >= 8
    assert [r.policy for r in rollouts] == ["expert"] * 8 + ["speaker"] * 8


@pytest.mark.parametrize("max_concurrent", [1, 5])
def test_the_file_is_byte_identical_whatever_the_concurrency(
    tmp_path: Path, max_concurrent: int
) -> None:
    delayed = CountingSuite(delay=lambda task: 0.002 if task.id == "count-0" else 0.0)
    run(tmp_path / "a.jsonl", CountingSuite(), Speaker(gambler))
    run(tmp_path / "b.jsonl", delayed, Speaker(gambler), max_concurrent=max_concurrent)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_killed_collection_resumes_to_the_same_file(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    run(whole, CountingSuite(), Speaker(gambler))
    lines = whole.read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(lines[:4]) + lines[4][:50])  # header, three episodes, a torn one
    suite = CountingSuite()
    report = run(cut, suite, Speaker(gambler))
    assert cut.read_bytes() == whole.read_bytes()
    assert report.num_skipped == 3
    assert len(suite.opened) == 5


class Failing(CountingSuite):
    def open(self, task: Task, *, seed: int) -> CountingEnv:
        env = super().open(task, seed=seed)
        if task.id == "count-1":
            env.__class__ = BrokenEnv
        return env


class BrokenEnv(CountingEnv):
    async def step(self, action: str) -> Step:
        raise OSError("disk")


def test_faults_are_reported_apart_and_played_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first = run(path, Failing(), Speaker(expert), episodes_per_task=1)
    assert (first.num_episodes, first.num_faults) == (3, 1)
    second = run(path, CountingSuite(), Speaker(expert), episodes_per_task=1)
    assert (second.num_episodes, second.num_faults, second.num_skipped) == (4, 0, 3)
    assert len(read_rollouts(path)) == 4


def test_the_budget_holds_over_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    suite = CountingSuite()
    first = run(path, suite, Speaker(expert), budget=TransitionBudget(10), max_concurrent=1)
    assert first.num_transitions == len(suite.sent) == 10
    budget = TransitionBudget(14)
    second = run(path, suite, Speaker(expert), budget=budget, max_concurrent=1)
    assert budget.used == len(suite.sent) == 14
    assert second.num_episodes > first.num_episodes
    unlimited = run(path, suite, Speaker(expert))
    assert (unlimited.num_episodes, unlimited.num_cut) == (8, 0)
    assert unlimited.num_transitions == len(suite.sent)


def test_two_policies_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy names must differ.*\['speaker'\]"):
        run(tmp_path / "a.jsonl", CountingSuite(), [Speaker(expert), Speaker(gambler)])
