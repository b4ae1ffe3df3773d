"""What all stages of the demo share: the suite, the run folder, models on disk, engines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from dreamgym.agent.policy import ModelPolicy
from dreamgym.agent.prompt import AgentPrompt
from dreamgym.demo.config import DemoConfig, ModelConfig
from dreamgym.dream.annotate import AnnotatedTransition
from dreamgym.dream.env import DreamConfig
from dreamgym.dream.experience import ExperienceConfig, ExperienceModel
from dreamgym.dream.prompt import PromptConfig
from dreamgym.envs.base import StateReader
from dreamgym.envs.table import make_reader, make_suite
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.runs import RunFolder
from dreamgym.seeds import derive_random, derive_seed
from dreamgym.types import Task

if TYPE_CHECKING:
    from dreamgym.envs.household.suite import HouseholdSuite
    from dreamgym.llm.cache import CachedChat
    from dreamgym.llm.engine import KVEngine
    from dreamgym.rl.learner import Learner

SUITE = "household"
TRAIN_POOL = 2000
"""Training games the demo draws its logged, probe and sim-to-real tasks from."""


class Agent:
    """A model, the engine that samples from it and the policy that plays with it."""

    def __init__(self, model: Any, tokenizer: Any, engine: KVEngine, policy: ModelPolicy) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.engine = engine
        self.policy = policy

    def publish(self, version: int) -> None:
        """Hand the learner's current weights to the engine under a new version."""
        self.engine.sync(version)


class Dreamer:
    """The experience model of a run: weights, engine, and what asks it."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        engine: KVEngine,
        chat: CachedChat,
        experience: ExperienceModel,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.engine = engine
        self.chat = chat
        self.experience = experience

    def publish(self) -> None:
        """Hand changed weights to the engine; remembered answers are the old weights'."""
        self.engine.sync()
        self.chat.forget()


