"""Which parameters of a causal language model are trained: all, LoRA, or the top layers."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import msgspec
import torch
from torch import nn

from dreamgym.errors import ConfigError, MissingExtra
from dreamgym.seeds import derive_seed

Mode = Literal["full", "lora", "top_k_layers"]


class TrainableConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to train."""

    mode: Mode = "full"
    top_k_layers: int = 8
    """For `top_k_layers`: the last k decoder layers and what follows them (final norm, and the
    head where it does not share its matrix with the input embedding)."""
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    """Active in supervised steps only; policy updates never drop anything (the ratio would not
    start at 1)."""
    lora_targets: tuple[str, ...] = ()
    """Module names that get adapters; empty: all linear layers but the head."""
    lora_seed: int = 0
    """Of the adapters' first weights; the global generator is left as it was."""


def prepare(model: nn.Module, config: TrainableConfig) -> nn.Module:
    """Return the model with `requires_grad` set (for LoRA: wrapped with adapters by peft)."""
    if config.mode == "full":
        model.requires_grad_(True)
        return model
    if config.mode == "lora":
        return _add_lora(model, config)
    if config.mode == "top_k_layers":
        return _top_layers(model, config.top_k_layers)
    raise ConfigError(f"trainable must be full, lora or top_k_layers; got {config.mode!r}")


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return trained parameters by name, shared ones once, in the model's order."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _add_lora(model: Any, config: TrainableConfig) -> nn.Module:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise MissingExtra("peft", "train") from error
    if config.lora_rank < 1:
        raise ConfigError(f"lora_rank must be at least 1; got {config.lora_rank}")
    lora = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=list(config.lora_targets) or "all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft reads a name that transformers has renamed; nothing a user can act on
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(derive_seed("lora", config.lora_seed))
        wrapped: nn.Module = get_peft_model(model, lora)
    return wrapped


def _top_layers(model: nn.Module, k: int) -> nn.Module:
    trunk = model.base_model
    layers = _decoder_layers(trunk, int(model.config.get_text_config().num_hidden_layers))  # type: ignore[union-attr, operator]
    if not 1 <= k <= len(layers):
        raise ConfigError(f"top_k_layers must be in 1..{len(layers)} for this model; got {k}")
    model.requires_grad_(False)
    for layer in list(layers)[len(layers) - k :]:
        layer.requires_grad_(True)
    inside_layers = {id(p) for p in layers.parameters()}
    embeddings = {id(p) for p in model.get_input_embeddings().parameters()}  # type: ignore[operator]
    for parameter in model.parameters():
        if id(parameter) not in inside_layers | embeddings:
            parameter.requires_grad_(True)
    return model


def _decoder_layers(trunk: Any, count: int) -> nn.ModuleList:
    for module in trunk.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise ConfigError(
        f"no list of {count} decoder layers found in {type(trunk).__name__}; use full or lora"
    )
