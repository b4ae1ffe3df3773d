"""`fidelity.json`: everything that was measured, with the numbers it rests on."""

from __future__ import annotations

import msgspec

from dreamgym.fidelity.bound import Bound
from dreamgym.fidelity.calibration import Calibration
from dreamgym.fidelity.costs import BreakEven, StepCost
from dreamgym.fidelity.rank import RankAgreement
from dreamgym.fidelity.tables import Confusion, Consistency, DriftPoint, Paired, StepRates
from dreamgym.stats import Rate

SCHEMA_VERSION = 1


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """Real transitions, all counted."""

    panel: int
    """Played or read for the held-out panel, surveys included."""
    replays: int
    """Replays of dreamt episodes."""
    fitted_on: int
    """In the logs the experience model was made from."""


class StepFidelity(msgspec.Struct, frozen=True, kw_only=True):
    """Teacher-forced accuracy: one answer per held-out real step."""

    episodes: int
    overall: StepRates
    valid: StepRates
    """Logged actions that had an effect."""
    invalid: StepRates
    """Logged actions without effect, and impossible ones."""
    rare: StepRates
    """Actions of rare kinds."""
    by_kind: dict[str, StepRates]
    by_depth: dict[str, StepRates]
    by_policy: dict[str, StepRates]
    fields: dict[str, Rate]
    """Kind of fact -> share of the changed ones that came out right."""
    paid: Confusion
    """A reward above 0: predicted against real."""
    done: Confusion
    success: Confusion
    """Success as the model claims it, verifier off."""
    verified: Confusion
    """Success after the verifier."""


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """Free-running dreams along real action sequences."""

    episodes: int
    faults: int
    curve: list[DriftPoint]
    whole: Rate
    """Episodes that agree from the first step to the last."""
    mean_agreed: float
    """Steps until the first disagreement, on average."""
    success: Confusion
    """Success of the dreamt episode against the real one."""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is never won in the dream and often in reality: the dream's fault, not hard."""

    task_id: str
    kind: str
    real: float
    """Real success of the policies that all failed in the dream."""
    policies: int


class FreePlayResult(msgspec.Struct, frozen=True, kw_only=True):
    """Policies playing in the dream, and their actions replayed for real."""

    verifier_on: Consistency
    verifier_off: Consistency | None
    """The same with the verifier switched off; None when it was not measured."""
    agents: Consistency | None
    """Of trained agents alone: they read what the dream answers, scripted policies may not."""
    by_policy: dict[str, Consistency]
    disagreements: list[Disagreement]
    """Tasks that only the dream makes impossible."""
    faults: int
    episodes: int


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in both worlds."""

    dream: Rate
    real: Rate


class Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """Policies of different strength in both worlds."""

    policies: dict[str, PolicyRow]
    agreement: RankAgreement


class AblationRow(msgspec.Struct, frozen=True, kw_only=True):
    """The model with one part off, on the same steps and tasks as the whole one."""

    means: str
    valid: StepRates
    invalid: StepRates
    consistency: Consistency
    w2r_loss: Paired | None
    """W2R success of the whole model minus this one's, over the same tasks."""
    agreement_loss: Paired | None
    """Share of dreamt episodes whose outcome reality confirms: the whole model minus this one."""
    faults: int


class Repeatability(msgspec.Struct, frozen=True, kw_only=True):
    """The same actions in every copy of a group."""

    groups: int
    copies: int
    max_reward_sd: float
    """Largest standard deviation of the reward within a group; pinned worlds give 0."""
    identical: int
    """Groups whose copies read the same observations throughout."""
    faults: int


class Fidelity(msgspec.Struct, frozen=True, kw_only=True):
    """The whole measurement."""

    schema_version: int = SCHEMA_VERSION
    subject: str
    suite: str
    split: str
    seed: int
    tasks: int
    real_transitions: Accounts
    scenario_known: float
    """Mean share of a task's hidden facts that the logs reveal."""
    steps: StepFidelity
    drift: Drift
    free_play: FreePlayResult
    calibration: Calibration
    ranks: Ranks
    bounds: dict[str, Bound]
    """Policy -> its bound; "all" for all measured steps."""
    ablations: dict[str, AblationRow]
    """"full" is the whole model on the same, smaller sample."""
    repeatability: Repeatability
    dream_cost: StepCost
    real_cost: StepCost
    break_even: BreakEven
    verdict: list[str]
    """What the dream can be trusted for, in plain words."""
