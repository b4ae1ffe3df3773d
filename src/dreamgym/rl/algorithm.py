"""The seam between the training loop and an RL algorithm.

Adding an algorithm: one file with one frozen config struct and a class with `update`, and one
line in `ALGORITHMS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dreamgym.errors import ConfigError, unknown_name
from dreamgym.rl.gigpo import GiGPO, GiGPOConfig
from dreamgym.rl.grpo import GRPO, GRPOConfig
from dreamgym.rl.metrics import UpdateMetrics
from dreamgym.rl.ppo import PPO, PPOConfig
from dreamgym.types import RolloutGroup

if TYPE_CHECKING:
    from dreamgym.rl.learner import Learner


class Algorithm(Protocol):
    """Turns groups of rollouts into an update of the learner."""

    name: str
    needs_values: bool
    """Whether the learner must have a value head."""

    def update(self, learner: Learner, groups: Sequence[RolloutGroup]) -> UpdateMetrics:
        """Learn from groups; no informative rollout means no step and `num_samples` 0."""
        ...


ALGORITHMS: dict[str, tuple[type[msgspec.Struct], type[Any]]] = {
    "gigpo": (GiGPOConfig, GiGPO),
    "grpo": (GRPOConfig, GRPO),
    "ppo": (PPOConfig, PPO),
}
"""Name -> (config struct, class built from it).  Any: the classes share only the protocol."""


def make_algorithm(name: str, **options: object) -> Algorithm:
    """Return an algorithm by name; unknown names and options raise with the nearest valid one.

    >>> make_algorithm("grpo", scale="mean").name
    'grpo'
    """
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    config_type, build = ALGORITHMS[name]
    known = config_type.__struct_fields__
    for option in options:
        if option not in known:
            raise unknown_name(f"{name} option", option, known)
    try:
        config = msgspec.convert(options, config_type)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}") from error
    algorithm: Algorithm = build(config)
    return algorithm
