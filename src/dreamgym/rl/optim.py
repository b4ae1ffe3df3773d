"""Optimiser, learning-rate schedule, gradient clipping, and what to do about NaN gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec
import torch
from torch import Tensor, nn

from dreamgym.errors import ConfigError, TrainingError
from dreamgym.rl.muon import Muon
from dreamgym.rl.schedule import Schedule, decay


class OptimConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The optimiser and its schedule."""

    optimizer: Literal["adamw", "muon"] = "adamw"
    """`muon`: Muon for the hidden matrices, AdamW for everything else; for models trained from
    scratch."""
    learning_rate: float = 3e-4
    """Peak, of AdamW."""
    muon_factor: float = 10.0
    """Muon's learning rate as a multiple of `learning_rate`."""
    schedule: Schedule = "constant"
    """After the warm-up: stay, or fall to `final_fraction` of the peak at `total_steps`."""
    warmup_steps: int = 0
    total_steps: int = 0
    """Steps the schedule spans; needed unless it is constant."""
    final_fraction: float = 0.1
    weight_decay: float = 0.0
    """On matrices only, never on norms and biases."""
    beta1: float = 0.9
    beta2: float = 0.99
    """Short runs: 0.999 remembers the first noisy gradients for too long."""
    max_grad_norm: float = 1.0
    max_bad_steps: int = 5
    """Steps in a row with NaN or infinite gradients after which training stops."""

    def __post_init__(self) -> None:
        """Refuse schedules that do not make sense."""
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate must be positive; got {self.learning_rate}")
        if not self.max_grad_norm > 0:
            raise ConfigError(f"max_grad_norm must be positive; got {self.max_grad_norm}")
        if not 0 <= self.final_fraction <= 1:
            raise ConfigError(f"final_fraction must be in [0, 1]; got {self.final_fraction}")
        if self.schedule != "constant" and self.total_steps <= self.warmup_steps:
            raise ConfigError(
                f"schedule {self.schedule!r} needs total_steps above warmup_steps; got "
                f"total_steps={self.total_steps}, warmup_steps={self.warmup_steps}"
            )


def rate_at(config: OptimConfig, step: int) -> float:
    """Return the learning rate of a 0-based step.

    Linear warm-up reaches the peak at step `warmup_steps`; past `total_steps` it stays at the end
    value.
    """
    peak = config.learning_rate
    if step < config.warmup_steps:
        return peak * (step + 1) / (config.warmup_steps + 1)
    if config.schedule == "constant":
        return peak
    span = config.total_steps - config.warmup_steps
    progress = (step - config.warmup_steps) / span
    return peak * decay(config.schedule, progress, config.final_fraction)


_STATE_KEYS = (("step", "exp_avg", "exp_avg_sq"), ("momentum",))


def _is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    outside = ("embed", "lm_head", "value_head", "wte", "wpe")
    return parameter.ndim == 2 and not any(part in name for part in outside)


class Stepper:
    """Takes optimiser steps on accumulated gradients; skips and counts broken ones."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        config: OptimConfig,
        *,
        rate_factors: Mapping[str, float] | None = None,
    ) -> None:
        self.config = config
        self.step_count = 0
        """Steps tried, skipped ones included: the clock of the schedule."""
        self.skipped = 0
        self.bad_in_a_row = 0
        self._parameters = dict(parameters)
        factors = rate_factors or {}
        groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
        hidden: list[nn.Parameter] = []
        for name, parameter in self._parameters.items():
            if config.optimizer == "muon" and _is_hidden_matrix(name, parameter):
                hidden.append(parameter)
                continue
            key = (factors.get(name, 1.0), parameter.ndim >= 2)
            groups.setdefault(key, []).append(parameter)
        if not groups:  # all are Muon's, adapters for example; AdamW wants a group nevertheless
            groups[1.0, False] = []
        self._adam = torch.optim.AdamW(
            [
                {"params": members, "weight_decay": config.weight_decay * decays, "factor": factor}
                for (factor, decays), members in groups.items()
            ],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            fused=True,
        )
        self._muon = Muon([{"params": hidden}], weight_decay=config.weight_decay)
        self._optimizers: tuple[torch.optim.Optimizer, ...] = (self._adam, self._muon)
        self._muon.param_groups[0]["factor"] = config.muon_factor

    def zero(self) -> None:
        """Forget accumulated gradients."""
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def step(self, *, learning_rate: float | None = None) -> float:
        """Clip, step and forget the gradients; returns their norm before clipping.

        A NaN or infinite norm skips the step (parameters and moments stay as they are); too many
        in a row raise `TrainingError`.
        """
        rate = rate_at(self.config, self.step_count) if learning_rate is None else learning_rate
        norm = float(nn.utils.clip_grad_norm_(self._parameters.values(), self.config.max_grad_norm))
        self.step_count += 1
        if math.isfinite(norm):
            self.bad_in_a_row = 0
            for optimizer in self._optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = rate * group["factor"]
                optimizer.step()
        else:
            self.skipped += 1
            self.bad_in_a_row += 1
        self.zero()
        if self.bad_in_a_row >= self.config.max_bad_steps:
            raise TrainingError(
                f"gradients were NaN or infinite {self.bad_in_a_row} steps in a row (step "
                f"{self.step_count}); lower learning_rate (now {rate:g}) or check the data"
            )
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """Return the moments by parameter name and the counters of AdamW."""
        out: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            for optimizer in self._optimizers:
                for key, value in optimizer.state.get(parameter, {}).items():
                    out[f"{name}/{key}"] = value
        return out

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned; parameters without an entry start afresh."""
        for optimizer, keys in zip(self._optimizers, _STATE_KEYS, strict=True):
            optimizer.state.clear()
            for name, parameter in self._parameters.items():
                found = {
                    k: tensors[f"{name}/{k}"].clone() for k in keys if f"{name}/{k}" in tensors
                }
                if found:
                    optimizer.state[parameter] = found

    def counters(self) -> dict[str, int]:
        """Return step counters for a checkpoint."""
        return {
            "step_count": self.step_count,
            "skipped": self.skipped,
            "bad_in_a_row": self.bad_in_a_row,
        }

    def load_counters(self, counters: Mapping[str, int]) -> None:
        """Restore what `counters` returned."""
        self.step_count = counters["step_count"]
        self.skipped = counters["skipped"]
        self.bad_in_a_row = counters["bad_in_a_row"]
