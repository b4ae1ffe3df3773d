"""PPO with a value head: GAE over action tokens across turns, clipped losses (arXiv 1707.06347).

Works with groups of any size, 1 included: the baseline is the value head, not the group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from dreamgym.errors import ConfigError
from dreamgym.rl.metrics import UpdateMetrics
from dreamgym.rl.samples import attach_gae, rollout_to_samples
from dreamgym.types import Rollout, RolloutGroup, Sample, StopReason

if TYPE_CHECKING:
    from dreamgym.rl.learner import Learner


class PPOConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of PPO; formulas in `dreamgym.rl.advantage` and `dreamgym.rl.loss`."""

    gamma: float = 1.0
    """Discount per *token*; below 1 it mostly punishes long answers."""
    lam: float = 1.0
    """GAE's lambda per token: 1 is return minus value, lower trusts the value head more."""
    bootstrap_stops: tuple[StopReason, ...] = (StopReason.CONTEXT, StopReason.BUDGET)
    """Stops that are truncation: the value stands for what would have followed.  The turn limit
    is part of the task (the prompt shows the count) and counts as an end: bootstrapping it where
    failing means running out of turns would leave no failure to learn from."""
    whiten: bool = True
    """Scale advantages to mean 0, standard deviation 1 over the sampled tokens of the update."""
    mask_truncated: bool = False
    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregate: Literal["token_mean", "sequence_mean", "fixed"] = "token_mean"
    fixed_length: float | None = None
    correction: Literal["none", "token", "sequence"] = "none"
    correction_mode: Literal["truncate", "mask"] = "truncate"
    correction_cap: float = 2.0
    value_coef: float = 0.5
    value_clip: float | None = 0.2
    kl_coef: float = 0.0
    kl_in: Literal["reward", "loss"] = "reward"
    """`reward` subtracts kl_coef * k1 from each token's reward; `loss` adds `kl_kind`."""
    kl_kind: Literal["k1", "k2", "k3"] = "k2"
    epochs: int = 2
    minibatches: int = 2

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must be in [0, 1]; got {getattr(self, name)}")
        if not self.value_coef > 0:
            raise ConfigError(
                f"value_coef must be positive (PPO's baseline is learned); got {self.value_coef}"
            )


class PPO:
    """Proximal policy optimisation; see `PPOConfig`."""

    name = "ppo"
    needs_values = True

    def __init__(self, config: PPOConfig | None = None) -> None:
        from dreamgym.rl.objective import ObjectiveConfig, PolicyObjective

        self.config = config or PPOConfig()
        names = ObjectiveConfig.__struct_fields__
        shared = {k: v for k, v in msgspec.structs.asdict(self.config).items() if k in names}
        if self.config.kl_in == "reward":
            shared["kl_coef"] = 0.0
        self.objective = PolicyObjective(ObjectiveConfig(**shared))

    def samples(
        self, learner: Learner, groups: Sequence[RolloutGroup]
    ) -> tuple[list[Sample], dict[str, float]]:
        """Return samples with values, returns and advantages, and what they are made of."""
        rollouts = [r for group in groups for r in group.rollouts]
        parts = [
            rollout_to_samples(r, 0.0, mask_truncated=self.config.mask_truncated) for r in rollouts
        ]
        flat = [sample for part in parts for sample in part]
        values = learner.values(flat)
        penalties = self._penalties(learner, flat)
        out: list[Sample] = []
        start = 0
        for rollout, part in zip(rollouts, parts, strict=True):
            end = start + len(part)
            out += attach_gae(
                part,
                values[start:end],
                reward=rollout.reward or 0.0,
                gamma=self.config.gamma,
                lam=self.config.lam,
                terminated=self._is_end(rollout),
                penalties=penalties[start:end] if penalties is not None else None,
            )
            start = end
        unscorable = sum(r is None for group in groups for r in group.rewards)
        metrics = {"groups/unscorable_rollouts": float(unscorable)}
        if penalties is not None:
            tokens = sum(sum(sample.mask) for sample in flat)
            metrics["kl/reward_penalty"] = sum(map(sum, penalties)) / max(tokens, 1)
        return (whiten(out) if self.config.whiten else out), metrics

    def update(self, learner: Learner, groups: Sequence[RolloutGroup]) -> UpdateMetrics:
        """Take the update; no scorable rollout means no step."""
        if self.config.kl_coef and not learner.has_reference:
            learner.freeze_reference()
        samples, extra = self.samples(learner, groups)
        result = learner.update(
            samples,
            self.objective,
            epochs=self.config.epochs,
            minibatches=self.config.minibatches,
        )
        return msgspec.structs.replace(result, metrics={**extra, **result.metrics})

    def _is_end(self, rollout: Rollout) -> bool:
        return rollout.stop not in self.config.bootstrap_stops

    def _penalties(self, learner: Learner, samples: Sequence[Sample]) -> list[list[float]] | None:
        """Return kl_coef * k1 per sampled token, 0.0 elsewhere; None if it is not in the reward."""
        if not self.config.kl_coef or self.config.kl_in != "reward":
            return None
        reference = learner.reference_logprobs(samples)
        return [
            [
                self.config.kl_coef * (new - old) if m else 0.0
                for new, old, m in zip(sample.logprobs, row, sample.mask, strict=True)
            ]
            for sample, row in zip(samples, reference, strict=True)
        ]


def whiten(samples: Sequence[Sample], *, eps: float = 1e-8) -> list[Sample]:
    """Return samples with advantages of mean 0 and standard deviation 1 over sampled tokens."""
    numbers = [a for s in samples for a, m in zip(s.advantages, s.mask, strict=True) if m]
    if len(numbers) < 2:
        return list(samples)
    mean = math.fsum(numbers) / len(numbers)
    variance = math.fsum((a - mean) ** 2 for a in numbers) / (len(numbers) - 1)
    scale = 1.0 / (math.sqrt(variance) + eps)
    return [
        msgspec.structs.replace(
            s,
            advantages=tuple(
                (a - mean) * scale if m else 0.0 for a, m in zip(s.advantages, s.mask, strict=True)
            ),
        )
        for s in samples
    ]
