"""The records every part of DreamGym speaks: frozen, typed, JSON round-trip.

Nothing here computes anything beyond trivial properties; nothing here imports
another DreamGym module.  `records.py` writes these to disk, `rollout/` makes them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

SCHEMA_VERSION = 1
"""Version written into every record file; bump it when a field changes meaning."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: immutable, keyword-only, strict on unknown fields."""


class Origin(StrEnum):
    """Where a transition came from."""

    REAL = "real"
    DREAM = "dream"


class StopReason(StrEnum):
    """Why an episode ended."""

    TERMINATED = "terminated"
    """The environment reached a final state (success or failure)."""
    TURN_LIMIT = "turn_limit"
    """The step limit was reached while the agent was still acting (truncation)."""
    CONTEXT = "context"
    """The next prompt would not fit into the model's window (truncation)."""
    INVALID_LIMIT = "invalid_limit"
    """The policy produced too many invalid actions."""
    BUDGET = "budget"
    """The budget of real transitions was used up (truncation)."""
    FAULT = "fault"
    """A fault of ours (network, parser, store): never trained on, never scored."""


class Observation(Record, frozen=True, kw_only=True):
    """What the agent sees. `actions` lists admissible actions where the suite knows them."""

    text: str
    actions: tuple[str, ...] | None = None


class Scenario(Record, frozen=True, kw_only=True):
    """Everything about a task instance the agent does not see, fixed once per group.

    `facts` maps an entity to what is true of it at the start ("drawer 1" -> "closed: pen 1").
    `written` names the facts a model invented (as opposed to facts read from real logs).
    """

    first_observation: str
    facts: dict[str, str] = {}
    success_criterion: str = ""
    written: tuple[str, ...] = ()


class Task(Record, frozen=True, kw_only=True):
    """One task instance. Same id, same suite -> same task text and same first observation."""

    id: str
    suite: str
    instruction: str
    split: str = "train"
    kind: str = ""
    """Task type inside the suite, e.g. `pick_and_place_simple`."""
    room: str = ""
    """Name of the world the task plays in; tasks of one room never cross splits."""
    scenario: Scenario | None = None
    parent_id: str | None = None
    """For generated tasks: the seed task this one varies."""
    generated: bool = False


class Step(Record, frozen=True, kw_only=True):
    """What an environment returns for one action.

    `reward` None means unscorable (never 0 by default). `flags` are counted events such as
    `no_effect`, `unsupported_success`, `repaired`.
    """

    observation: Observation
    reward: float | None = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    rationale: str = ""
    confidence: float | None = None
    flags: tuple[str, ...] = ()


class Transition(Record, frozen=True, kw_only=True):
    """One (state, action) -> (next state, reward), with provenance."""

    task_id: str
    suite: str
    episode_id: str
    step: int
    """0-based index inside the episode."""
    instruction: str
    observation: Observation
    action: str
    next_observation: Observation
    reward: float | None
    terminated: bool
    truncated: bool
    success: bool
    origin: Origin
    thought: str = ""
    rationale: str = ""
    flags: tuple[str, ...] = ()


class Completion(Record, frozen=True, kw_only=True):
    """What a policy produced for one turn, exactly as sampled.

    `context_ids` are the ids the model read since its previous completion of this episode (for
    the first turn: the whole prompt).  The training sequence is the concatenation of
    `context_ids + token_ids` over turns; nothing is ever re-tokenised.  `restart` True says the
    context could not be appended (template broke the prefix property): a new sample starts here
    and `context_ids` is the complete prompt.
    Policies without a language model leave the id lists empty.
    """

    text: str
    context_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Log-probability of each sampled token under the sampling distribution (nats)."""
    policy_version: int = 0
    finish: Literal["stop", "length"] = "stop"
    restart: bool = False


class Rollout(Record, frozen=True, kw_only=True):
    """One episode of one task. `reward` is the return used for training, None if unscorable."""

    id: str
    task: Task
    attempt: int
    transitions: tuple[Transition, ...]
    completions: tuple[Completion, ...] = ()
    turns: tuple[int, ...] = ()
    """Index of the completion behind each transition; empty if the i-th led to the i-th."""
    stop: StopReason
    reward: float | None
    success: bool
    error: str = ""
    policy: str = ""
    counters: dict[str, int] = {}

    @property
    def is_fault(self) -> bool:
        """True when the episode failed through our fault and must not be trained on."""
        return self.stop is StopReason.FAULT


class RolloutGroup(Record, frozen=True, kw_only=True):
    """The attempts at one task instance that GRPO compares."""

    task: Task
    rollouts: tuple[Rollout, ...]

    @property
    def rewards(self) -> list[float | None]:
        """Reward per rollout; None for faults and unscorable rollouts."""
        return [None if r.is_fault else r.reward for r in self.rollouts]


class Sample(Record, frozen=True, kw_only=True):
    """One training sequence of length T.

    `mask[t]` is 1 where `token_ids[t]` was sampled by the policy; `logprobs[t]` is its recorded
    log-probability there and 0.0 elsewhere; `advantages[t]` likewise.
    """

    token_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    policy_version: int = 0
    returns: tuple[float, ...] = ()
    """PPO only: value targets at action tokens, 0.0 elsewhere."""
    values: tuple[float, ...] = ()
    """PPO only: value estimates at rollout time."""
    rollout_id: str = ""
    weight: float = 1.0
    """Share of its trajectory, so that split trajectories keep total weight 1."""
