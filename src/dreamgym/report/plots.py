"""Plots of measured quantities: success with intervals, accuracy, transitions, time.

`figure` arguments are matplotlib figures, which have no types here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from dreamgym.report.data import STAGES, Accuracy, StageSuccess, StageTime, Summary
from dreamgym.report.svg import (
    DREAM,
    INK,
    LINE,
    MUTED,
    OTHER,
    PAPER,
    REAL,
    WARN,
    label,
    render,
    share_axis,
)
from dreamgym.report.wording import (
    PHASE_NAMES,
    STAGE_NAMES,
    count,
    duration,
    interval,
    percent,
)

_STAGE_COLOURS = {
    "warm_start": OTHER,
    "dream": DREAM,
    "s2r": REAL,
    "real_only_baseline": WARN,
}


def success_plot(summary: Summary, others: Sequence[Summary] = ()) -> Markup | None:
    """Draw real success per stage: a dot with its interval sampled, a ring greedy.

    Small ticks show the sampled success of `others`.  None before the first evaluation.
    """
    shown = [
        (name, stage)
        for name in STAGES
        if (stage := summary.real_success.get(name)) and stage.sampled is not None
    ]
    if not shown:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for row, (name, stage) in enumerate(shown):
            _success_row(axes, row, stage, _STAGE_COLOURS[name])
            ticks = [
                other.real_success[name].sampled for other in others if name in other.real_success
            ]
            values = [value for value in ticks if value is not None]
            axes.plot(values, [row] * len(values), "|", color=MUTED, markersize=9)
        axes.set_yticks(range(len(shown)), [STAGE_NAMES[name] for name, _ in shown])
        axes.set_ylim(len(shown) - 0.45, -0.6)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        share_axis(axes.xaxis)
        axes.set_xlim(0, 1)
        axes.set_xlabel("real success")

    spoken = "; ".join(
        f"{STAGE_NAMES[name]} {percent(stage.sampled)} sampled, interval {interval(stage.ci95)}, "
        f"{percent(stage.greedy)} greedy"
        for name, stage in shown
    )
    return render(
        draw, alt=f"Real success by stage: {spoken}.", height=0.7 + 0.5 * len(shown), name="success"
    )


def _success_row(axes: Any, row: int, stage: StageSuccess, colour: str) -> None:
    sampled = stage.sampled
    assert sampled is not None, "only measured stages are drawn"
    if stage.greedy is not None:
        if stage.greedy_ci95 is not None:
            axes.plot(stage.greedy_ci95, [row + 0.2] * 2, color=colour, linewidth=1.0, alpha=0.5)
        axes.plot(
            stage.greedy, row + 0.2, "o", color=colour, markerfacecolor=PAPER, markersize=5,
            clip_on=False,
        )  # fmt: skip
    if stage.ci95 is not None:
        axes.plot(stage.ci95, [row] * 2, color=colour, linewidth=2.4, solid_capstyle="round")
    axes.plot(sampled, row, "o", color=colour, markersize=8, clip_on=False)
    # Beside the interval, on the side where there is room.
    low, high = stage.ci95 or (sampled, sampled)
    greedy = sampled if stage.greedy is None else stage.greedy
    is_right = max(high, greedy) < 0.85
    axes.annotate(
        percent(sampled), (max(high, sampled) if is_right else min(low, greedy), row),
        xytext=(8 if is_right else -8, 0), textcoords="offset points",
        ha="left" if is_right else "right", va="center", color=INK, fontweight="bold",
    )  # fmt: skip


def accuracy_plot(accuracy: Accuracy | None) -> Markup | None:
    """Draw whole-step accuracy by kind of action against the bar to reach."""
    if accuracy is None:
        return None
    shown = [(kind, one) for kind, one in accuracy.by_kind.items() if one.exact is not None]
    if accuracy.overall.exact is not None:
        shown.insert(0, ("all actions", accuracy.overall))
    if not shown:
        return None
    values = [one.exact or 0.0 for _, one in shown]
    # Most bars are near 1; starting at 0 would hide what matters, so the axis says where it starts.
    floor = max(0.0, min(0.9, int(min(values) * 10) / 10))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        colours = [REAL if value >= accuracy.bar else WARN for value in values]
        rows = range(len(shown))
        axes.hlines(rows, floor, values, color=colours, linewidth=2.2)
        axes.scatter(values, rows, color=colours, s=34, zorder=3, clip_on=False)
        axes.axvline(accuracy.bar, color=INK, linestyle=(0, (4, 3)), linewidth=1.1)
        axes.annotate(
            f"bar {percent(accuracy.bar)}", (accuracy.bar, 1), xycoords=("data", "axes fraction"),
            xytext=(-4, 3), textcoords="offset points", ha="right", color=INK, fontsize=9,
        )  # fmt: skip
        axes.set_yticks(rows, [label(kind, 24) for kind, _ in shown])
        axes.set_ylim(len(shown) - 0.4, -0.7)
        axes.grid(axis="y", visible=False)
        share_axis(axes.xaxis)
        axes.set_xlim(floor, 1.0)
        axes.set_xlabel(f"exact next state, reward and end (axis starts at {percent(floor)})")

    spoken = "; ".join(f"{kind} {percent(one.exact, 1)}" for kind, one in shown)
    return render(
        draw,
        alt=f"Accuracy of the experience model against {percent(accuracy.bar)}: {spoken}.",
        height=0.75 + 0.24 * len(shown),
        name="accuracy",
    )


def transitions_plot(transitions: Mapping[str, int]) -> Markup | None:
    """Draw the real transitions each phase used."""
    if not transitions:
        return None
    names = [PHASE_NAMES.get(name, name) for name in transitions]
    # The baseline is another arm of the comparison, not a part of the method.
    colours = [WARN if name == "baseline" else REAL for name in transitions]
    return _bars(
        names, list(transitions.values()), [count(value) for value in transitions.values()],
        colours=colours, name="transitions", alt="Real transitions by phase",
    )  # fmt: skip


def time_plot(stages: Sequence[StageTime]) -> Markup | None:
    """Draw the wall-clock time of each stage."""
    if not stages:
        return None
    return _bars(
        [stage.name.replace("_", " ") for stage in stages], [stage.seconds for stage in stages],
        [duration(stage.seconds) for stage in stages],
        colours=[OTHER] * len(stages), name="time", alt="Wall-clock time by stage",
    )  # fmt: skip


def _bars(
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    *,
    colours: Sequence[str],
    name: str,
    alt: str,
) -> Markup:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        bars = axes.barh(range(len(values)), values, height=0.62, color=colours)
        axes.bar_label(bars, labels=texts, padding=4, color=INK, fontsize=9.5)
        axes.set_yticks(range(len(names)), [label(text) for text in names])
        axes.set_ylim(len(values) - 0.4, -0.6)
        axes.set_xlim(0, max(*values, 1e-9) * 1.28)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xticks([])
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.spines["left"].set_color(LINE)

    spoken = "; ".join(f"{text}: {value}" for text, value in zip(names, texts, strict=True))
    return render(draw, alt=f"{alt}: {spoken}.", height=0.3 + 0.3 * len(values), name=name)
