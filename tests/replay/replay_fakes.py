"""Made-up transitions for the replay tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamgym.errors import ModelError
from dreamgym.replay.encode import HashedNgramEncoder, Vectors
from dreamgym.types import Observation, Origin, Transition


def transition(
    number: int = 0,
    *,
    state: str | None = None,
    action: str = "open drawer",
    answer: str | None = None,
    task: str = "t1",
    episode: str = "e1",
    suite: str = "household",
    origin: Origin = Origin.REAL,
    instruction: str = "put a mug in shelf.",
    reward: float | None = 0.0,
) -> Transition:
    """Return a transition whose texts follow from `number` where not given."""
    return Transition(
        task_id=task,
        suite=suite,
        episode_id=episode,
        step=number,
        instruction=instruction,
        observation=Observation(text=f"You stand at place {number}." if state is None else state),
        action=action,
        next_observation=Observation(text=f"You see thing {number}." if answer is None else answer),
        reward=reward,
        terminated=False,
        truncated=False,
        success=False,
        origin=origin,
    )


class FlakyEncoder(HashedNgramEncoder):
    """An encoder that is down until `is_up` is set."""

    def __init__(self, *, is_up: bool = False) -> None:
        super().__init__(dim=64)
        self.is_up = is_up

    def encode(self, texts: Sequence[str]) -> Vectors:
        if not self.is_up:
            raise ModelError("the encoder cannot be reached")
        return super().encode(texts)


class TableEncoder:
    """Vectors given by hand; unknown texts get zeros."""

    name = "table"

    def __init__(self, table: dict[str, list[float]], dim: int) -> None:
        self.table = table
        self.dim = dim

    def encode(self, texts: Sequence[str]) -> Vectors:
        rows = [self.table.get(text, [0.0] * self.dim) for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), self.dim)
