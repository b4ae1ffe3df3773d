"""Other instances of a dreamt task: the same room and request, with things in other places.

A dream is text, so a logged world can be dealt out again and again at no real transition.  Without
it an agent that dreams a few hundred fixed worlds learns where their things are instead of how to
look for them: its dream gets better and reality does not follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from dreamgym.curriculum.base import State, TaskSampler
from dreamgym.envs.base import StateReader
from dreamgym.seeds import derive_random
from dreamgym.types import RolloutGroup, Task

_TRIES = 8


class WorldSampler:
    """Hands out rearranged instances of what another sampler chooses, and reports back to it."""

    def __init__(
        self,
        inner: TaskSampler,
        reader: StateReader,
        *,
        logged: Sequence[str],
        share: float,
        seed: int,
    ) -> None:
        """`share` of the tasks are rearranged; `logged` are sentences of logged tasks."""
        self.inner = inner
        self._reader = reader
        self._logged = tuple(logged)
        self._share = share
        self._seed = seed
        self._round = 0
        self._origin: dict[str, Task] = {}
        self._rearranged = 0.0

    def next_batch(self, n: int) -> list[Task]:
        """Return n tasks of the inner sampler, some of them as other instances."""
        self._round += 1
        chosen = self.inner.next_batch(n)
        batch = [self._vary(task, index) for index, task in enumerate(chosen)]
        self._origin = {varied.id: task for varied, task in zip(batch, chosen, strict=True)}
        self._rearranged = sum(a is not b for a, b in zip(batch, chosen, strict=True)) / n
        return batch

    def observe(self, group: RolloutGroup) -> None:
        """Tell the inner sampler how its task went, whatever the instance."""
        self.inner.observe(replace(group, task=self._origin.get(group.task.id, group.task)))

    def metrics(self) -> dict[str, float]:
        """Return the inner sampler's metrics and the share of rearranged tasks."""
        return {**self.inner.metrics(), "rearranged_share": self._rearranged}

    def state_dict(self) -> State:
        """Return the inner state and the round, from which the next instances follow."""
        return {"inner": self.inner.state_dict(), "round": self._round}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.inner.load_state_dict(state["inner"])
        self._round = int(state["round"])

    def _vary(self, task: Task, index: int) -> Task:
        rng = derive_random(self._seed, "worlds", self._round, index)
        if task.scenario is None or rng.random() >= self._share:
            return task
        for _ in range(_TRIES):
            facts = self._reader.rearranged(task.scenario.facts, rng)
            if self._reader.infeasible(task.instruction, facts, self._logged) is None:
                scenario = replace(task.scenario, facts=facts)
                return replace(
                    task,
                    id=f"{task.id}~{self._round}.{index}",
                    scenario=scenario,
                    parent_id=task.id,
                    generated=True,
                )
        return task
