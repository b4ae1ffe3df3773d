"""Checks of episodes: repeatable, used once, closed twice, side by side."""

from __future__ import annotations

import random

from dreamgym.envs.base import Env
from dreamgym.envs.check.probe import Failed, Probe, Walk, difference, refused, shorten
from dreamgym.types import Observation, Step


async def first_observation(probe: Probe) -> str:
    """The first observation is text that holds the instruction."""
    for task in probe.tasks:
        env, first = await probe.start(task)
        await probe.close(env)
        if not isinstance(first, Observation):
            raise Failed(f"start returned a {type(first).__name__}")
        if not first.text.strip():
            raise Failed(f"the first observation of task {task.id!r} is empty")
        if _flat(task.instruction) not in _flat(first.text):
            raise Failed(
                f"instruction {shorten(task.instruction)} of task {task.id!r} is not in it"
            )
    return f"text with the instruction in {len(probe.tasks)} task(s)"


async def same_again(probe: Probe) -> str:
    """Same task, seed and actions: same answers, whatever was played or drawn before."""
    before = random.getstate()
    try:
        random.seed(1)
        walks = [await probe.walk(task) for task in probe.tasks]
        random.seed(2)
        for walk in reversed(walks):
            if where := difference(walk, await probe.replay(walk)):
                raise Failed(f"task {walk.task.id!r}, played twice: {where}")
    finally:
        random.setstate(before)
    return f"{len(walks)} walk(s) of {sum(len(w.steps) for w in walks)} steps came out the same"


async def same_start(probe: Probe) -> str:
    """All attempts of a group meet the same first observation, whatever their seed."""
    for task in probe.tasks:
        firsts = []
        for seed in (0, 1, 2**40):
            env, first = await probe.start(task, seed=seed)
            await probe.close(env)
            firsts.append(first.text)
        if len(set(firsts)) > 1:
            raise Failed(f"task {task.id!r} starts differently with another seed")
    return "the first text does not depend on the seed"


async def single_use(probe: Probe) -> str:
    """An episode is used once: a fault before start, on a second start and after close."""
    task = probe.tasks[0]
    fresh = probe.suite.open(task, seed=0)
    await refused(fresh.step("look"), "step before start")
    await probe.close(fresh)
    env, _ = await probe.start(task)
    await refused(env.start(), "a second start")
    await probe.close(env)
    await refused(env.step("look"), "step after close")
    await refused(env.start(), "start after close")
    return "refused before start, twice and after close"


async def close_twice(probe: Probe) -> str:
    """Closing twice is fine, also before start and after a step."""
    task = probe.tasks[0]
    fresh = probe.suite.open(task, seed=0)
    env, observation = await probe.start(task)
    await probe.step(env, probe.choices(task, observation)[0])
    for episode in (fresh, env):
        for _ in range(2):
            try:
                await probe.close(episode)
            except Failed:
                raise
            except Exception as error:
                raise Failed(f"close raised {type(error).__name__}: {error}") from error
    return "closed twice, before start and in mid-episode"


async def side_by_side(probe: Probe) -> str:
    """Interleaved episodes give the same records as one after another."""
    walks = [await probe.walk(task) for task in probe.tasks]
    walks.append(walks[0])  # two attempts at one task, as in a group
    together = await _interleaved(probe, walks)
    for alone, beside in zip(walks, together, strict=True):
        if where := difference(alone, beside):
            raise Failed(f"task {alone.task.id!r}, beside others: {where}")
    return f"{len(walks)} interleaved episodes equal those played alone"


async def _interleaved(probe: Probe, walks: list[Walk]) -> list[Walk]:
    """Play several walks in turns; one that is over is closed while the others go on."""
    envs: list[Env] = []
    firsts: list[Observation] = []
    try:
        for walk in walks:
            env, first = await probe.start(walk.task, seed=walk.seed)
            envs.append(env)
            firsts.append(first)
        steps: list[list[Step]] = [[] for _ in walks]
        for turn in range(max(len(walk.actions) for walk in walks)):
            for place, walk in enumerate(walks):
                if turn < len(walk.actions):
                    steps[place].append(await probe.step(envs[place], walk.actions[turn]))
                elif turn == len(walk.actions):
                    await probe.close(envs[place])
    finally:
        for env in envs:
            await probe.close(env)
    return [
        Walk(task=w.task, seed=w.seed, actions=w.actions, first=f, steps=tuple(s))
        for w, f, s in zip(walks, firsts, steps, strict=True)
    ]


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())
