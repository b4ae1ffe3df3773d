"""The training loop: counted iterations, exact resuming, budgets, empty batches and faults."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from train_worlds import Doors, make_loop

from dreamgym.errors import ConfigError, TrainingError
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.train import MAX_EMPTY_UPDATES, IterationResult, Loop, LoopConfig, group_metrics
from dreamgym.types import Origin, StopReason


class Notes:
    """Keeps what every iteration did; says stop after `stop_after` iterations."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.tasks: list[list[str]] = []
        self.rewards: list[list[float | None]] = []
        self.results: list[IterationResult] = []
        self.count = 0
        self._stop_after = stop_after

    async def __call__(self, loop: Loop, result: IterationResult) -> bool:
        self.tasks.append([group.task.id for group in result.groups])
        self.rewards.append([r for group in result.groups for r in group.rewards])
        self.results.append(result)
        self.count += 1
        result.metrics["notes/count"] = float(self.count)
        return self.count != self._stop_after

    def state_dict(self) -> dict[str, object]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = int(state["count"])


def train(loop: Loop) -> Loop:
    try:
        asyncio.run(loop.train())
    finally:
        loop.run.close()
    return loop


def weights(loop: Loop) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in loop.learner.model.named_parameters()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_every_iteration_is_played_learned_from_logged_and_published(tmp_path: Path) -> None:
    notes = Notes()
    progress: list[int] = []
    loop = make_loop(
        tmp_path / "run",
        iterations=4,
        subscribers=[notes],
        on_progress=lambda step, metrics: progress.append(step),
    )
    before = weights(loop)
    train(loop)
    assert loop.step == 4
    assert progress == [0, 1, 2, 3]
    assert not same(before, weights(loop))
    rows = loop.run.metrics()
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert {row["stage"] for row in rows} == {"doors"}
    assert [row["notes/count"] for row in rows] == [1, 2, 3, 4]
    assert all(len(result.groups) == 3 for result in notes.results)
    versions = [
        {c.policy_version for g in result.groups for r in g.rollouts for c in r.completions}
        for result in notes.results
    ]
    assert versions == [{0}, {1}, {2}, {3}], "each iteration samples from the newest weights"
    origins = {t.origin for g in notes.results[0].groups for r in g.rollouts for t in r.transitions}
    assert origins == {Origin.REAL}


def test_the_loop_learns_which_door_pays(tmp_path: Path) -> None:
    notes = Notes()
    train(make_loop(tmp_path / "run", iterations=12, tasks_per_iteration=5, subscribers=[notes]))
    success = [result.metrics["rollout/success"] for result in notes.results]
    assert sum(success[:2]) / 2 < 0.75
    assert sum(success[-2:]) / 2 > 0.9


def test_res_01_stopping_and_going_on_equals_going_straight_on(tmp_path: Path) -> None:
    straight, first, second = Notes(), Notes(), Notes()
    whole = train(make_loop(tmp_path / "whole", iterations=4, subscribers=[straight]))
    train(make_loop(tmp_path / "parts", iterations=2, subscribers=[first]))
    resumed = make_loop(tmp_path / "parts", iterations=4, subscribers=[second])
    assert resumed.restore()
    assert resumed.step == 2
    train(resumed)
    assert first.tasks + second.tasks == straight.tasks
    assert len(set([*straight.tasks[0], *straight.tasks[1]][:5])) == 5, (
        "3 + 3 tasks of 5 run past the epoch's end"
    )
    assert first.rewards + second.rewards == straight.rewards
    assert same(weights(whole), weights(resumed))
    assert second.count == 4, "subscribers go on too"
    assert [row["step"] for row in resumed.run.metrics()] == [0, 1, 2, 3]
    versions = {
        c.policy_version
        for g in second.results[0].groups
        for r in g.rollouts
        for c in r.completions
    }
    assert versions == {2}


def test_res_01_iterations_after_the_last_checkpoint_are_played_again(tmp_path: Path) -> None:
    class Killed(Notes):
        async def __call__(self, loop: Loop, result: IterationResult) -> bool:
            await super().__call__(loop, result)
            if result.step == 3:
                raise KeyboardInterrupt
            return True

    straight, killed, second = Notes(), Killed(), Notes()
    whole = train(make_loop(tmp_path / "whole", iterations=5, subscribers=[straight]))
    with pytest.raises(KeyboardInterrupt):
        train(make_loop(tmp_path / "run", iterations=5, subscribers=[killed], checkpoint_every=2))
    resumed = make_loop(tmp_path / "run", iterations=5, subscribers=[second], checkpoint_every=2)
    assert resumed.restore()
    assert resumed.step == 2
    train(resumed)
    assert second.tasks == straight.tasks[2:]
    assert same(weights(whole), weights(resumed))


def test_without_a_checkpoint_there_is_nothing_to_restore(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "run")
    assert not loop.restore()
    assert loop.step == 0
    loop.run.close()


