"""Numbers and sentences of the page, in plain words.

Dreamt and real numbers stand side by side and are subtracted, never averaged.
"""

from __future__ import annotations

from dreamgym.report.data import STAGES, Interval, StageSuccess, Summary

NBSP = "\u00a0"
NONE = "–"

STAGE_NAMES = {
    "warm_start": "Warm start",
    "dream": "After dreaming",
    "s2r": "After S2R",
    "real_only_baseline": "Real-only baseline",
}
STAGE_NOTES = {
    "warm_start": "cloned from a few logged episodes",
    "dream": "RL inside the experience model",
    "s2r": "plus a short real phase",
    "real_only_baseline": "same start, real RL alone",
}
PHASE_NAMES = {
    "experience_model": "Logs for the experience model",
    "warm_start": "Warm start",
    "probe": "Probe during dreaming",
    "s2r": "Sim-to-real (S2R)",
    "baseline": "Real-only baseline",
}
LEVER_NAMES = {
    "free_negatives": "Free negatives: the model also learns which actions have no effect",
    "agent_logs": "Agent logs: the warm-started agent's own episodes beside the experts'",
    "ledger": "Ledger: replies that contradict known facts are asked for again",
    "verifier": "Verifier: a dreamt success must follow from the task sentence",
    "probe": "Probe: a counted look at reality, with refresh and rollback",
    "reasoning": "Reasoning: a rationale is written before the next state",
    "history": "History: the model sees past turns",
    "replay": "Replay: the model sees similar logged transitions",
    "curriculum": "Curriculum: tasks of high reward variance are varied",
}


def percent(value: float | None, decimals: int = 0) -> str:
    """Return a share as a percentage.

    A share that is neither 0 nor 1 never reads as 0 % or 100 %.

    >>> percent(0.634), percent(0.004), percent(0.985, 1), percent(None)
    ('63\\xa0%', '0.4\\xa0%', '98.5\\xa0%', '–')
    """
    if value is None:
        return NONE
    for places in (decimals, decimals + 1, decimals + 2):
        text = f"{100 * value:.{places}f}"
        if value in (0, 1) or float(text) not in (0, 100):
            break
    return f"{text}{NBSP}%"


def points(value: float) -> str:
    """Return a difference of two shares in percentage points, with its sign.

    >>> points(0.17), points(-0.02)
    ('+17 points', '−2 points')
    """
    rounded = round(100 * value)
    sign = "+" if rounded > 0 else "−" if rounded < 0 else ""
    return f"{sign}{abs(rounded)} point{'' if abs(rounded) == 1 else 's'}"


def interval(bounds: Interval | None, decimals: int = 0) -> str:
    """Return an interval of shares: `59–67 %`."""
    if bounds is None:
        return NONE
    low, high = (f"{100 * bound:.{decimals}f}" for bound in bounds)
    return f"{low}–{high}{NBSP}%"


def count(value: float | None) -> str:
    """Return a whole number with thousands separated: `8,000`."""
    return NONE if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Return a duration in the units a person would use.

    >>> duration(3.14), duration(612.3), duration(7384), duration(None)
    ('3.1 s', '10 min 12 s', '2 h 3 min', '–')
    """
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def headline(summary: Summary) -> list[str]:
    """Return the result in sentences; empty before the first real evaluation."""
    measured = {
        name: stage
        for name in STAGES
        if (stage := summary.real_success.get(name)) and stage.sampled is not None
    }
    sentences = []
    if path := [name for name in STAGES[:3] if name in measured]:
        sentences.append(_path_sentence(summary, measured, path))
    if {"warm_start", "dream"} <= measured.keys():
        sentences.append(
            _overlap_sentence(
                "before and after dreaming", measured["warm_start"], measured["dream"]
            )
        )
    if "real_only_baseline" in measured:
        sentences.append(_baseline_sentence(summary, measured["real_only_baseline"]))
        if "s2r" in measured:
            sentences.append(
                _overlap_sentence(
                    "of S2R and this baseline", measured["s2r"], measured["real_only_baseline"]
                )
            )
    return [sentence for sentence in sentences if sentence]


def _path_sentence(summary: Summary, measured: dict[str, StageSuccess], path: list[str]) -> str:
    values = {name: percent(measured[name].sampled) for name in path}
    spent = summary.real_transitions
    probed = f", {count(spent['probe'])} seen by the probe" if spent.get("probe") else ""
    words = {
        "warm_start": "{} (warm start)",
        "dream": f"{{}} after dreaming (0 real transitions in RL{probed})",
        "s2r": "{} after S2R"
        + (f" ({count(spent['s2r'])} real transitions)" if spent.get("s2r") else ""),
    }
    parts = [words[name].format(values[name]) for name in path]
    sizes = {measured[name].n for name in path if measured[name].n is not None}
    games = f"n={count(sizes.pop())} games" if len(sizes) == 1 else "games"
    where = f"On {games} in rooms never seen, sampled success "
    if len(parts) == 1:
        return f"{where}is {parts[0]}."
    return f"{where}went from {parts[0]} to {' and '.join(parts[1:])}."


def _overlap_sentence(pair: str, first: StageSuccess, second: StageSuccess) -> str:
    one, two = first.ci95, second.ci95
    if one is None or two is None:
        return ""
    if one[1] < two[0] or two[1] < one[0]:
        return f"The 95{NBSP}% intervals {pair} do not overlap."
    return (
        f"The 95{NBSP}% intervals {pair} overlap: this run alone does not settle "
        "whether they differ."
    )


def _baseline_sentence(summary: Summary, stage: StageSuccess) -> str:
    spent = summary.real_transitions.get("baseline")
    size = f" ({count(spent)} real transitions)" if spent else ""
    return f"RL on real transitions alone{size} reached {percent(stage.sampled)}."


def gap_sentence(summary: Summary) -> str:
    """Say how far the dream's own success is from the real one; empty when one is missing."""
    stage = summary.real_success.get("dream")
    dreamt = summary.dream.final_success
    if dreamt is None or stage is None or stage.sampled is None:
        return ""
    return (
        f"At the end the dream claimed {percent(dreamt)} success; the same policy reached "
        f"{percent(stage.sampled)} in the real environment, a gap of "
        f"{points(dreamt - stage.sampled)}. The two are never averaged: the dream's number is "
        "measured on training tasks by the model itself, and only the real one counts."
    )


def collapse_sentence(summary: Summary) -> str:
    """Say what became of the ungrounded run; empty when it was not run."""
    naive = summary.naive_run
    if naive is None:
        return ""
    dreamt = [value for value in naive.dream_success if value is not None]
    real = naive.final_real
    if real is None and naive.real_success:
        real = naive.real_success[-1][1]
    if not dreamt or real is None:
        return ""
    length = naive.iterations or len(naive.dream_success)
    return (
        f"Without grounding, after {length} iterations the dream claimed {percent(dreamt[-1])} "
        f"success while {percent(real)} was real."
    )
