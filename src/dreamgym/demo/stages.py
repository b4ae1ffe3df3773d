"""The first half of the demo: log, clone, log the clone, fit the experience model, measure it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dreamgym.clone import augmented, demonstrations
from dreamgym.collect import collect
from dreamgym.demo.context import Agent, DemoContext, make_learner
from dreamgym.demo.logged import Logged, count_transitions, load_rollouts, make_buffer
from dreamgym.demo.models import new_models
from dreamgym.dream.accuracy import measure_accuracy
from dreamgym.dream.annotate import AnnotatedTransition, Annotator, logged_successes
from dreamgym.dream.examples import ChatExample
from dreamgym.dream.experience import ExperienceModel
from dreamgym.envs.base import Policy
from dreamgym.evaluate import Evaluation, evaluate
from dreamgym.fit import TokenStream, train_on_stream
from dreamgym.llm.render import Renderer
from dreamgym.pipeline.curriculum import mode_examples
from dreamgym.progress import progress
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.rl.sft import SFTConfig, SftExample, fit_sft
from dreamgym.seeds import derive_random
from dreamgym.types import Rollout, Task

if TYPE_CHECKING:
    from dreamgym.envs.household.suite import HouseholdSuite

REFIT_RATE = 0.4
"""Learning rate of continued fitting as a share of the first fit's peak."""


def collect_logs(ctx: DemoContext) -> dict[str, int]:
    """Log demonstrations, surveys, noisy experts and random play in training rooms."""
    logs, suite, tasks = ctx.config.logs, ctx.suite, list(ctx.logged_tasks)
    few = tasks[: int(len(tasks) * logs.random_share)]
    clone, slow = ctx.config.clone, ctx.demonstration_suite
    demonstrator = slow.policy("searcher", slips=clone.slips, dawdles=clone.dawdles)
    _play(ctx, "demonstrations", slow, demonstrator, ctx.demonstrated_tasks, 1)
    _play(ctx, "logs", suite, suite.policy("survey"), tasks, logs.survey)
    _play(ctx, "logs", suite, suite.policy("noisy"), tasks, logs.noisy)
    _play(ctx, "logs", suite, suite.policy("random"), few, 1)
    return {
        "warm_start": count_transitions(load_rollouts(ctx, "demonstrations")),
        "logs": count_transitions(load_rollouts(ctx, "logs")),
    }


def collect_agent_logs(ctx: DemoContext) -> dict[str, int]:
    """Log the warm-started agent itself: the states RL will start from."""
    if ctx.config.levers.agent_logs:
        agent = ctx.load_agent("warm_start")
        tasks = list(ctx.logged_tasks)[: ctx.config.logs.agent_episodes]
        _play(ctx, "agent_logs", ctx.suite, agent.policy, tasks, 1)
    return {"agent_logs": count_transitions(load_rollouts(ctx, "agent_logs"))}


def _play(
    ctx: DemoContext,
    name: str,
    suite: HouseholdSuite,
    policy: Policy,
    tasks: Sequence[Task],
    each: int,
) -> None:
    if not each or not tasks:
        return
    writer = ctx.run.writer(name, "rollout", {"suite": "household", "size": ctx.config.size})
    with writer, progress(f"logging {policy.name}", len(tasks) * each) as bar:
        asyncio.run(
            collect(
                suite,
                policy,
                tasks,
                episodes_per_task=each,
                seed=ctx.seed("logs", policy.name),
                writer=writer,
                limits=replace(ctx.limits, max_steps=suite.max_steps),
                on_episode=lambda rollout: bar.advance(),
            )
        )


