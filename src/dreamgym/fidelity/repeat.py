"""The same actions in every copy of one group: a pinned world gives them one reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import pstdev

from dreamgym.fidelity.result import Repeatability
from dreamgym.fidelity.subject import Variant
from dreamgym.probe import ActionList
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import run_groups
from dreamgym.types import Origin, Rollout, Task


async def repeat(
    variant: Variant, episodes: Sequence[Rollout], tasks: Mapping[str, Task], *, copies: int
) -> Repeatability:
    """Play each episode's actions in every copy of one group and compare the rewards."""
    deviations, identical, faults = [0.0], 0, 0
    for episode in episodes:
        task = variant.task(tasks[episode.task.id])
        actions = [transition.action for transition in episode.transitions]
        groups = await run_groups(
            variant.dream([task], verify=True),
            ActionList(actions),
            [task],
            group_size=copies,
            seed=0,
            limits=EpisodeLimits(max_steps=len(actions), max_invalid=len(actions) + 1),
            origin=Origin.DREAM,
        )
        members = groups[0].rollouts
        faults += sum(member.is_fault for member in members)
        rewards = [m.reward for m in members if not m.is_fault and m.reward is not None]
        if len(rewards) > 1:
            deviations.append(pstdev(rewards))
        read = {tuple(t.next_observation.text for t in m.transitions) for m in members}
        identical += len(read) == 1
    return Repeatability(
        groups=len(episodes),
        copies=copies,
        max_reward_sd=max(deviations),
        identical=identical,
        faults=faults,
    )