def test_a_subscriber_can_stop_the_loop(tmp_path: Path) -> None:
    notes = Notes(stop_after=2)
    loop = train(make_loop(tmp_path / "run", iterations=9, subscribers=[notes, Notes()]))
    assert loop.step == 2
    again = make_loop(tmp_path / "run", iterations=9, subscribers=[Notes(), Notes()])
    assert again.restore()
    assert again.step == 2
    again.run.close()


def test_alg_01_an_all_tied_batch_is_a_logged_step_that_changes_nothing(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "run", Doors(pays=lambda task, action: 0.0), iterations=2)
    before = weights(loop)
    train(loop)
    assert same(before, weights(loop))
    assert loop.empty_updates == 2
    for row in loop.run.metrics():
        assert row["groups/dead_share"] == 1.0
        assert row["groups/all_fail"] == 3.0
        assert row["rollout/success"] == 0.0


def test_alg_01_a_run_of_empty_batches_is_an_error_with_advice(tmp_path: Path) -> None:
    suite = Doors(pays=lambda task, action: 0.0)
    loop = make_loop(
        tmp_path / "run", suite, iterations=MAX_EMPTY_UPDATES + 5, tasks_per_iteration=1
    )
    with pytest.raises(TrainingError, match=r"20 iterations in a row .* easier tasks"):
        train(loop)
    assert loop.step == MAX_EMPTY_UPDATES - 1


def test_alg_01_the_run_of_empty_batches_is_remembered_and_ends_with_a_useful_one(
    tmp_path: Path,
) -> None:
    dead = Doors(pays=lambda task, action: 0.0)
    train(make_loop(tmp_path / "run", dead, iterations=2))
    resumed = make_loop(tmp_path / "run", Doors(), iterations=3)
    assert resumed.restore()
    assert resumed.empty_updates == 2
    train(resumed)
    assert resumed.empty_updates == 0


def test_an_exhausted_budget_ends_training_and_is_never_exceeded(tmp_path: Path) -> None:
    suite, budget = Doors(), TransitionBudget(20)
    loop = train(make_loop(tmp_path / "run", suite, iterations=50, budget=budget))
    assert suite.steps == budget.used == 20
    assert loop.step == 2
    assert loop.run.metrics()[1]["rollout/transitions"] == 8.0

    again = make_loop(tmp_path / "run", suite, iterations=50, budget=TransitionBudget(20))
    assert again.restore()
    train(again)
    assert suite.steps == 20, "what was used before the restart stays used"


def test_episodes_cut_by_the_budget_are_not_trained_on(tmp_path: Path) -> None:
    notes, budget = Notes(), TransitionBudget(6)
    train(make_loop(tmp_path / "run", iterations=1, budget=budget, subscribers=[notes]))
    stops = [r for g in notes.results[0].groups for r in g.rollouts]
    cut = [r for r in stops if r.stop is StopReason.BUDGET]
    assert len(cut) == 6
    assert all(r.reward is None for r in cut)


def test_faults_are_not_trained_on_and_not_counted_as_failures(tmp_path: Path) -> None:
    notes = Notes()
    suite = Doors(breaks=lambda task, opened: opened % 4 == 0)
    loop = train(make_loop(tmp_path / "run", suite, iterations=2, subscribers=[notes]))
    for result in notes.results:
        assert result.metrics["rollout/fault_share"] == 0.25
        assert result.metrics["groups/unscorable_rollouts"] == 3.0
        played = [r for g in result.groups for r in g.rollouts if not r.is_fault]
        wins = sum(r.success for r in played)
        assert result.metrics["rollout/success"] == pytest.approx(wins / 9)
    assert loop.step == 2


def test_a_batch_of_faults_only_teaches_nothing(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "run", Doors(breaks=lambda task, opened: True), iterations=1)
    before = weights(loop)
    train(loop)
    assert same(before, weights(loop))
    row = loop.run.metrics()[0]
    assert row["rollout/fault_share"] == 1.0
    assert row["rollout/success"] == 0.0
    assert loop.empty_updates == 1


def test_metrics_of_no_groups_are_zero_not_an_error() -> None:
    assert set(group_metrics([]).values()) == {0.0}


@pytest.mark.parametrize("name", ["iterations", "tasks_per_iteration", "group_size", "max_steps"])
def test_sizes_that_cannot_train_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1; got 0"):
        LoopConfig(**{name: 0})


def test_weights_set_from_outside_can_be_published(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "run")
    loop.step = 4
    loop.republish()
    assert loop.policy.engine.version == 5
    loop.run.close()


def test_a_learner_at_another_temperature_than_the_sampler_is_refused(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "run")
    loop.run.close()
    parts = {
        name: getattr(loop, name)
        for name in ("suite", "learner", "algorithm", "sampler", "config", "stage", "seed", "run")
    }
    with pytest.raises(ConfigError, match=r"samples at temperature 1\.3 .* scores at 1\.0"):
        Loop(
            **parts,
            policy=loop.policy.with_temperature(1.3),
            origin=Origin.REAL,
            publish=lambda version: None,
        )
