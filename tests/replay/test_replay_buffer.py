from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_fakes import transition

from dreamgym.errors import ConfigError, DataError, UserError
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.types import Observation, Origin, Rollout, StopReason, Task, Transition


def memory_buffer(capacity: int = 100, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(None, HashedNgramEncoder(dim=32), capacity=capacity, **options)


def rollout(split: str, *, stop: StopReason = StopReason.TERMINATED) -> Rollout:
    task = Task(id=f"task-{split}", suite="household", instruction="put a mug in shelf.",
                split=split)  # fmt: skip
    return Rollout(
        id="r", task=task, attempt=0, transitions=(transition(task=task.id),), stop=stop,
        reward=0.0, success=False,
    )  # fmt: skip


def test_buf_01_capacity_counts_transitions_and_16_asked_of_one_is_one() -> None:
    buffer = memory_buffer(capacity=1)
    assert buffer.add(transition(n) for n in range(16)) == 16
    assert len(buffer) == 1
    found = buffer.query("You stand at place 3.", "open drawer", k=16, suite="household")
    assert len(found) == 1


def test_buf_02_what_the_caller_changes_later_does_not_change_the_buffer() -> None:
    actions = ["look"]
    flags = ["no_effect"]
    seen = Observation(text="a room", actions=actions)  # type: ignore[arg-type]
    steps = [
        msgspec.structs.replace(transition(0), observation=seen, flags=flags),
        transition(1),
    ]
    buffer = memory_buffer()
    buffer.add(steps)
    steps.clear()
    actions.append("jump")
    flags.append("hacked")
    first, second = buffer.transitions
    assert first.observation.actions == ("look",)
    assert first.flags == ("no_effect",)
    assert second == transition(1)


def test_buf_03_exact_copies_are_dropped_and_same_ids_with_other_content_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    buffer = memory_buffer()
    assert buffer.add([transition(0), transition(0), transition(1)]) == 2
    assert buffer.add([transition(1)]) == 0
    assert buffer.metrics()["refused/duplicate"] == 2.0
    assert not caplog.records
    assert buffer.add([transition(0, answer="another outcome")]) == 1
    assert buffer.metrics()["conflicting_ids"] == 1.0
    assert "different content" in caplog.text


def test_buf_03_a_number_and_its_text_are_the_same_id() -> None:
    buffer = memory_buffer()
    as_number = msgspec.structs.replace(transition(0), task_id=4117)
    assert buffer.add([as_number, transition(0, task="4117")]) == 1
    assert buffer.query("s", "open drawer", k=3, suite="household", exclude_task="4117") == []


def test_a_nan_reward_is_refused_and_nothing_of_its_batch_gets_in() -> None:
    buffer = memory_buffer()
    with pytest.raises(DataError, match="not finite"):
        buffer.add([transition(0), transition(1, reward=float("nan"))])
    assert len(buffer) == 0


def test_lone_surrogates_are_stored_and_found() -> None:
    buffer = memory_buffer()
    broken = transition(0, state="half an emoji \ud83d here")
    buffer.add([broken])
    (found,) = buffer.query("half an emoji \ud83d here", "open drawer", k=1, suite="household")
    assert found.transition == broken


def test_dreams_leave_first_come_first_and_real_seeds_stay() -> None:
    buffer = memory_buffer(capacity=4)
    buffer.add([transition(0), transition(1)])
    buffer.add(transition(n, origin=Origin.DREAM) for n in range(10, 15))
    assert [t.step for t in buffer.transitions] == [0, 1, 13, 14]
    buffer.add([transition(2), transition(3)])
    assert [t.step for t in buffer.transitions] == [0, 1, 2, 3]
    assert buffer.add([transition(99, origin=Origin.DREAM)]) == 0
    metrics = buffer.metrics()
    assert (metrics["evicted/dream"], metrics["refused/full"]) == (5.0, 1.0)


def test_seeding_the_same_logs_again_changes_nothing_even_beyond_capacity() -> None:
    logs = [transition(n) for n in range(7)]
    buffer = memory_buffer(capacity=3)
    assert buffer.add(logs) == 7
    held = buffer.transitions
    assert [t.step for t in held] == [4, 5, 6]
    assert buffer.add(logs) == 0
    assert buffer.transitions == held


@pytest.mark.parametrize(
    "task", ["eval-7", "small-s0-valid_unseen-00003-pick", "household/valid_seen/3"]
)
def test_a_transition_of_an_evaluation_task_is_refused_or_skipped(task: str) -> None:
    rules: dict[str, Any] = {
        "forbidden_tasks": frozenset({"eval-7"}),
        "forbidden_splits": ("valid_seen", "valid_unseen"),
    }
    strict = memory_buffer(**rules)
    with pytest.raises(UserError, match=f"{task!r} is an evaluation task"):
        strict.add([transition(0), transition(1, task=task)])
    assert len(strict) == 0
    lenient = memory_buffer(**rules, on_forbidden="skip")
    assert lenient.add([transition(0), transition(1, task=task)]) == 1
    assert lenient.metrics()["refused/evaluation"] == 1.0


def test_rollouts_are_judged_by_their_split_and_faults_are_left_out() -> None:
    buffer = memory_buffer(forbidden_splits=("valid_unseen",), on_forbidden="skip")
    hidden = msgspec.structs.replace(
        rollout("valid_unseen"), transitions=(transition(0, task="official-game"),)
    )
    fault = rollout("train", stop=StopReason.FAULT)
    assert buffer.add_rollouts([hidden, fault, rollout("train")]) == 1
    assert buffer.metrics()["refused/evaluation"] == 1.0


@pytest.mark.parametrize("bad", [{"capacity": 0}, {"action_weight": 1.5}, {"near_threshold": -0.1}])
def test_impossible_options_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        memory_buffer(**bad)


def test_state_without_a_folder_goes_through_json_and_restores_everything() -> None:
    buffer = memory_buffer(capacity=3)
    buffer.add(transition(n) for n in range(4))
    buffer.query("s", "open drawer", k=2, suite="household", exclude_task="t1")
    state = json.loads(json.dumps(buffer.state_dict()))
    buffer.add([transition(50)])
    again = memory_buffer(capacity=3)
    again.load_state_dict(state)
    assert [t.step for t in again.transitions] == [1, 2, 3]
    assert again.metrics() == {**buffer.metrics(), "evicted/real": 1.0}
    assert again.add([transition(0)]) == 0  # it was retired before the checkpoint


def test_removed_rows_are_forgotten_by_the_search_also_after_tidying_up() -> None:
    buffer = memory_buffer(capacity=5)
    for start in range(0, 3000, 50):
        buffer.add(transition(n, origin=Origin.DREAM) for n in range(start, start + 50))
    found = buffer.query("You stand at place 2000.", "open drawer", k=9, suite="household")
    assert sorted(n.transition.step for n in found) == [2995, 2996, 2997, 2998, 2999]


additions = st.lists(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=6), max_size=8)


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 6), additions)
def test_capacity_holds_and_real_is_never_evicted_before_dream(
    capacity: int, batches: list[list[tuple[int, bool]]]
) -> None:
    buffer = memory_buffer(capacity=capacity)
    for batch in batches:
        before = buffer.transitions
        buffer.add(transition(n, origin=Origin.REAL if real else Origin.DREAM) for n, real in batch)
        held = buffer.transitions
        assert len(held) <= capacity
        lost_real = [t for t in before if t.origin is Origin.REAL and t not in held]
        if lost_real:
            assert all(t.origin is Origin.REAL for t in held)
        assert len(set(map(_content, held))) == len(held)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["train", "valid_unseen"]))))
def test_evaluation_tasks_never_enter(logged: list[tuple[int, str]]) -> None:
    buffer = memory_buffer(
        forbidden_tasks={"small-train-3"}, forbidden_splits={"valid_unseen"}, on_forbidden="skip"
    )
    buffer.add(transition(n, task=f"small-{split}-{n}") for n, split in logged)
    held = {t.task_id for t in buffer.transitions}
    assert held == {f"small-{s}-{n}" for n, s in logged if s == "train" and n != 3}


def _content(transition: Transition) -> tuple[str, int]:
    return (transition.origin, transition.step)
