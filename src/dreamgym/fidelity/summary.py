"""Scored steps put together: the tables of the report, and the bound per policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dreamgym.fidelity.bound import Bound, bound, clustered_share
from dreamgym.fidelity.result import StepFidelity
from dreamgym.fidelity.steps import ScoredStep
from dreamgym.fidelity.tables import confusion, field_rates, rates_by, step_rates

UNVERIFIED = "all, verifier off"
"""Name of the bound without the verifier."""


def step_fidelity(steps: Sequence[ScoredStep]) -> StepFidelity:
    """Return the tables over scored steps."""
    answered = [step for step in steps if not step.is_fault]
    logged = [step for step in steps if not step.is_negative]
    return StepFidelity(
        episodes=len({step.episode_id for step in steps}),
        overall=step_rates(steps),
        valid=step_rates([s for s in steps if s.is_valid]),
        invalid=step_rates([s for s in steps if not s.is_valid]),
        rare=step_rates([s for s in steps if s.is_rare]),
        by_kind=rates_by(steps, lambda s: s.kind if s.is_valid else f"{s.kind}/none"),
        by_depth=rates_by(logged, lambda s: depth_name(s.depth)),
        by_policy=rates_by(logged, lambda s: s.policy),
        fields=field_rates(answered),
        paid=confusion((s.says_paid, s.is_paid) for s in answered),
        done=confusion((s.says_done, s.is_done) for s in answered),
        success=confusion((s.says_success, s.is_success) for s in answered),
        verified=confusion((s.verified_success, s.is_success) for s in answered),
    )


def depth_name(depth: int) -> str:
    """Return the band a 0-based depth falls into, worded so that bands sort by depth.

    >>> [depth_name(depth) for depth in (0, 5, 12, 60)]
    ['01-05', '06-10', '11-20', '21 and more']
    """
    for low, high in ((1, 5), (6, 10), (11, 20)):
        if depth < high:
            return f"{low:02d}-{high:02d}"
    return "21 and more"


def bounds(steps: Iterable[ScoredStep], *, horizon: int) -> dict[str, Bound]:
    """Return the bound per policy and over all logged steps; impossible actions nobody took.

    With the verifier's verdicts, as a dream runs by default, and once without.
    """
    logged = [step for step in steps if not step.is_negative]
    groups = {"all": logged, UNVERIFIED: logged}
    for name in sorted({step.policy for step in logged}):
        groups[name] = [step for step in logged if step.policy == name]
    return {
        name: bound(
            clustered_share([(s.episode_id, _paid_wrong(s, name)) for s in found]),
            clustered_share([(s.episode_id, float(_moved_wrong(s, name))) for s in found]),
            horizon=horizon,
        )
        for name, found in groups.items()
        if found
    }


def _paid_wrong(step: ScoredStep, name: str) -> float:
    return step.reward_error if name == UNVERIFIED else step.verified_reward_error


def _moved_wrong(step: ScoredStep, name: str) -> bool:
    """Return whether the transition is wrong: another canonical state, or another end."""
    done = step.says_done if name == UNVERIFIED else step.verified_done
    return step.is_fault or not step.state or done != step.is_done
