"""The first half of the demo: log, clone, log the clone, fit the experience model, measure it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from dreamgym.clone import demonstrations
from dreamgym.collect import collect, read_rollouts
from dreamgym.demo.context import Agent, DemoContext, make_learner
from dreamgym.demo.models import new_models
from dreamgym.dream.accuracy import measure_accuracy
from dreamgym.dream.annotate import AnnotatedTransition, Annotator, scenario_tasks
from dreamgym.dream.experience import ExperienceModel
from dreamgym.envs.base import Policy
from dreamgym.evaluate import Evaluation, evaluate
from dreamgym.fit import TokenStream, train_on_stream
from dreamgym.llm.render import Renderer
from dreamgym.progress import progress
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.rl.sft import SFTConfig, fit_sft
from dreamgym.types import Rollout, Task, Transition


def collect_logs(ctx: DemoContext) -> dict[str, int]:
    """Log demonstrations, surveys, noisy experts and random play in training rooms."""
    logs, suite, tasks = ctx.config.logs, ctx.suite, list(ctx.logged_tasks)
    few = tasks[: int(len(tasks) * logs.random_share)]
    _play(ctx, "demonstrations", suite.policy("searcher"), tasks[: ctx.config.clone.episodes], 1)
    _play(ctx, "logs", suite.policy("survey"), tasks, logs.survey)
    _play(ctx, "logs", suite.policy("noisy"), tasks, logs.noisy)
    _play(ctx, "logs", suite.policy("random"), few, 1)
    return {
        "warm_start": count_transitions(load_rollouts(ctx, "demonstrations")),
        "logs": count_transitions(load_rollouts(ctx, "logs")),
    }


def collect_agent_logs(ctx: DemoContext) -> dict[str, int]:
    """Log the warm-started agent itself: the states RL will start from."""
    if ctx.config.levers.agent_logs:
        agent = ctx.load_agent("warm_start")
        tasks = list(ctx.logged_tasks)[: ctx.config.logs.agent_episodes]
        _play(ctx, "agent_logs", agent.policy, tasks, 1)
    return {"agent_logs": count_transitions(load_rollouts(ctx, "agent_logs"))}


def _play(ctx: DemoContext, name: str, policy: Policy, tasks: Sequence[Task], each: int) -> None:
    if not each or not tasks:
        return
    writer = ctx.run.writer(name, "rollout", {"suite": "household", "size": ctx.config.size})
    with writer, progress(f"logging {policy.name}", len(tasks) * each) as bar:
        asyncio.run(
            collect(
                ctx.suite, policy, tasks,
                episodes_per_task=each,
                seed=ctx.seed("logs", policy.name),
                writer=writer,
                limits=ctx.limits,
                on_episode=lambda rollout: bar.advance(),
            )
        )


def load_rollouts(ctx: DemoContext, name: str) -> list[Rollout]:
    """Return the recorded episodes of a record file, none if there is no such file."""
    path = ctx.run.record_path(name)
    return read_rollouts(path) if path.exists() else []


def count_transitions(rollouts: Sequence[Rollout]) -> int:
    """Return the number of real transitions in recorded episodes."""
    return sum(len(rollout.transitions) for rollout in rollouts)


def warm_start(ctx: DemoContext) -> dict[str, float]:
    """Clone the demonstrations into a new agent."""
    model, tokenizer = new_models(ctx, "agent")
    config = ctx.config.clone
    rate = ctx.config.agent.learning_rate
    learner = make_learner(model, tokenizer, ctx.config.agent, rate=rate, supervised=True)
    examples = demonstrations(
        load_rollouts(ctx, "demonstrations"), ctx.agent_prompt, Renderer(tokenizer)
    )
    sft = SFTConfig(
        steps=config.steps, batch_tokens=config.batch_tokens, learning_rate=rate,
        warmup_steps=10, seed=ctx.seed("clone"),
    )
    with progress("cloning demonstrations", config.steps) as bar:
        result = fit_sft(learner, examples, sft, progress=lambda step, loss: bar.advance())
    ctx.save_model("warm_start", learner.model, tokenizer)
    return {"loss": result.losses[-1], "examples": float(len(examples))}


class Logged:
    """Logged episodes with their hindsight scenarios, split into fitting and held-out games."""

    def __init__(self, ctx: DemoContext) -> None:
        self.rollouts = [
            rollout
            for name in ("logs", "demonstrations", "agent_logs")
            for rollout in load_rollouts(ctx, name)
            if not rollout.is_fault
        ]
        self.reader = ctx.reader.learned([t for r in self.rollouts for t in r.transitions])
        self.tasks = scenario_tasks(self.rollouts, self.reader)
        ids = [task.id for task in ctx.logged_tasks if task.id in self.tasks]
        count = int(len(ids) * ctx.config.logs.heldout_share)
        self.heldout_ids = frozenset(ids[len(ids) - count :])

    @property
    def fitting(self) -> list[Rollout]:
        """Episodes the experience model is trained on."""
        return [r for r in self.rollouts if r.task.id not in self.heldout_ids]

    @property
    def heldout(self) -> list[Rollout]:
        """Episodes of games the experience model never sees."""
        return [r for r in self.rollouts if r.task.id in self.heldout_ids]

    @property
    def seed_tasks(self) -> list[Task]:
        """Tasks a dream may start from: fitted games, with their scenarios."""
        return [task for key, task in self.tasks.items() if key not in self.heldout_ids]


def make_buffer(ctx: DemoContext, logged: Logged, *, durable: bool = True) -> ReplayBuffer:
    """Return the replay buffer seeded with the logged transitions of fitted games."""
    buffer = ReplayBuffer(
        ctx.run.path / "buffer" if durable else None,
        HashedNgramEncoder(),
        capacity=ctx.config.buffer_capacity,
        forbidden_splits=("valid_seen", "valid_unseen"),
    )
    transitions: list[Transition] = [t for r in logged.fitting for t in r.transitions]
    buffer.add(transitions)
    return buffer


def annotate(
    ctx: DemoContext, logged: Logged, buffer: ReplayBuffer, rollouts: Sequence[Rollout]
) -> list[AnnotatedTransition]:
    """Return annotated examples of logged episodes, with free negatives if that lever is on."""
    from msgspec.structs import replace

    config = ctx.config.annotate
    if not ctx.config.levers.free_negatives:
        config = replace(config, negatives=0)
    annotator = Annotator(
        logged.reader, logged.tasks,
        buffer=buffer if ctx.config.levers.replay else None,
        config=replace(config, seed=ctx.seed("annotate")),
    )
    return [example for rollout in rollouts for example in annotator.annotate(rollout)]


def fit_model(ctx: DemoContext) -> dict[str, Any]:
    """Fit the experience model and measure it on held-out games before any RL."""
    logged = Logged(ctx)
    buffer = make_buffer(ctx, logged)
    result = fit_on(ctx, logged, buffer, name="experience")
    accuracy = measure(ctx, logged, buffer, ctx.load_dreamer().experience)
    return {**result, "accuracy": accuracy}


def fit_on(ctx: DemoContext, logged: Logged, buffer: ReplayBuffer, *, name: str) -> dict[str, Any]:
    """Fit a fresh experience model on logged episodes and save it under a name."""
    annotated = annotate(ctx, logged, buffer, logged.fitting)
    model, tokenizer = new_models(ctx, "experience")
    config, fit = ctx.config.experience, ctx.config.fit
    learner = make_learner(
        model, tokenizer, config, rate=config.learning_rate, supervised=True
    )
    stream = TokenStream(annotated, [], Renderer(tokenizer), ctx.prompt_config, fit)
    with progress("fitting the experience model", fit.steps) as bar:
        loss = train_on_stream(
            learner, stream.batch, config=fit, on_step=lambda step, value: bar.advance()
        )
    ctx.save_model(name, learner.model, tokenizer)
    return {"loss": loss, "examples": len(annotated)}


def measure(
    ctx: DemoContext, logged: Logged, buffer: ReplayBuffer, experience: ExperienceModel
) -> dict[str, object]:
    """Return whole-step accuracy on held-out games, free negatives included."""
    heldout = annotate(ctx, logged, buffer, logged.heldout)[: ctx.config.accuracy_examples]
    result = asyncio.run(measure_accuracy(experience, heldout, logged.reader))
    return {**result.as_dict(), "misses": [m.answered for m in result.misses[:20]]}


def evaluate_agent(ctx: DemoContext, agent: Agent, name: str) -> dict[str, Any]:
    """Evaluate an agent in unseen rooms, sampled and greedy, and store both."""
    results: dict[str, Evaluation] = {}
    tasks = list(ctx.evaluation_tasks)
    for mode, policy in (("sampled", agent.policy), ("greedy", agent.policy.with_temperature(0))):
        results[mode] = asyncio.run(
            evaluate(
                ctx.suite, policy, tasks, seed=ctx.seed("evaluate"), limits=ctx.limits,
                max_concurrent=128,
            )
        )
    sampled, greedy = results["sampled"], results["greedy"]
    return {
        "sampled": sampled.success.value,
        "greedy": greedy.success.value,
        "n": sampled.n,
        "ci95": list(sampled.success.ci95),
        "greedy_ci95": list(greedy.success.ci95),
        "mean_steps": sampled.mean_steps,
        "by_kind": {
            kind: {"sampled": rate.value, "greedy": greedy.by_kind[kind].value, "n": rate.n}
            for kind, rate in sampled.by_kind.items()
        },
        "panel": sampled.panel,
    }
