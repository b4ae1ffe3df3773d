"""What listens to the dream loop: which transitions enter the buffer, what is recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from dreamgym.collect import read_rollouts
from dreamgym.pipeline.subscribers import BufferGrower, Recorder
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.runs import RunFolder
from dreamgym.train import IterationResult, Loop
from dreamgym.types import (
    Completion,
    Observation,
    Origin,
    Rollout,
    RolloutGroup,
    StopReason,
    Task,
    Transition,
)

TASK = Task(id="t", suite="household", instruction="put a pen in shelf.")


def transition(step: int, *flags: str, episode: str = "e") -> Transition:
    return Transition(
        task_id="t",
        suite="household",
        episode_id=episode,
        step=step,
        instruction=TASK.instruction,
        observation=Observation(text=f"before {step} {episode}"),
        action=f"go to desk {step}",
        next_observation=Observation(text=f"after {step} {episode}"),
        reward=0.0,
        terminated=False,
        truncated=False,
        success=False,
        origin=Origin.DREAM,
        flags=flags,
    )


def rollout(
    *transitions: Transition, stop: StopReason = StopReason.TERMINATED, name: str = "r"
) -> Rollout:
    return Rollout(
        id=name,
        task=TASK,
        attempt=0,
        transitions=transitions,
        completions=(Completion(text="go", token_ids=(1, 2), logprobs=(0.0, 0.0)),),
        stop=stop,
        reward=None if stop is StopReason.FAULT else 0.0,
        success=False,
    )


def result(*groups: tuple[Rollout, ...]) -> IterationResult:
    return IterationResult(
        step=0,
        groups=tuple(RolloutGroup(task=TASK, rollouts=members) for members in groups),
        metrics={},
    )


def loop() -> Loop:
    return cast(Loop, SimpleNamespace(stage="dream"))


def buffer() -> ReplayBuffer:
    return ReplayBuffer(None, HashedNgramEncoder(dim=64), capacity=100)


def test_only_clean_transitions_of_scored_episodes_enter_the_buffer() -> None:
    held = buffer()
    played = result(
        (
            rollout(transition(0), transition(1, "no_effect"), transition(2, "asked_again")),
            rollout(transition(3, "unsupported_success"), transition(4, "early_stop", "no_effect")),
        ),
        (rollout(transition(5), stop=StopReason.FAULT), rollout(transition(6))),
    )
    assert asyncio.run(BufferGrower(held)(loop(), played))
    assert [t.step for t in held.transitions] == [0, 1, 6]
    assert played.metrics == {"replay/size": 3.0}


def test_the_buffer_grows_by_at_most_its_limit_per_iteration() -> None:
    held = buffer()
    grower = BufferGrower(held, per_iteration=4)
    for episode in ("a", "b"):
        steps = [transition(i, episode=episode) for i in range(9)]
        asyncio.run(grower(loop(), result((rollout(*steps),))))
    assert len(held) == 8


def test_the_buffers_state_is_restored_with_the_loop() -> None:
    held = buffer()
    grower = BufferGrower(held)
    asyncio.run(grower(loop(), result((rollout(transition(0), transition(1)),))))
    state: dict[str, Any] = grower.state_dict()
    asyncio.run(grower(loop(), result((rollout(transition(2)),))))
    grower.load_state_dict(state)
    assert [t.step for t in held.transitions] == [0, 1]


def test_some_groups_are_recorded_without_their_token_ids(tmp_path: Path) -> None:
    groups = [(rollout(transition(i), name=f"r{i}"),) for i in range(3)]
    with RunFolder(tmp_path / "run", {"a": 1}) as run:
        recorder = Recorder(run, "dream", groups=2)
        assert asyncio.run(recorder(loop(), result(*groups)))
        found = read_rollouts(run.record_path("dream"))
    assert [r.id for r in found] == ["r0", "r1"]
    assert all(r.completions == () for r in found)
    assert [t.step for r in found for t in r.transitions] == [0, 1]
