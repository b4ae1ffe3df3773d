"""Settings shared by several commands, and how recipes, flags and overrides become settings.

A recipe is one TOML file for the whole pipeline with a section per command:

    [collect]
    tasks = 200

    [train.loop]
    iterations = 60
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from dreamgym.config import build_config, load_config, override
from dreamgym.errors import ConfigError

Options = dict[str, str | int | float | bool | list[str]]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen and strict."""


S = TypeVar("S", bound=Settings)


class Recipe(Settings, frozen=True, kw_only=True):
    """A recipe file: the settings of each command that differ from the defaults."""

    collect: dict[str, Any] = {}
    clone: dict[str, Any] = {}
    fit: dict[str, Any] = {}
    train: dict[str, Any] = {}
    transfer: dict[str, Any] = {}
    evaluate: dict[str, Any] = {}
    fidelity: dict[str, Any] = {}
    judge: dict[str, Any] = {}


class SuiteSettings(Settings, frozen=True, kw_only=True):
    """Which real suite."""

    name: str = "household"
    options: Options = {}
    """Options of the suite, e.g. `size = "small"`."""


class PlaySettings(Settings, frozen=True, kw_only=True):
    """How a model plays episodes."""

    temperature: float = 1.0
    """Sampling temperature; 0 is greedy."""
    max_new_tokens: int = 32
    """Longest turn of the policy in tokens."""
    max_context: int = 1024
    """Longest episode in tokens; never more than the model's own window."""
    max_batch: int = 128
    """Episodes answered in one forward pass."""


class LearningSettings(Settings, frozen=True, kw_only=True):
    """Which weights are trained and how fast."""

    learning_rate: float = 2e-3
    """Peak learning rate."""
    optimizer: Literal["adamw", "muon"] = "muon"
    """`muon` suits models from scratch, `adamw` pretrained ones and policy updates."""
    trainable: Literal["full", "lora", "top_k_layers"] = "full"
    top_k_layers: int = 8
    """Of `top_k_layers`."""
    batch_tokens: int = 4096
    """Tokens per micro-batch; memory, not results, depends on it."""


class ModelSettings(Settings, frozen=True, kw_only=True):
    """The model to start from, and how it is trained."""

    name: str = "tiny"
    """`tiny` (a small Llama from scratch), `smollm2`, a model folder, or `hub:ORG/NAME`."""
    hidden: int = 128
    """Of `tiny`, as the next five."""
    layers: int = 3
    heads: int = 2
    kv_heads: int = 2
    intermediate: int = 384
    vocab_size: int = 2048
    max_context: int = 1024
    """Window in tokens: of `tiny`, and at most this much is used of other models."""
    learning: LearningSettings = LearningSettings()


def load_settings(
    kind: type[S],
    section: str,
    *,
    recipe: str | Path | None = None,
    flags: Mapping[str, object] | None = None,
    overrides: Sequence[str] = (),
) -> S:
    """Return settings: defaults, then the recipe's section, then flags, then `key=value` texts.

    `flags` maps dotted keys to values; None values are left out, dicts are merged.
    """
    found = load_config(Recipe, recipe) if recipe is not None else Recipe()
    data: dict[str, Any] = dict(getattr(found, section))
    build_config(kind, data)  # a mistake in the recipe is named before flags hide it
    for key, value in (flags or {}).items():
        if value is not None:
            _put(data, key.split("."), value)
    return override(build_config(kind, data), overrides)


def parse_options(texts: Sequence[str] | None) -> Options | None:
    """Return `name=value` texts as options; values are numbers and true/false where they can be.

    >>> parse_options(["size=small", "num_tasks=20"])
    {'size': 'small', 'num_tasks': 20}
    """
    if not texts:
        return None
    data: dict[str, Any] = {}
    for text in texts:
        name, found, _ = text.partition("=")
        if not found or not name.strip():
            raise ConfigError(f"option {text!r} must have the form name=value")
    holder = override(SuiteSettings(), [f"options.{text}" for text in texts])
    data.update(holder.options)
    return data


def _put(data: dict[str, Any], keys: Sequence[str], value: object) -> None:
    node = data
    for key in keys[:-1]:
        node[key] = dict(node.get(key, {}))
        node = node[key]
    if isinstance(value, dict):
        value = {**node.get(keys[-1], {}), **value}
    node[keys[-1]] = value
