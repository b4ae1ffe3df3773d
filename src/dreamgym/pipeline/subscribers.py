"""Subscribers any training loop can use: records of what was played, and a growing buffer."""

from __future__ import annotations

from msgspec.structs import replace

from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.runs import RunFolder
from dreamgym.train import IterationResult, Loop

State = dict[str, object]


class Recorder:
    """Keeps some groups of every iteration to be read; token ids are left out."""

    def __init__(self, run: RunFolder, name: str, *, groups: int = 2) -> None:
        self._run = run
        self._name = name
        self._groups = groups

    async def __call__(self, loop: Loop, result: IterationResult) -> bool:
        """Append the first groups of the iteration to the record file."""
        with self._run.writer(self._name, "rollout", {"stage": loop.stage}) as writer:
            for group in result.groups[: self._groups]:
                for rollout in group.rollouts:
                    writer.write(replace(rollout, completions=()))
        return True

    def state_dict(self) -> State:
        """Nothing to keep."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing to restore."""


class BufferGrower:
    """Adds accepted dreamt transitions to the replay buffer.

    Accepted: from a scored episode, answered at the first try, without a flag of the verifier.
    """

    def __init__(self, buffer: ReplayBuffer, *, per_iteration: int = 200) -> None:
        self._buffer = buffer
        self._limit = per_iteration

    async def __call__(self, loop: Loop, result: IterationResult) -> bool:
        """Add what this iteration dreamt, up to the limit."""
        found = [
            transition
            for group in result.groups
            for rollout in group.rollouts
            if not rollout.is_fault
            for transition in rollout.transitions
            if not set(transition.flags) - {"no_effect"}
        ]
        self._buffer.add(found[: self._limit])
        result.metrics["replay/size"] = float(len(self._buffer))
        return True

    def state_dict(self) -> State:
        """Return the buffer's state."""
        state: State = self._buffer.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore the buffer."""
        self._buffer.load_state_dict(state)
