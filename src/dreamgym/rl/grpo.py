"""GRPO: the attempts at one task instance are each other's baseline (arXiv 2402.03300)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from dreamgym.errors import ConfigError
from dreamgym.rl.advantage import GroupAdvantages, Scale, group_advantages
from dreamgym.rl.metrics import UpdateMetrics
from dreamgym.rl.samples import rollout_to_samples
from dreamgym.rl.turns import RewardSource, episode_return
from dreamgym.types import RolloutGroup, Sample

if TYPE_CHECKING:
    from dreamgym.rl.learner import Learner


class GRPOConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of GRPO; formulas in `dreamgym.rl.advantage` and `dreamgym.rl.loss`."""

    group_size: int = 8
    """Attempts per task (G), at least 2; groups may be smaller where rollouts failed."""
    rewards: RewardSource = "outcome"
    """What attempts are compared by: the reward of the episode, or the sum of its steps'."""
    scale: Scale = "std"
    ddof: int = 1
    dead_tolerance: float = 1e-6
    dead_groups: Literal["drop", "keep"] = "drop"
    """`keep` leaves groups without contrast in the batch, where only the KL term moves them."""
    mask_truncated: bool = False
    """Do not train on cut-off rollouts; their reward stays in the baseline."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregate: Literal["token_mean", "sequence_mean", "fixed"] = "token_mean"
    fixed_length: float | None = None
    ratio_level: Literal["token", "sequence"] = "token"
    correction: Literal["none", "token", "sequence"] = "none"
    correction_mode: Literal["truncate", "mask"] = "truncate"
    correction_cap: float = 2.0
    kl_coef: float = 0.0
    """Weight of the KL to the policy that training started from; 0 needs no reference."""
    kl_kind: Literal["k1", "k2", "k3"] = "k2"
    epochs: int = 1
    minibatches: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.group_size < 2:
            raise ConfigError(
                f"GRPO needs group size >= 2 (attempts are compared with each other); got "
                f"group_size={self.group_size}"
            )


class GRPO:
    """Group-relative policy optimisation; see `GRPOConfig`."""

    name = "grpo"
    needs_values = False

    def __init__(self, config: GRPOConfig | None = None) -> None:
        from dreamgym.rl.objective import ObjectiveConfig, PolicyObjective

        self.config = config or GRPOConfig()
        names = ObjectiveConfig.__struct_fields__
        shared = {k: v for k, v in msgspec.structs.asdict(self.config).items() if k in names}
        self.objective = PolicyObjective(ObjectiveConfig(**shared))

    def advantages(self, group: RolloutGroup) -> GroupAdvantages:
        """Return the advantages of a group's rollouts."""
        return group_advantages(
            [episode_return(rollout, self.config.rewards) for rollout in group.rollouts],
            scale=self.config.scale,
            ddof=self.config.ddof,
            dead_tolerance=self.config.dead_tolerance,
        )

    def samples(self, groups: Sequence[RolloutGroup]) -> tuple[list[Sample], dict[str, float]]:
        """Return training samples and counts per kind of group."""
        samples: list[Sample] = []
        counts: Counter[str] = Counter()
        for group in groups:
            result = self.advantages(group)
            counts[f"groups/{result.kind}"] += 1
            counts["groups/unscorable_rollouts"] += len(group.rollouts) - result.num_scored
            if result.dead and self.config.dead_groups == "drop":
                continue
            for rollout, advantage in zip(group.rollouts, result.advantages, strict=True):
                samples += rollout_to_samples(
                    rollout, advantage, mask_truncated=self.config.mask_truncated
                )
        return samples, {name: float(count) for name, count in sorted(counts.items())}

    def update(self, learner: Learner, groups: Sequence[RolloutGroup]) -> UpdateMetrics:
        """Take the update; a batch of dead groups is a clean no-step."""
        if self.config.kl_coef and not learner.has_reference:
            learner.freeze_reference()
        samples, counts = self.samples(groups)
        result = learner.update(
            samples,
            self.objective,
            epochs=self.config.epochs,
            minibatches=self.config.minibatches,
        )
        return msgspec.structs.replace(result, metrics={**counts, **result.metrics})