class DemoContext:
    """One demo run: configuration, folder, tasks; models are loaded from the folder by name."""

    def __init__(self, config: DemoConfig, run: RunFolder) -> None:
        self.config = config
        self.run = run
        self.annotated: dict[str, list[AnnotatedTransition]] = {}
        """Annotated examples by episode, kept for the stages that need them again."""

    @cached_property
    def suite(self) -> HouseholdSuite:
        """The real suite."""
        return self._suite(self.config.max_steps)

    @cached_property
    def demonstration_suite(self) -> HouseholdSuite:
        """The same games with the step limit of demonstrations."""
        return self._suite(self.config.clone.max_steps)

    def _suite(self, max_steps: int) -> HouseholdSuite:
        size = max(TRAIN_POOL, self.config.evaluation.tasks)
        suite: Any = make_suite(SUITE, size=self.config.size, num_tasks=size, max_steps=max_steps)
        household: HouseholdSuite = suite
        return household

    @cached_property
    def reader(self) -> StateReader:
        """Reads the suite's text; knows nothing of its engine."""
        return make_reader(SUITE)

    @cached_property
    def _pool(self) -> list[Task]:
        pool = list(self.suite.tasks("train"))[:TRAIN_POOL]
        derive_random(self.config.seed, "pool").shuffle(pool)
        return pool

    @property
    def demonstrated_tasks(self) -> Sequence[Task]:
        """Training games with a demonstration; the agent knows them, so it never dreams them."""
        return self._pool[: self.config.clone.episodes]

    @property
    def logged_tasks(self) -> Sequence[Task]:
        """Further training games that get logged."""
        start = self.config.clone.episodes
        return self._pool[start : start + self.config.logs.tasks]

    @property
    def other_tasks(self) -> Sequence[Task]:
        """Training games that are never logged: for the probe and for sim-to-real."""
        return self._pool[self.config.clone.episodes + self.config.logs.tasks :]

    @property
    def probe_tasks(self) -> Sequence[Task]:
        """Training games the probe plays."""
        return self.other_tasks[:200]

    @property
    def dream_config(self) -> DreamConfig:
        """How dreamt episodes run, after the levers."""
        return replace(
            self.config.dream,
            verify=self.config.levers.verifier,
            max_steps=self.config.max_steps,
        )

    @property
    def evaluation_tasks(self) -> Sequence[Task]:
        """Games in rooms of no training game; the same for every seed."""
        config = self.config.evaluation
        return list(self.suite.tasks(config.split))[: config.tasks]

    @property
    def limits(self) -> EpisodeLimits:
        """Episode limits of logs, probe and evaluation; training loops may add an idle limit."""
        return EpisodeLimits(max_steps=self.config.max_steps, max_invalid=5)

    def seed(self, *parts: object) -> int:
        """Return a seed of this run for a named purpose."""
        return derive_seed(self.config.seed, *parts)

    def model_path(self, name: str) -> Path:
        """Return the folder of a model of this run."""
        return self.run.path / "models" / name

    def save_model(self, name: str, model: Any, tokenizer: Any) -> None:
        """Write a model of this run in Hugging Face layout."""
        from dreamgym.llm.models import save_model

        self.model_path(name).parent.mkdir(parents=True, exist_ok=True)
        save_model(model, tokenizer, self.model_path(name))

    def load_model(self, name: str) -> tuple[Any, Any]:
        """Return a saved model of this run and its tokenizer."""
        from dreamgym.llm.models import load_model

        loaded = load_model(self.model_path(name))
        return loaded.model, loaded.tokenizer

    def load_agent(self, name: str) -> Agent:
        """Return a saved agent with its engine and policy."""
        model, tokenizer = self.load_model(name)
        return self.make_agent(model, tokenizer, name)

    def make_agent(self, model: Any, tokenizer: Any, name: str) -> Agent:
        """Return an agent around a model in memory."""
        from dreamgym.llm.engine import KVEngine

        config = self.config
        engine = KVEngine(
            model, max_context=config.agent.max_context, max_batch=128, max_sessions=512
        )
        policy = ModelPolicy(
            engine,
            tokenizer,
            self.agent_prompt,
            temperature=config.rl.temperature,
            max_new_tokens=config.rl.max_new_tokens,
            name=name,
        )
        return Agent(model, tokenizer, engine, policy)

    def load_dreamer(self, name: str = "experience") -> Dreamer:
        """Return the saved experience model, ready to answer."""
        from dreamgym.llm.cache import CachedChat
        from dreamgym.llm.engine import KVEngine
        from dreamgym.llm.local import LocalChat

        model, tokenizer = self.load_model(name)
        engine = KVEngine(
            model, max_context=self.config.experience.max_context, max_batch=128, max_sessions=512
        )
        # Members of a group meet the same situations: a greedy answer is computed once.
        chat = CachedChat(LocalChat(engine, tokenizer, name))
        return Dreamer(model, tokenizer, engine, chat, ExperienceModel(chat, self.ask_config))

    @property
    def prompt_config(self) -> PromptConfig:
        """What the experience model sees, after the levers."""
        prompt, levers = self.config.ask.prompt, self.config.levers
        return replace(
            prompt,
            reasoning=levers.reasoning,
            history=prompt.history if levers.history else 0,
            neighbours=prompt.neighbours if levers.replay else 0,
            ledger=levers.ledger,
        )

    @property
    def ask_config(self) -> ExperienceConfig:
        """How the experience model is asked, after the levers."""
        return replace(
            self.config.ask,
            prompt=self.prompt_config,
            check_ledger=self.config.levers.ledger,
        )

    @property
    def is_compact(self) -> bool:
        """Whether the experience model reads prompts without instructions."""
        return self.config.ask.prompt.style == "compact"

    @property
    def agent_prompt(self) -> AgentPrompt:
        """How the agent is addressed."""
        return AgentPrompt(style="chat" if self.config.agent.pretrained else "compact")


def make_learner(
    model: Any,
    tokenizer: Any,
    config: ModelConfig,
    *,
    rate: float,
    value_head: bool = False,
    optimizer: Literal["adamw", "muon"],
    temperature: float = 1.0,
) -> Learner:
    """Return a learner for a model of the demo; `temperature` must be the sampling one."""
    from dreamgym.pipeline.models import make_learner as make
    from dreamgym.pipeline.settings import LearningSettings

    settings = LearningSettings(
        learning_rate=rate,
        optimizer=optimizer,
        trainable=config.trainable,
        top_k_layers=config.top_k_layers,
        batch_tokens=config.batch_tokens,
    )
    return make(model, tokenizer, settings, temperature=temperature, value_head=value_head)
