"""What the numbers mean, in plain words; every sentence carries the number it rests on."""

from __future__ import annotations

from dreamgym.fidelity.result import Fidelity
from dreamgym.fidelity.tables import Consistency
from dreamgym.report.wording import interval, percent
from dreamgym.stats import Rate

STEP_BAR = 0.97
"""Share of right next states above which single steps are called reliable."""
FALSE_SUCCESS_BAR = 0.01
CONSISTENCY_BAR = 0.9
ECE_BAR = 0.05
RANK_BAR = 0.8
FEW = 30
"""Below so many cases a share says little, and the sentence says so."""


def verdict(result: Fidelity) -> list[str]:
    """Return what the dream can and cannot be trusted for, a sentence or two each."""
    return [
        _headline(result),
        _steps(result),
        _drift(result),
        _success(result),
        _consistency(result.free_play.agents or result.free_play.verifier_on),
        _ranks(result),
        _confidence(result),
        _bound(result),
        _repeatability(result),
        _cost(result),
    ]


def _headline(result: Fidelity) -> str:
    steps, play = result.steps, result.free_play
    main = play.agents or play.verifier_on
    good_steps = min(steps.valid.state.value, steps.invalid.state.value) >= STEP_BAR
    honest = play.verifier_on.false_success.value <= FALSE_SUCCESS_BAR
    works = main.ratio.value is not None and main.ratio.value >= CONSISTENCY_BAR
    if good_steps and honest and works:
        return (
            "This dream can be trained in: single steps, claimed successes and whole behaviours "
            "hold in reality as far as this panel can tell. Keep a real probe running, since a "
            "trained policy moves to where nothing was measured."
        )
    weak = []
    weak += [] if good_steps else ["single steps are wrong too often"]
    weak += [] if honest else ["some dreamt successes are none"]
    weak += [] if works else ["what works in the dream does not work as often in reality"]
    return (
        f"Train in this dream with care: {', and '.join(weak)}. The parts below say where; a "
        "real probe and the verifier are needed."
    )


def _steps(result: Fidelity) -> str:
    steps = result.steps
    known = percent(result.scenario_known)
    text = (
        f"One step: {_rate(steps.valid.state)} of actions with an effect and "
        f"{_rate(steps.invalid.state)} of actions without one get the right next state "
        f"({known} of the hidden facts were known)."
    )
    weakest = [(rates.exact.value, kind) for kind, rates in steps.by_kind.items() if rates.n >= FEW]
    if weakest:
        value, kind = min(weakest)
        text += f" The weakest frequent kind of action is {kind!r} with {percent(value, 1)}."
    return text


def _drift(result: Fidelity) -> str:
    drift = result.drift
    return (
        f"Left to itself along real action sequences it stays right for {drift.mean_agreed:.1f} "
        f"steps on average, and to the end in {_rate(drift.whole)} of {drift.episodes} episodes."
    )


def _success(result: Fidelity) -> str:
    play = result.free_play
    on = play.verifier_on
    text = (
        f"Success: {_rate(on.false_success)} of dreamt episodes claim a success that reality "
        f"denies with the verifier on"
    )
    if play.verifier_off is not None:
        text += f", {_rate(play.verifier_off.false_success)} with it off"
    return f"{text}; {_rate(on.missed_success)} miss one that reality grants."


def _consistency(play: Consistency) -> str:
    if play.ratio.value is None:
        return (
            "Consistency ratio (CR): not defined, since the policies never succeed in reality on "
            "these tasks."
        )
    low_high = play.ratio.ci95
    shown = f" ({low_high[0]:.2f}–{low_high[1]:.2f})" if low_high else ""
    return (
        f"Consistency ratio (CR): actions chosen in the dream succeed in reality "
        f"{play.ratio.value:.2f}{shown} times as often as the same policies do when they play "
        f"for real ({percent(play.w2r.value)} against {percent(play.real.value)}). Of the dreamt "
        f"successes {_rate(play.kept)} hold."
    )


def _ranks(result: Fidelity) -> str:
    agreement = result.ranks.agreement
    if agreement.kendall is None:
        return "Order of policies: they do not differ in one of the two worlds; nothing to compare."
    text = (
        f"Order of policies: of {agreement.num_policies} policies the dream orders "
        f"{agreement.pairs_agreeing} pairs as reality does and {agreement.pairs_reversed} the "
        f"other way round (Kendall {agreement.kendall:.2f})."
    )
    if not agreement.is_enough:
        return f"{text} That is too few policies to rely on."
    if agreement.kendall >= RANK_BAR:
        return f"{text} It can be used to choose between policies of clearly different strength."
    return f"{text} Do not choose between policies by their success in the dream."


def _confidence(result: Fidelity) -> str:
    found = result.calibration
    if found.ece is None:
        return "Confidence: the model reports no token probabilities, so none was measured."
    text = f"Confidence: expected calibration error {found.ece:.3f}"
    if found.auroc is not None:
        share = percent(found.auroc)
        text += f", and a right answer is more confident than a wrong one {share} of the time"
    if found.ece <= ECE_BAR:
        return f"{text}. It can be read as a probability."
    return f"{text}. It orders answers at best; do not read it as a probability."


def _bound(result: Fidelity) -> str:
    found = result.bounds.get("all")
    if found is None:
        return "Bound: no logged step was measured."
    errors = (
        f"reward error {percent(found.eps_reward.value, 2)}, transition error "
        f"{percent(found.eps_transition.value, 2)} per step"
    )
    if found.is_vacuous:
        return (
            f"Bound: {errors}; over {found.horizon} steps that excludes no gap at all, so the "
            "replays above are what counts."
        )
    return (
        f"Bound: {errors}; over {found.horizon} steps the success of the measured policies in "
        f"dream and reality differs by at most {percent(found.gap_outcome)} (at the upper ends "
        f"of the intervals {percent(found.gap_outcome_high)})."
    )


def _repeatability(result: Fidelity) -> str:
    found = result.repeatability
    if found.max_reward_sd == 0.0:
        return (
            f"Pinned worlds: the same actions in {found.copies} copies of one group always got "
            f"the same reward ({found.groups} groups, standard deviation 0)."
        )
    return (
        f"Pinned worlds: the same actions in copies of one group got different rewards (standard "
        f"deviation up to {found.max_reward_sd:.2f}); the group comparison of GRPO is broken."
    )


def _cost(result: Fidelity) -> str:
    even = result.break_even
    if not even.dream_steps_per_second or not even.real_steps_per_second:
        return "Speed: not measured on both sides."
    text = (
        f"Speed: {even.dream_steps_per_second:.0f} dreamt against "
        f"{even.real_steps_per_second:.0f} real steps per second here."
    )
    if even.steps_in_time is None:
        return (
            f"{text} The real environment is the faster one: dreaming saves real transitions "
            f"({even.fixed_transitions:,} were needed to make it), not time. It would save time "
            f"where a real step takes more than {even.real_seconds_needed or 0:.3f} s."
        )
    return f"{text} Dreaming has paid for its logs and fit after {even.steps_in_time:,.0f} steps."


def _rate(rate: Rate) -> str:
    few = "" if rate.n >= FEW else f", only {rate.n} cases"
    return f"{percent(rate.value, 1)} ({interval(rate.ci95)}{few})"
