"""GiGPO: GRPO's episode advantage plus one per turn, from states that several attempts met.

Turns of a group that faced the same state are compared by the return that followed them, so a
group in which every attempt succeeded still teaches which way was shorter, and a failed attempt
still gets credit for its good turns.  Source: Feng et al., arXiv 2505.10978.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from dreamgym.envs.base import StateReader
from dreamgym.envs.table import READERS, make_reader
from dreamgym.errors import ConfigError
from dreamgym.rl.advantage import Scale, group_advantages
from dreamgym.rl.anchors import Anchor, group_states
from dreamgym.rl.grpo import GRPO, GRPOConfig
from dreamgym.rl.samples import rollout_to_samples
from dreamgym.rl.turns import returns_to_go, turn_rewards
from dreamgym.types import RolloutGroup, Sample


class GiGPOConfig(GRPOConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of GiGPO beyond those of GRPO."""

    gamma: float = 0.95
    """Discount per turn of the return that follows a turn; at 1 an outcome reward is the same at
    every turn of an attempt, and only differing outcomes tell turns apart."""
    omega: float = 1.0
    """Weight of the step advantage; 0 is GRPO."""
    step_scale: Scale = "std"
    """As `scale`, within the turns that faced one state.  `mean` keeps small differences of the
    return small; `std` makes any difference a full signal."""
    anchor: Anchor = "facts"
    """What tells states apart; see `dreamgym.rl.anchors.group_states`."""
    previous: int = 0
    """Earlier states of the attempt that must be equal too."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        super().__post_init__()
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"gamma must be in [0, 1]; got {self.gamma}")
        for name in ("omega", "previous"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative; got {getattr(self, name)}")


class StepAdvantages(msgspec.Struct, frozen=True, kw_only=True):
    """Per rollout of a group, one advantage per turn."""

    advantages: tuple[tuple[float, ...], ...]
    num_anchors: int
    """States that at least two turns faced."""
    num_turns: int
    """Turns with a known return."""
    num_informative: int
    """Of those, turns whose return differs from that of another turn in the same state."""


class GiGPO(GRPO):
    """Group-in-group policy optimisation; see `GiGPOConfig`."""

    name = "gigpo"

    def __init__(
        self,
        config: GiGPOConfig | None = None,
        *,
        reader_of: Callable[[str], StateReader | None] | None = None,
    ) -> None:
        """`reader_of` gives the state reader of a suite; default: the table of environments."""
        self.config: GiGPOConfig = config or GiGPOConfig()
        super().__init__(self.config)
        self._reader_of = reader_of or _reader_of
        self._readers: dict[str, StateReader | None] = {}

    def step_advantages(self, group: RolloutGroup) -> StepAdvantages:
        """Return the advantage of every turn among the turns that faced the same state.

        A turn alone in its state, one of an unscorable rollout, and turns in a state after which
        all returns are equal get exactly 0.
        """
        paid = [turn_rewards(rollout, self.config.rewards) for rollout in group.rollouts]
        returns = [[] if p is None else returns_to_go(p, self.config.gamma) for p in paid]
        states = group_states(
            group,
            self._reader(group.task.suite),
            anchor=self.config.anchor,
            previous=self.config.previous,
        )
        places: dict[str, list[tuple[int, int]]] = {}
        for i, follows in enumerate(returns):
            for turn in range(len(follows)):
                state = states[i][turn]
                if state is not None:
                    places.setdefault(state, []).append((i, turn))
        out = [[0.0] * len(rollout.completions) for rollout in group.rollouts]
        informative = 0
        for visits in places.values():
            result = group_advantages(
                [returns[i][turn] for i, turn in visits],
                scale=self.config.step_scale,
                ddof=self.config.ddof,
                dead_tolerance=self.config.dead_tolerance,
            )
            informative += 0 if result.dead else len(visits)
            for (i, turn), advantage in zip(visits, result.advantages, strict=True):
                out[i][turn] = advantage
        return StepAdvantages(
            advantages=tuple(map(tuple, out)),
            num_anchors=sum(len(visits) > 1 for visits in places.values()),
            num_turns=sum(map(len, returns)),
            num_informative=informative,
        )

    def samples(self, groups: Sequence[RolloutGroup]) -> tuple[list[Sample], dict[str, float]]:
        """Return training samples, counts per kind of group, and how often states met."""
        samples: list[Sample] = []
        counts: Counter[str] = Counter()
        turns = informative = anchors = 0
        for group in groups:
            episode, steps = self.advantages(group), self.step_advantages(group)
            counts[f"groups/{episode.kind}"] += 1
            counts["groups/unscorable_rollouts"] += len(group.rollouts) - episode.num_scored
            turns += steps.num_turns
            informative += steps.num_informative
            anchors += steps.num_anchors
            is_dead = episode.dead and not (steps.num_informative and self.config.omega)
            counts["groups/dead_in_steps_too"] += is_dead
            if is_dead and self.config.dead_groups == "drop":
                continue
            for i, rollout in enumerate(group.rollouts):
                total = [
                    episode.advantages[i] + self.config.omega * step for step in steps.advantages[i]
                ]
                samples += rollout_to_samples(
                    rollout, total, mask_truncated=self.config.mask_truncated
                )
        metrics = {name: float(count) for name, count in sorted(counts.items())}
        metrics["gigpo/anchors"] = float(anchors)
        metrics["gigpo/informative_turns"] = informative / max(turns, 1)
        return samples, metrics

    def _reader(self, suite: str) -> StateReader | None:
        if suite not in self._readers:
            self._readers[suite] = self._reader_of(suite)
        return self._readers[suite]


def _reader_of(suite: str) -> StateReader | None:
    return make_reader(suite) if suite in READERS else None
