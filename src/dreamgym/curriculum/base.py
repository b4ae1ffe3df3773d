"""What every task sampler is and shares: the protocol, the seed tasks, random state as JSON."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from dreamgym.errors import ConfigError, DataError, UserError
from dreamgym.replay.guard import EvaluationGuard
from dreamgym.seeds import derive_seed
from dreamgym.types import RolloutGroup, Task

State = dict[str, Any]  # JSON


class TaskSampler(Protocol):
    """Chooses tasks and learns from the groups played."""

    def next_batch(self, n: int) -> list[Task]:
        """Return exactly n tasks, repeats included where there are fewer."""
        ...

    def observe(self, group: RolloutGroup) -> None:
        """Learn from a played group."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return what to log; names are paths without a prefix."""
        ...

    def state_dict(self) -> State:
        """Return JSON-able state: the next batch after loading it is the one due next."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        ...


class SeedTasks:
    """The tasks a sampler starts from: at least one, distinct, none for evaluation."""

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        forbidden_tasks: Iterable[str],
        forbidden_splits: Iterable[str],
    ) -> None:
        self.tasks = tuple(tasks)
        if not self.tasks:
            raise UserError("a task sampler needs at least one seed task; got none")
        guard = EvaluationGuard(forbidden_tasks, forbidden_splits)
        for task in self.tasks:
            guard.allows(task.id, split=task.split, where="the seed tasks")
        self.by_id = {task.id: task for task in self.tasks}
        if len(self.by_id) < len(self.tasks):
            raise UserError("seed tasks must have distinct ids; some id occurs twice")

    def fingerprint(self) -> str:
        """Return a short name for this set of tasks in this order."""
        return f"{len(self.tasks)}-{derive_seed(*self.by_id):016x}"

    def check(self, state: State) -> None:
        """Raise `DataError` for the state of a sampler with other seed tasks."""
        if state.get("seeds") != self.fingerprint():
            raise DataError(
                f"this sampler state was saved with other seed tasks ({state.get('seeds')}) than "
                f"the present ones ({self.fingerprint()}); resume with the same tasks"
            )


def generated_tokens(group: RolloutGroup) -> int:
    """Return how many tokens the policy sampled in a group."""
    return sum(len(c.token_ids) for r in group.rollouts for c in r.completions)


def check_size(n: int) -> None:
    """Refuse an empty batch."""
    if n < 1:
        raise ConfigError(f"a batch needs at least 1 task; got {n}")


def random_state(generator: random.Random) -> list[Any]:
    """Return a generator's state as JSON-able lists."""
    version, numbers, gauss = generator.getstate()
    return [version, list(numbers), gauss]


def set_random_state(generator: random.Random, state: Sequence[Any]) -> None:
    """Restore what `random_state` returned; raises `DataError` for anything else."""
    try:
        version, numbers, gauss = state
        generator.setstate((int(version), tuple(int(n) for n in numbers), gauss))
    except (TypeError, ValueError) as error:
        raise DataError(f"the sampler state holds no random generator: {error}") from error
