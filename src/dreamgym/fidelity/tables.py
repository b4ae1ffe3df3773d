"""From scored steps and replays to the tables of the report: pure functions of what was counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from dreamgym.fidelity.free import DriftRow, FreePlay, Replayed
from dreamgym.fidelity.steps import ScoredStep
from dreamgym.seeds import derive_random
from dreamgym.stats import Rate

T = TypeVar("T")

RESAMPLES = 1000
"""Bootstrap resamples over tasks."""
FEW_FACTS = 20
"""Kinds of fact that changed fewer times share one row."""


class StepRates(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy on a set of steps; unusable answers count as wrong."""

    n: int
    exact: Rate
    """Next state, reward and end all right, as the model gives them."""
    verified: Rate
    """The same after the verifier, which is what a dream goes on with."""
    state: Rate
    """Canonical next state right."""
    text: Rate
    """Next state right word for word."""
    reward: Rate
    done: Rate
    first_try: Rate
    """Answered without being asked again."""
    faults: int


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """A yes/no prediction against the truth, faults left out."""

    true_yes: int
    """Said yes, was yes."""
    false_yes: int
    """Said yes, was no."""
    missed: int
    """Said no, was yes."""
    true_no: int

    @property
    def false_rate(self) -> Rate:
        """Share of "no" cases that were called yes."""
        return Rate.of(self.false_yes, self.false_yes + self.true_no)

    @property
    def missed_rate(self) -> Rate:
        """Share of "yes" cases that were called no."""
        return Rate.of(self.missed, self.missed + self.true_yes)


class DriftPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Free-running agreement at one depth."""

    depth: int
    """1-based: after so many steps."""
    agrees: Rate
    """Of the dreams still running in both worlds: this step equal."""
    unbroken: Rate
    """Of the episodes this long: every step so far equal."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio of two success rates over the same tasks, with a bootstrap interval over tasks."""

    value: float | None
    """None where the lower rate is 0 and the ratio does not exist."""
    ci95: tuple[float, float] | None
    n: int
    """Episodes."""


class Consistency(msgspec.Struct, frozen=True, kw_only=True):
    """What dreamt episodes are worth in reality."""

    n: int
    """Dreamt episodes, faults included."""
    faults: int
    """Episodes in which the dream gave no usable answer; only `w2r` and `ratio` count them."""
    dream: Rate
    """Success in the dream."""
    w2r: Rate
    """Success of the same actions replayed in reality; a fault won nothing."""
    real: Rate
    """Success of the same policies playing in reality, on the same tasks."""
    ratio: Ratio
    """CR: W2R success / real success. 1: what works in the dream works outside."""
    kept: Rate
    """Of the dreamt successes: successful when replayed. 1 - this is the false-success rate."""
    false_success: Rate
    """Of all dreamt episodes: successful in the dream and not when replayed."""
    missed_success: Rate
    """Of all dreamt episodes: successful when replayed and not in the dream."""
    outcomes: Confusion


def step_rates(steps: Sequence[ScoredStep]) -> StepRates:
    """Return the accuracy on these steps."""

    def rate(right: Callable[[ScoredStep], bool]) -> Rate:
        return Rate.of(sum(right(step) for step in steps), len(steps))

    return StepRates(
        n=len(steps),
        exact=rate(lambda s: not s.is_fault and s.exact),
        verified=rate(lambda s: s.verified_exact),
        state=rate(lambda s: s.state),
        text=rate(lambda s: s.text),
        reward=rate(lambda s: not s.is_fault and s.reward_error == 0.0),
        done=rate(lambda s: not s.is_fault and s.says_done == s.is_done),
        first_try=rate(lambda s: s.first_try),
        faults=sum(s.is_fault for s in steps),
    )


def rates_by(steps: Iterable[ScoredStep], key: Callable[[ScoredStep], str]) -> dict[str, StepRates]:
    """Return the accuracy per value of `key`, in the order of the values."""
    groups: dict[str, list[ScoredStep]] = defaultdict(list)
    for step in steps:
        groups[key(step)].append(step)
    return {name: step_rates(groups[name]) for name in sorted(groups)}


def field_rates(steps: Iterable[ScoredStep]) -> dict[str, Rate]:
    """Return per kind of fact how many of the changed ones the answers got right.

    Kinds that changed fewer than `FEW_FACTS` times are put together as `other`.
    """
    total: dict[str, int] = defaultdict(int)
    right: dict[str, int] = defaultdict(int)
    for step in steps:
        for name, (changed, agreed) in step.fields.items():
            total[name] += changed
            right[name] += agreed
    many = sorted(name for name in total if total[name] >= FEW_FACTS)
    found = {name: Rate.of(right[name], total[name]) for name in many}
    rest = [name for name in total if name not in found]
    if rest:
        found["other"] = Rate.of(sum(right[n] for n in rest), sum(total[n] for n in rest))
    return found


