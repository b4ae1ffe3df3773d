"""The loss of an update step, put together from its parts.

An objective is any callable `(LossInputs) -> Objective parts`; GRPO and PPO both use
`PolicyObjective` with different options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec
from torch import Tensor

from dreamgym.errors import ConfigError
from dreamgym.rl.loss import (
    Aggregate,
    BatchTotals,
    KlKind,
    Level,
    Metrics,
    importance_weights,
    kl_penalty,
    policy_loss,
    token_weights,
    value_loss,
)


@dataclass(frozen=True)
class LossInputs:
    """One micro-batch of an update; tensors are [B, T] unless stated."""

    mask: Tensor
    logprobs: Tensor
    """Of the current parameters, with gradient."""
    entropy: Tensor
    """Entropy of the token distributions (nats), without gradient."""
    old_logprobs: Tensor
    """The denominator of the ratio."""
    sampler_logprobs: Tensor
    """As recorded while sampling."""
    advantages: Tensor
    weights: Tensor
    """[B]: share of the trajectory."""
    totals: BatchTotals
    reference_logprobs: Tensor | None = None
    values: Tensor | None = None
    old_values: Tensor | None = None
    returns: Tensor | None = None


@dataclass(frozen=True)
class LossParts:
    """Loss without the KL term, the KL term (None without one), and additive metrics."""

    main: Tensor
    kl: Tensor | None
    metrics: Metrics


class Objective(Protocol):
    """Something the learner can minimise."""

    @property
    def needs_reference(self) -> bool:
        """Whether `reference_logprobs` must be there."""
        ...

    @property
    def needs_values(self) -> bool:
        """Whether `values`, `old_values` and `returns` must be there."""
        ...

    @property
    def needs_trainer_logprobs(self) -> bool:
        """Whether `old_logprobs` are recomputed by the trainer instead of those recorded."""
        ...

    def __call__(self, batch: LossInputs) -> LossParts:
        """Return the loss of a micro-batch, normalised by `batch.totals`."""
        ...


class ObjectiveConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the policy loss; the formulas are in `dreamgym.rl.loss`."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregate: Aggregate = "token_mean"
    fixed_length: float | None = None
    """Tokens per trajectory that `aggregate = "fixed"` divides by."""
    ratio_level: Level = "token"
    correction: Literal["none", "token", "sequence"] = "none"
    """Importance weights for a sampler whose numbers differ from the trainer's.  `none` takes the
    recorded log-probabilities as the ratio's denominator."""
    correction_mode: Literal["truncate", "mask"] = "truncate"
    correction_cap: float = 2.0
    kl_coef: float = 0.0
    kl_kind: KlKind = "k2"
    """k2 has the gradient of the reverse KL; k3 (GRPO paper) that of the forward KL."""
    value_coef: float = 0.0
    value_clip: float | None = 0.2

    def __post_init__(self) -> None:
        """Refuse options that cannot work together."""
        for name in ("clip_low", "clip_high", "kl_coef", "value_coef"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative; got {getattr(self, name)}")
        if self.clip_low >= 1:
            raise ConfigError(f"clip_low must be below 1; got {self.clip_low}")
        if self.kl_coef and self.kl_kind == "k1":
            raise ConfigError(
                "kl_kind 'k1' in the loss has an expected gradient of 0 and would do nothing; "
                "use 'k2', or put k1 into the reward"
            )
        if self.aggregate == "fixed" and not (self.fixed_length and self.fixed_length > 0):
            raise ConfigError(
                f"aggregate 'fixed' needs fixed_length > 0; got fixed_length={self.fixed_length}"
            )
        if self.correction != "none" and self.correction_cap <= 0:
            raise ConfigError(f"correction_cap must be positive; got {self.correction_cap}")


class PolicyObjective:
    """Clipped surrogate + optional KL to the reference + optional clipped value loss."""

    def __init__(self, config: ObjectiveConfig | None = None) -> None:
        self.config = config or ObjectiveConfig()

    @property
    def needs_reference(self) -> bool:
        """True with a KL term."""
        return self.config.kl_coef > 0

    @property
    def needs_values(self) -> bool:
        """True with a value term."""
        return self.config.value_coef > 0

    @property
    def needs_trainer_logprobs(self) -> bool:
        """True with importance correction: the ratio is then trainer against trainer."""
        return self.config.correction != "none"

    def __call__(self, batch: LossInputs) -> LossParts:
        """Return the loss of a micro-batch; without gradient tokens it is exactly 0."""
        config = self.config
        correction, metrics = self._correction(batch)
        policy = policy_loss(
            batch.logprobs,
            batch.old_logprobs,
            batch.advantages,
            batch.mask,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            aggregate=config.aggregate,
            fixed_length=config.fixed_length,
            ratio_level=config.ratio_level,
            weights=batch.weights,
            totals=batch.totals,
            correction=correction,
        )
        mean = token_weights(batch.mask, totals=batch.totals).to(batch.logprobs.dtype)
        metrics |= policy.metrics | {"policy/entropy": (mean * batch.entropy).sum()}
        main, kl = policy.loss, None
        if self.needs_values:
            if batch.values is None or batch.old_values is None or batch.returns is None:
                raise ConfigError("value_coef > 0 needs samples with values and returns (see PPO)")
            value = value_loss(
                batch.values,
                batch.old_values,
                batch.returns,
                batch.mask,
                clip=config.value_clip,
                totals=batch.totals,
            )
            main = main + config.value_coef * value.loss
            metrics |= value.metrics
        if self.needs_reference:
            if batch.reference_logprobs is None:
                raise ConfigError("kl_coef > 0 needs a frozen reference; call freeze_reference()")
            kl, kl_metrics = self._kl(batch, mean)
            metrics |= kl_metrics
        return LossParts(main, kl, metrics)

    def _correction(self, batch: LossInputs) -> tuple[Tensor | None, Metrics]:
        config = self.config
        if config.correction == "none":
            return None, {}
        weights, limited = importance_weights(
            batch.old_logprobs,
            batch.sampler_logprobs,
            batch.mask,
            level=config.correction,
            mode=config.correction_mode,
            cap=config.correction_cap,
        )
        mean = token_weights(batch.mask, totals=batch.totals).to(weights.dtype)
        name = "masked" if config.correction_mode == "mask" else "truncated"
        return weights, {
            "correction/weight": (mean * weights).sum(),
            f"correction/{name}_fraction": (mean * limited).sum(),
        }

    def _kl(self, batch: LossInputs, mean: Tensor) -> tuple[Tensor, Metrics]:
        config = self.config
        assert batch.reference_logprobs is not None
        coefficients = token_weights(
            batch.mask,
            aggregate=config.aggregate,
            fixed_length=config.fixed_length,
            weights=batch.weights,
            totals=batch.totals,
        ).to(batch.logprobs.dtype)
        per_token = kl_penalty(
            batch.logprobs,
            batch.reference_logprobs,
            batch.mask,
            kind=config.kl_kind,
            use="loss",
        )
        value = kl_penalty(
            batch.logprobs.detach(),
            batch.reference_logprobs,
            batch.mask,
            kind="k3",
            use="metric",
        )
        kl = config.kl_coef * (coefficients * per_token).sum()
        return kl, {"kl/loss": kl.detach(), "kl/reference": (mean * value).sum()}
