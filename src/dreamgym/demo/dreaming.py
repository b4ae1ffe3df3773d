"""The second half of the demo: RL in the dream, then for real."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from dreamgym.curriculum.base import TaskSampler
from dreamgym.curriculum.sampler import UniformSampler
from dreamgym.curriculum.worlds import WorldSampler
from dreamgym.demo.context import Agent, DemoContext, make_learner
from dreamgym.demo.logged import Logged, make_buffer
from dreamgym.demo.refresh import Refresher
from dreamgym.demo.subscribers import Prober
from dreamgym.dream.env import DreamSuite
from dreamgym.envs.base import Suite
from dreamgym.pipeline.curriculum import TaskWriter, make_curriculum
from dreamgym.pipeline.subscribers import BufferGrower, Recorder
from dreamgym.progress import Progress, progress
from dreamgym.rl.algorithm import Algorithm, make_algorithm
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.train import Loop, LoopConfig, Subscriber
from dreamgym.types import Origin


def dream_training(ctx: DemoContext, *, resume: bool) -> dict[str, Any]:
    """Train the warm start in the dream; no real transition but the probe's, which are counted."""
    config, levers = ctx.config, ctx.config.levers
    logged = Logged(ctx)
    buffer = make_buffer(ctx, logged)
    dreamer = ctx.load_dreamer()
    experience = dreamer.experience
    suite = DreamSuite(
        logged.seed_tasks,
        model=experience,
        reader=logged.reader,
        buffer=buffer if levers.replay else None,
        config=ctx.dream_config,
    )
    agent = ctx.load_agent("warm_start")
    subscribers: list[Subscriber] = [Recorder(ctx.run, "dream")]
    sampler: TaskSampler
    if levers.curriculum:
        sampler = curriculum = make_curriculum(
            logged.seed_tasks,
            logged.reader,
            experience.chat,
            config.curriculum,
            compact=ctx.is_compact,
            seed=ctx.seed("curriculum"),
            evaluation_tasks=ctx.evaluation_tasks,
        )
        subscribers.append(TaskWriter(curriculum, every=config.curriculum.grow_every))
    else:
        sampler = UniformSampler(logged.seed_tasks, seed=ctx.seed("sampler"))
    if levers.replay:
        subscribers.append(BufferGrower(buffer))
    if levers.worlds:
        sampler = WorldSampler(
            sampler,
            logged.reader,
            logged=[task.instruction for task in logged.tasks.values()],
            share=config.world_share,
            seed=ctx.seed("worlds"),
        )
    prober = None
    if levers.probe and config.probe.every:
        refresher = Refresher(ctx, logged, buffer, dreamer) if config.probe.refresh else None
        prober = Prober(ctx, refresher)
        subscribers.append(prober)
    with progress("dreaming", config.dream_loop.iterations) as bar:
        loop = make_loop(
            ctx,
            agent,
            suite,
            sampler,
            config.dream_loop,
            stage="dream",
            origin=Origin.DREAM,
            subscribers=subscribers,
            bar=bar,
        )
        if resume:
            loop.restore()
        if prober is not None:
            asyncio.run(prober.begin(loop))
        asyncio.run(loop.train())
    ctx.save_model("dream", loop.learner.model, agent.tokenizer)
    return {
        "iterations": loop.step,
        "probe_transitions": prober.transitions if prober else 0,
        "rollbacks": prober.guard.rollbacks if prober else 0,
        "counters": {key: int(value) for key, value in experience.counters.items()},
        "verifier": suite.verifier.rates() if suite.verifier else {},
    }


def real_training(ctx: DemoContext, *, start: str, name: str, resume: bool) -> dict[str, Any]:
    """Train a policy in the real suite with the S2R budget: S2R itself, or the baseline."""
    config = ctx.config.s2r
    agent = ctx.load_agent(start)
    budget = TransitionBudget(config.budget)
    sampler = UniformSampler(list(ctx.other_tasks), seed=ctx.seed(name))
    with progress(f"real training: {name}", config.budget) as bar:
        loop = make_loop(
            ctx,
            agent,
            ctx.suite,
            sampler,
            config.loop,
            stage=name,
            origin=Origin.REAL,
            subscribers=[Recorder(ctx.run, name)],
            bar=bar,
            budget=budget,
        )
        if resume:
            loop.restore()
        asyncio.run(loop.train())
    ctx.save_model(name, loop.learner.model, agent.tokenizer)
    return {"iterations": loop.step, "transitions": budget.used}


def _algorithm(ctx: DemoContext, loop: LoopConfig) -> Algorithm:
    name = ctx.config.algorithm
    if name in ("grpo", "gigpo"):
        return make_algorithm(name, group_size=loop.group_size, **ctx.config.grpo)
    return make_algorithm(name)


def make_loop(
    ctx: DemoContext,
    agent: Agent,
    suite: Suite,
    sampler: TaskSampler,
    config: LoopConfig,
    *,
    stage: str,
    origin: Origin,
    subscribers: Sequence[Subscriber],
    bar: Progress,
    budget: TransitionBudget | None = None,
) -> Loop:
    """Return a training loop for an agent of the demo on any suite."""
    algorithm = _algorithm(ctx, config)
    learner = make_learner(
        agent.model,
        agent.tokenizer,
        ctx.config.agent,
        rate=ctx.config.rl.learning_rate,
        value_head=algorithm.needs_values,
        optimizer=ctx.config.rl.optimizer,
        temperature=ctx.config.rl.temperature,
    )

    def report(step: int, metrics: dict[str, float]) -> None:
        amount = int(metrics["rollout/transitions"]) if budget else 1
        bar.advance(amount, f"success {metrics['rollout/success']:.2f}")

    return Loop(
        suite=suite,
        policy=agent.policy,
        learner=learner,
        algorithm=algorithm,
        sampler=sampler,
        config=replace(config, max_steps=ctx.config.max_steps),
        stage=stage,
        seed=ctx.config.seed,
        run=ctx.run,
        origin=origin,
        publish=agent.publish,
        budget=budget,
        subscribers=subscribers,
        on_progress=report,
    )
