"""The run without grounding: what a plain reimplementation does to the agent.

The experience model is fitted on expert and random logs only, sees neither ledger nor negatives,
nobody verifies success and nobody looks at reality.  RL then finds what it answers too kindly.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from dreamgym.curriculum.sampler import UniformSampler
from dreamgym.demo.config import NAIVE, NaiveConfig
from dreamgym.demo.context import DemoContext
from dreamgym.demo.dreaming import make_loop
from dreamgym.demo.logged import Logged, make_buffer
from dreamgym.demo.stages import fit_on
from dreamgym.dream.env import DreamSuite
from dreamgym.evaluate import evaluate
from dreamgym.probe import replay
from dreamgym.progress import progress
from dreamgym.seeds import derive_seed
from dreamgym.train import IterationResult, Loop
from dreamgym.types import Origin


def naive_training(ctx: DemoContext) -> dict[str, Any]:
    """Fit and train without grounding; real success is measured beside it, not used."""
    assert ctx.config.naive is not None
    naive = ctx.config.naive
    config = replace(ctx.config, levers=NAIVE, fit=replace(ctx.config.fit, steps=naive.fit_steps))
    bare = DemoContext(config, ctx.run)
    bare.annotated = ctx.annotated
    logged = Logged(bare)
    buffer = make_buffer(bare, logged, durable=False)
    fit_on(bare, logged, buffer, name="naive_experience")
    dreamer = bare.load_dreamer("naive_experience")
    suite = DreamSuite(
        logged.seed_tasks,
        model=dreamer.experience,
        reader=logged.reader,
        buffer=buffer,
        config=bare.dream_config,
    )
    watcher = Watcher(bare, naive)
    agent = bare.load_agent("warm_start")
    sampler = UniformSampler(logged.seed_tasks, seed=bare.seed("naive"))
    with progress("dreaming without grounding", naive.iterations) as bar:
        loop = make_loop(
            bare,
            agent,
            suite,
            sampler,
            replace(config.dream_loop, iterations=naive.iterations),
            stage="naive",
            origin=Origin.DREAM,
            subscribers=[watcher],
            bar=bar,
        )
        loop.restore()
        asyncio.run(loop.train())
    ctx.save_model("naive", loop.learner.model, agent.tokenizer)
    return {
        "dream_success": watcher.dream,
        "replayed_success": watcher.replayed,
        "real_success": watcher.real,
        "final_real": watcher.real[-1][1] if watcher.real else None,
        "iterations": loop.step,
    }


class Watcher:
    """Measures for the report; nothing it sees reaches the training."""

    def __init__(self, ctx: DemoContext, config: NaiveConfig) -> None:
        self._ctx = ctx
        self._config = config
        self.dream: list[float] = []
        self.replayed: list[list[float]] = []
        self.real: list[list[float]] = []

    async def __call__(self, loop: Loop, result: IterationResult) -> bool:
        """Note dream success; now and then replay it and evaluate the policy for real."""
        self.dream.append(result.metrics["rollout/success"])
        last = result.step + 1 == self._config.iterations
        if result.step % self._config.evaluate_every and not last:
            return True
        ctx, seed = self._ctx, derive_seed(self._ctx.config.seed, "naive", result.step)
        wins = [r for g in result.groups for r in g.rollouts if r.success and not r.is_fault][:16]
        again = [await replay(ctx.suite, rollout, seed=seed) for rollout in wins]
        if again:
            share = sum(r.success for r in again) / len(again)
            self.replayed.append([result.step, share * result.metrics["rollout/success"]])
        tasks = list(ctx.evaluation_tasks)[: self._config.evaluate_tasks]
        seen = await evaluate(ctx.suite, loop.policy, tasks, seed=seed, limits=ctx.limits)
        self.real.append([result.step, seen.success.value])
        return True

    def state_dict(self) -> dict[str, object]:
        """Return the curves so far."""
        return {"dream": self.dream, "replayed": self.replayed, "real": self.real}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the curves."""
        self.dream, self.replayed, self.real = state["dream"], state["replayed"], state["real"]
