"""Models on disk or from scratch, and the agents and learners around them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamgym.agent.policy import ModelPolicy
from dreamgym.agent.prompt import AgentPrompt
from dreamgym.clone import action_text
from dreamgym.errors import ConfigError, MissingExtra, unknown_name
from dreamgym.llm.models import load_model, save_model, smollm2_folder
from dreamgym.llm.tiny import CHAT_TEMPLATE, build_model, build_tokenizer, entity_names
from dreamgym.pipeline.settings import LearningSettings, ModelSettings, PlaySettings
from dreamgym.pipeline.suites import is_path
from dreamgym.types import Rollout

if TYPE_CHECKING:
    from dreamgym.rl.learner import Learner

HUB = "hub:"
NAMES = ("tiny", "smollm2")
MACROS = (
    "<think>",
    "</think>",
    "<action>",
    "</action>",
    '{"next_state":"',
    '","reward":0,"done":false}',
    '","reward":1,"done":true}',
    ". ok. ",
    ". no effect: ",
    ". holding nothing. ",
)
"""Strings that get one token each in the tokenizer of small models."""


class Agent:
    """A model, the engine that samples from it and the policy that plays with it.

    Any: neither models, tokenizers nor our engines share a typed base.
    """

    def __init__(self, model: Any, tokenizer: Any, engine: Any, policy: ModelPolicy) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.engine = engine
        self.policy = policy

    def publish(self, version: int) -> None:
        """Hand the model's current weights to the engine under a new version."""
        self.engine.sync(version)


def model_folder(name: str) -> Path:
    """Return the model folder behind a name: itself, or the `model/` of a run folder.

    Raises `ConfigError` when there is no model.
    """
    if not name:
        raise ConfigError("no policy given; pass --policy with a model folder or a run folder")
    folder = Path(name).expanduser()
    for candidate in (folder / "model", folder):
        if candidate.is_dir() and any(candidate.glob("*.safetensors")):
            return candidate
    found = "holds no model" if folder.exists() else "does not exist"
    raise ConfigError(
        f"model folder {name!r} {found}; expected a Hugging Face folder or a run folder of "
        "`dreamgym clone`, `fit`, `train` or `transfer`"
    )


def start_model(
    settings: ModelSettings, texts: Callable[[], Iterable[str]], *, seed: int
) -> tuple[Any, Any]:
    """Return (model, tokenizer) to start training from.

    `texts` is only asked for where a new tokenizer is trained: for `tiny`.
    """
    name = settings.name
    if name == "tiny":
        corpus = texts()
        tokenizer = build_tokenizer(
            corpus,
            vocab_size=settings.vocab_size,
            words=entity_names(corpus),
            macros=MACROS,
        )
        model = build_model(
            tokenizer,
            hidden=settings.hidden,
            layers=settings.layers,
            heads=settings.heads,
            kv_heads=settings.kv_heads,
            intermediate=settings.intermediate,
            max_context=settings.max_context,
            seed=seed % 2**31,
        )
        return model, tokenizer
    if name == "smollm2":
        source: str | Path = smollm2_folder()
    elif name.startswith(HUB):
        source = name.removeprefix(HUB)
    elif is_path(name):
        source = model_folder(name)
    else:
        raise unknown_name("model", name, (*NAMES, "a model folder", f"{HUB}ORG/NAME"))
    return load_folder(source)


def load_folder(source: str | Path) -> tuple[Any, Any]:
    """Return the (model, tokenizer) in a model folder or, by name, of the hub."""
    try:
        quiet_transformers()
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    loaded = load_model(source)
    return loaded.model, loaded.tokenizer


def check_model_name(settings: ModelSettings) -> None:
    """Raise `ConfigError` for a model that cannot be meant, before any work is done."""
    name = settings.name
    if name in NAMES or name.startswith(HUB):
        return
    if not is_path(name):
        raise unknown_name("model", name, (*NAMES, "a model folder", f"{HUB}ORG/NAME"))
    model_folder(name)


def log_texts(rollouts: Sequence[Rollout]) -> list[str]:
    """Return what an agent reads and writes in logged episodes, to train a tokenizer on."""
    texts = []
    for rollout in rollouts:
        texts.append(rollout.transitions[0].observation.text)
        for transition in rollout.transitions:
            texts += [
                action_text(transition.action, transition.thought),
                transition.next_observation.text,
            ]
    return texts


def agent_prompt(tokenizer: Any) -> AgentPrompt:
    """Return how the agent of a tokenizer is addressed: our small models get no system prompt."""
    is_ours = getattr(tokenizer, "chat_template", None) == CHAT_TEMPLATE
    return AgentPrompt(style="compact" if is_ours else "chat")


def load_agent(name: str, play: PlaySettings) -> Agent:
    """Return the model in a folder as an agent; its policy is named after the folder."""
    folder = model_folder(name)
    model, tokenizer = load_folder(folder)
    shown = folder.parent.name if folder.name == "model" else folder.name
    return make_agent(model, tokenizer, play, name=shown)


def make_agent(model: Any, tokenizer: Any, play: PlaySettings, *, name: str) -> Agent:
    """Return an agent around a model in memory."""
    from dreamgym.llm.engine import make_engine

    window = int(getattr(model.config, "max_position_embeddings", play.max_context))
    engine: Any = make_engine(
        model, max_context=min(play.max_context, window), max_batch=play.max_batch
    )
    policy = ModelPolicy(
        engine,
        tokenizer,
        agent_prompt(tokenizer),
        temperature=play.temperature,
        max_new_tokens=play.max_new_tokens,
        name=name,
    )
    return Agent(model, tokenizer, engine, policy)


def quiet_transformers() -> None:
    """Turn off the library's own progress bars, which would break into ours."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def save_trained(learner: Learner, folder: Path) -> None:
    """Write the learner's model as a whole model folder, adapters merged."""
    quiet_transformers()
    model: Any = learner.model
    if hasattr(model, "merge_adapter"):
        model = copy.deepcopy(model).merge_and_unload()
    save_model(model, learner.tokenizer, folder)


def make_learner(
    model: Any,
    tokenizer: Any,
    settings: LearningSettings,
    *,
    temperature: float = 1.0,
    value_head: bool = False,
) -> Learner:
    """Return a learner for a model; `temperature` must be the sampling temperature."""
    from dreamgym.rl.learner import Learner, LearnerConfig
    from dreamgym.rl.optim import OptimConfig
    from dreamgym.rl.trainable import TrainableConfig

    config = LearnerConfig(
        trainable=TrainableConfig(mode=settings.trainable, top_k_layers=settings.top_k_layers),
        optim=OptimConfig(
            learning_rate=settings.learning_rate,
            optimizer=settings.optimizer,
        ),
        batch_tokens=settings.batch_tokens,
        temperature=temperature,
        value_head=value_head,
    )
    return Learner(model, tokenizer, config)
