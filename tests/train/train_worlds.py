"""A world of two doors, a model small enough to train in a test, and a loop around them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dreamgym.agent.policy import ModelPolicy
from dreamgym.agent.prompt import AgentPrompt
from dreamgym.curriculum.sampler import UniformSampler
from dreamgym.errors import ConfigError, EnvError
from dreamgym.llm.hf_engine import HFEngine
from dreamgym.llm.render import Renderer
from dreamgym.llm.tiny import build_model, build_tokenizer
from dreamgym.rl.grpo import GRPO, GRPOConfig
from dreamgym.rl.learner import Learner, LearnerConfig
from dreamgym.rl.optim import OptimConfig
from dreamgym.rl.sft import SftExample
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.runs import RunFolder
from dreamgym.train import Loop, LoopConfig, Subscriber
from dreamgym.types import Observation, Origin, Step, Task

LEFT, RIGHT = "<action>left</action>", "<action>right</action>"
PROMPT = AgentPrompt(style="compact")


class Doors:
    """One step: `pays` decides what a door is worth; `breaks` says where the world fails."""

    name = "doors"

    def __init__(
        self,
        pays: Callable[[Task, str], float] = lambda task, action: float(action == "right"),
        breaks: Callable[[Task, int], bool] = lambda task, opened: False,
    ) -> None:
        self.pays, self.breaks = pays, breaks
        self.opened: list[str] = []
        self.steps = 0

    def tasks(self, split: str) -> Sequence[Task]:
        if split != "train":
            raise ConfigError(f"unknown split {split!r}")
        return [Task(id=f"door-{i}", suite="doors", instruction=f"Door {i}?") for i in range(5)]

    def open(self, task: Task, *, seed: int) -> DoorEnv:
        self.opened.append(task.id)
        return DoorEnv(self, task, self.breaks(task, len(self.opened)))


class DoorEnv:
    def __init__(self, suite: Doors, task: Task, is_broken: bool) -> None:
        self.suite, self.task, self.is_broken = suite, task, is_broken

    async def start(self) -> Observation:
        return Observation(text=self.task.instruction)

    async def step(self, action: str) -> Step:
        if self.is_broken:
            raise EnvError("the door is jammed")
        self.suite.steps += 1
        reward = self.suite.pays(self.task, action)
        return Step(
            observation=Observation(text="Done."),
            reward=reward,
            terminated=True,
            success=reward >= 1,
        )

    async def close(self) -> None:
        """Nothing is held."""


@functools.cache
def tokenizer() -> Any:
    texts = [*(task.instruction for task in Doors().tasks("train")), "Done.", "Nothing happens."]
    return build_tokenizer(texts * 3, vocab_size=300, macros=(LEFT, RIGHT))


@functools.cache
def _warm_weights() -> Any:
    """Return the weights of a model that says either door about as often."""
    model = build_model(tokenizer(), hidden=16, heads=2, layers=1, intermediate=24, max_context=128)
    learner = Learner(model, tokenizer(), LearnerConfig(optim=OptimConfig(learning_rate=2e-2)))
    examples = [door_example(task, say) for task in Doors().tasks("train") for say in (LEFT, RIGHT)]
    for _ in range(40):
        learner.sft_step(examples)
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def door_example(task: Task, say: str) -> SftExample:
    renderer = Renderer(tokenizer())
    context = renderer.first(PROMPT.first(task, Observation(text=task.instruction)))
    answer = renderer.completion(say)
    return SftExample(token_ids=(*context, *answer), mask=(0,) * len(context) + (1,) * len(answer))


def warm_model() -> Any:
    model = build_model(tokenizer(), hidden=16, heads=2, layers=1, intermediate=24, max_context=128)
    model.load_state_dict(_warm_weights())
    return model


def make_loop(
    folder: Path,
    suite: Doors | None = None,
    *,
    iterations: int = 4,
    budget: TransitionBudget | None = None,
    subscribers: Sequence[Subscriber] = (),
    checkpoint_every: int = 10,
    tasks_per_iteration: int = 3,
    on_progress: Callable[[int, dict[str, float]], None] | None = None,
) -> Loop:
    """Return a loop in a run folder; the caller closes `loop.run`."""
    model = warm_model()
    engine = HFEngine(model)
    world = suite or Doors()
    return Loop(
        suite=world,
        policy=ModelPolicy(engine, tokenizer(), PROMPT, max_new_tokens=8),
        learner=Learner(model, tokenizer(), LearnerConfig(optim=OptimConfig(learning_rate=1e-2))),
        algorithm=GRPO(GRPOConfig(group_size=4)),
        sampler=UniformSampler(world.tasks("train"), seed=3),
        config=LoopConfig(
            iterations=iterations,
            tasks_per_iteration=tasks_per_iteration,
            group_size=4,
            max_steps=2,
            max_invalid=1,
            checkpoint_every=checkpoint_every,
        ),
        stage="doors",
        seed=0,
        run=RunFolder(folder, {"name": "doors"}),
        origin=Origin.REAL,
        publish=engine.sync,
        budget=budget,
        subscribers=subscribers,
        on_progress=on_progress,
    )