def confusion(pairs: Iterable[tuple[bool, bool]]) -> Confusion:
    """Return the counts of (said, was).

    >>> confusion([(True, False), (False, False)]).false_rate.value
    0.5
    """
    counts = {(said, was): 0 for said in (True, False) for was in (True, False)}
    for said, was in pairs:
        counts[bool(said), bool(was)] += 1
    return Confusion(
        true_yes=counts[True, True],
        false_yes=counts[True, False],
        missed=counts[False, True],
        true_no=counts[False, False],
    )


def drift_curve(rows: Sequence[DriftRow]) -> list[DriftPoint]:
    """Return agreement by depth, as deep as real episodes go.

    A dream that ended before the real episode did counts as broken from there on.
    """
    points = []
    for depth in range(1, max((row.steps for row in rows), default=0) + 1):
        long = [row for row in rows if row.steps >= depth]
        running = [row for row in long if len(row.agrees) >= depth]
        points.append(
            DriftPoint(
                depth=depth,
                agrees=Rate.of(sum(row.agrees[depth - 1] for row in running), len(running)),
                unbroken=Rate.of(sum(row.agreed >= depth for row in long), len(long)),
            )
        )
    return points


def consistency(
    rows: Sequence[Replayed], real: Mapping[str, Mapping[str, float]], *, seed: int
) -> Consistency:
    """Return what the replays say; `real` is policy -> task id -> real success.

    Episodes without a real counterpart of the same policy and task are left out of the ratio.
    """
    paired = [row for row in rows if row.task_id in real.get(row.policy, {})]
    won = sum(real[row.policy][row.task_id] for row in paired)
    scored = [row for row in rows if not row.is_fault]
    outcomes = confusion((row.dream_success, row.replay_success) for row in scored)
    n = len(scored)
    return Consistency(
        n=len(rows),
        faults=len(rows) - n,
        dream=Rate.of(outcomes.true_yes + outcomes.false_yes, n),
        w2r=Rate.of(outcomes.true_yes + outcomes.missed, len(rows)),
        real=Rate.of(round(won), len(paired)),
        ratio=_ratio(paired, real, seed),
        kept=Rate.of(outcomes.true_yes, outcomes.true_yes + outcomes.false_yes),
        false_success=Rate.of(outcomes.false_yes, n),
        missed_success=Rate.of(outcomes.missed, n),
        outcomes=outcomes,
    )


def success_by_policy(play: FreePlay) -> dict[str, float]:
    """Return the success of each policy in the dream; policies without an episode are left out."""
    return {
        name: sum(by_task.values()) / len(by_task)
        for name, by_task in play.dream_success.items()
        if by_task
    }


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """A difference of two success rates over the same tasks, with a bootstrap interval."""

    value: float
    ci95: tuple[float, float]
    tasks: int


def paired_difference(
    first: Sequence[Replayed],
    second: Sequence[Replayed],
    score: Callable[[Replayed], float],
    *,
    seed: int,
) -> Paired | None:
    """Return mean score of `first` minus that of `second` over the (policy, task) both have."""
    table: dict[str, list[float]] = defaultdict(list)
    others = {(row.policy, row.task_id): score(row) for row in second}
    for row in first:
        key = (row.policy, row.task_id)
        if key in others:
            table[row.task_id].append(score(row) - others[key])
    if not table:
        return None

    def mean(tasks: Sequence[str]) -> float:
        values = [value for task in tasks for value in table[task]]
        return sum(values) / len(values)

    names = sorted(table)
    return Paired(
        value=mean(names), ci95=_percentiles(_resampled(names, mean, seed)), tasks=len(names)
    )


def _ratio(rows: Sequence[Replayed], real: Mapping[str, Mapping[str, float]], seed: int) -> Ratio:
    table: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        table[row.task_id].append((float(row.replay_success), real[row.policy][row.task_id]))

    def ratio(tasks: Sequence[str]) -> float | None:
        above = sum(value for task in tasks for value, _ in table[task])
        below = sum(value for task in tasks for _, value in table[task])
        return above / below if below else None

    names = sorted(table)
    found = [value for value in _resampled(names, ratio, seed) if value is not None]
    # Where many resamples have no real success at all, an interval would pretend to know more.
    interval = _percentiles(found) if len(found) >= 0.95 * RESAMPLES else None
    return Ratio(value=ratio(names), ci95=interval, n=len(rows))


def _resampled(names: Sequence[str], statistic: Callable[[Sequence[str]], T], seed: int) -> list[T]:
    rng = derive_random(seed, "fidelity bootstrap")
    if not names:
        return []
    return [statistic(rng.choices(names, k=len(names))) for _ in range(RESAMPLES)]


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return (
        ordered[int(0.025 * (len(ordered) - 1))],
        ordered[round(0.975 * (len(ordered) - 1))],
    )