def warm_start(ctx: DemoContext) -> dict[str, float]:
    """Clone the demonstrations into a new agent."""
    model, tokenizer = new_models(ctx, "agent")
    config, renderer = ctx.config.clone, Renderer(tokenizer)
    rate = config.learning_rate
    learner = make_learner(
        model, tokenizer, ctx.config.agent, rate=rate, optimizer=ctx.config.agent.optimizer
    )
    logged = [r for r in load_rollouts(ctx, "demonstrations") if r.success]

    def epoch(number: int) -> list[SftExample]:
        worlds = [
            augmented(
                rollout,
                derive_random(ctx.config.seed, "clone", number, rollout.id),
                renumber=config.renumber,
                rename=config.rename,
            )
            for rollout in logged
        ]
        return demonstrations(worlds, ctx.agent_prompt, renderer)

    sft = SFTConfig(
        steps=config.steps,
        batch_tokens=config.batch_tokens,
        learning_rate=rate,
        warmup_steps=10,
        seed=ctx.seed("clone"),
    )
    with progress("cloning demonstrations", config.steps) as bar:
        result = fit_sft(
            learner, epoch, sft, progress=lambda step, loss: bar.advance(1, f"loss {loss:.3f}")
        )
    ctx.save_model("warm_start", learner.model, tokenizer)
    return {"loss": result.losses[-1], "demonstrations": float(len(logged))}


def annotate(
    ctx: DemoContext, logged: Logged, buffer: ReplayBuffer, rollouts: Sequence[Rollout]
) -> list[AnnotatedTransition]:
    """Return annotated examples of logged episodes, with free negatives if that lever is on.

    Episodes annotated earlier in this process are not annotated again.
    """
    levers = ctx.config.levers
    annotator = Annotator(
        logged.reader,
        logged.tasks,
        buffer=buffer if levers.replay else None,
        config=replace(ctx.config.annotate, seed=ctx.seed("annotate")),
        successes=logged_successes(logged.rollouts, logged.reader),
    )
    for rollout in rollouts:
        if rollout.id not in ctx.annotated:
            ctx.annotated[rollout.id] = annotator.annotate(rollout)
    found = [example for rollout in rollouts for example in ctx.annotated[rollout.id]]
    return [e for e in found if levers.free_negatives or not e.is_negative]


def fit_model(ctx: DemoContext) -> dict[str, Any]:
    """Fit the experience model on the logs of experts, noise and chance."""
    logged = Logged(ctx, with_agent=False)
    buffer = make_buffer(ctx, logged, durable=False)
    return fit_on(ctx, logged, buffer, name="experience")


def refit_model(ctx: DemoContext) -> dict[str, Any]:
    """Go on fitting with the agent's own logs, then measure on held-out games before any RL."""
    logged = Logged(ctx)
    buffer = make_buffer(ctx, logged)
    steps = ctx.config.refit_steps if ctx.config.levers.agent_logs else 0
    result: dict[str, Any] = {}
    if steps:
        result = fit_on(ctx, logged, buffer, name="experience", start="experience", steps=steps)
    accuracy = measure(ctx, logged, buffer, ctx.load_dreamer().experience)
    return {**result, "accuracy": accuracy}


def fit_on(
    ctx: DemoContext,
    logged: Logged,
    buffer: ReplayBuffer,
    *,
    name: str,
    start: str | None = None,
    steps: int | None = None,
) -> dict[str, Any]:
    """Fit an experience model on logged episodes, fresh or from a saved one, and save it."""
    annotated = annotate(ctx, logged, buffer, logged.fitting)
    config, fit = ctx.config.experience, ctx.config.fit
    if start is None:
        model, tokenizer = new_models(ctx, "experience")
        rate = config.learning_rate
    else:
        model, tokenizer = ctx.load_model(start)
        rate = config.learning_rate * REFIT_RATE
    fit = replace(fit, steps=steps or fit.steps, seed=ctx.seed("fit", name, start))
    learner = make_learner(model, tokenizer, config, rate=rate, optimizer=config.optimizer)
    extra: list[ChatExample] = []
    if ctx.config.levers.curriculum:
        extra = mode_examples(
            logged.seed_tasks,
            compact=ctx.is_compact,
            seed=ctx.config.seed,
            variations=ctx.config.curriculum.proposals,
        )
    stream = TokenStream(annotated, extra, Renderer(tokenizer), ctx.prompt_config, fit)
    with progress(f"fitting the model {name!r}", fit.steps) as bar:
        loss = train_on_stream(
            learner,
            stream.batch,
            config=fit,
            on_step=lambda step, value: bar.advance(1, f"loss {value:.3f}"),
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
                ctx.suite,
                policy,
                tasks,
                seed=ctx.seed("evaluate"),
                limits=ctx.limits,
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
