"""Plots over training: the dream against reality, the collapse, the curriculum, the losses.

`figure` and `axes` arguments are matplotlib objects, which have no types here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from dreamgym.report.data import Metrics, NaiveRun, Point
from dreamgym.report.svg import DREAM, INK, OTHER, REAL, WARN, render, share_axis
from dreamgym.report.wording import percent
from dreamgym.stats import wilson

_SMOOTH_FROM = 30
"""Points from which a curve is drawn faint with its running mean on top."""


def dreamt(metrics: Metrics) -> list[Point]:
    """Return success inside the dream per iteration."""
    return metrics.curve("dream", "dream/success", "rollout/success")


def probed(metrics: Metrics) -> list[Point]:
    """Return real success as the probe saw it."""
    return metrics.curve("dream", "probe/real_success", count="probe/n")


def dream_plot(metrics: Metrics) -> Markup | None:
    """Draw success in the dream and, where the probe looked, real success with intervals."""
    dream, real = dreamt(metrics), probed(metrics)
    if not dream and not real:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        _line(axes, dream, DREAM, "success in the dream")
        _real_points(axes, real)
        _share_frame(axes)
        _legend(axes)

    alt = f"Success over dream training. Dream: {_ends(dream)}. Real, by the probe: {_ends(real)}."
    return render(draw, alt=alt, height=2.9, name="dream")


def collapse_plots(
    metrics: Metrics, naive: NaiveRun | None, *, heading: str = "Grounded"
) -> list[tuple[str, Markup]]:
    """Draw this run and the ungrounded one on the same axes, each with its heading.

    `heading` is that of this run. Empty when there was no ungrounded run; that one alone when
    this run did not dream yet.
    """
    if naive is None or not naive.dream_success:
        return []
    dream, real = dreamt(metrics), probed(metrics)
    naive_dream = [
        Point(step, value) for step, value in enumerate(naive.dream_success) if value is not None
    ]
    naive_real = [Point(step, value) for step, value in naive.real_success if value is not None]
    replayed = [Point(step, value) for step, value in naive.replayed_success if value is not None]
    every = (*dream, *real, *naive_dream, *naive_real, *replayed)
    last = max((point.step for point in every), default=0)

    def draw_grounded(figure: Any) -> None:
        axes = figure.subplots()
        _line(axes, dream, DREAM, "dream")
        _real_points(axes, real, "real")
        _share_frame(axes, last)
        _legend(axes, columns=3)

    def draw_naive(figure: Any) -> None:
        axes = figure.subplots()
        _line(axes, naive_dream, DREAM, "dream", is_smooth=False)
        _line(axes, replayed, WARN, "dreamt successes that replay", style="--", marker="s")
        _line(axes, naive_real, REAL, "real", style=":", marker="o")
        _share_frame(axes, last)
        _legend(axes, columns=3)

    drawn = []
    if dream or real:
        alt = f"{heading}. Dream: {_ends(dream)}. Real: {_ends(real)}."
        drawn.append((heading, render(draw_grounded, alt=alt, height=2.9, name="grounded")))
    alt = (
        f"Run without grounding. Dream: {_ends(naive_dream)}. Real: {_ends(naive_real)}. "
        f"Dreamt successes that replay: {_ends(replayed)}."
    )
    drawn.append(("Without grounding", render(draw_naive, alt=alt, height=2.9, name="naive")))
    return drawn


def false_success_plot(metrics: Metrics) -> Markup | None:
    """Draw the share of replayed dreamt successes that fail in reality."""
    curve = metrics.curve("dream", "probe/false_success", count="probe/replays")
    if not curve:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        _line(axes, curve, WARN, "", marker="s")
        _bars(axes, curve, WARN)
        share_axis(axes.yaxis)
        axes.set_ylim(0, min(1.0, max(0.1, 1.25 * max(point.value for point in curve))))
        _iteration_axis(axes)

    alt = f"False-success rate over dream training: {_ends(curve)}."
    return render(draw, alt=alt, height=2.3, name="false")


def curriculum_plot(metrics: Metrics) -> Markup | None:
    """Draw the share of generated tasks and their value, and the size of the pool below."""
    share = metrics.curve("dream", "curriculum/generated_share")
    value = metrics.curve("dream", "curriculum/mean_value")
    pool = metrics.curve("dream", "curriculum/pool")
    if not share and not value and not pool:
        return None

    def draw(figure: Any) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        _line(upper, share, DREAM, "generated share")
        _line(upper, value, WARN, "mean task value", style="--")
        upper.yaxis.set_major_formatter(lambda y, _: f"{y:.2g}")
        upper.set_ylim(bottom=0)
        _legend(upper)
        _line(lower, pool, OTHER, "")
        lower.set_ylim(bottom=0)
        lower.set_ylabel("pool size")
        _iteration_axis(lower)

    alt = (
        f"Curriculum. Share of generated tasks: {_ends(share)}. Pool size: "
        + (f"{pool[0].value:.0f} to {pool[-1].value:.0f}." if pool else "no data.")
    )  # fmt: skip
    return render(draw, alt=alt, height=3.2, name="curriculum")


def real_training_plot(metrics: Metrics) -> Markup | None:
    """Draw training success of S2R and of the real-only baseline over real transitions used.

    Without a count of transitions in every row the axis is the iteration.
    """
    curves = {
        "S2R": metrics.curve("s2r", "real/success", "rollout/success"),
        "real-only baseline": metrics.curve("baseline", "real/success", "rollout/success"),
    }
    if not any(curves.values()):
        return None
    used = {
        "S2R": metrics.curve("s2r", "rollout/transitions"),
        "real-only baseline": metrics.curve("baseline", "rollout/transitions"),
    }
    is_counted = all(len(used[name]) == len(curve) for name, curve in curves.items())
    if is_counted:
        curves = {name: _by_use(curve, used[name]) for name, curve in curves.items()}

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        _line(axes, curves["S2R"], REAL, "S2R")
        _line(axes, curves["real-only baseline"], WARN, "real-only baseline", style="--")
        _share_frame(axes)
        if is_counted:
            axes.set_xlabel("real transitions used in this phase")
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        _legend(axes)

    spoken = ". ".join(f"{name}: {_ends(curve)}" for name, curve in curves.items())
    return render(draw, alt=f"Training in the real suite. {spoken}.", height=2.7, name="real")


def loss_plot(metrics: Metrics) -> Markup | None:
    """Draw the supervised losses of the experience model and the warm start."""
    fit = metrics.curve("fit", "loss/sft")
    clone = metrics.curve("warm_start", "loss/sft")
    if not fit and not clone:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        _line(axes, fit, DREAM, "experience model", is_smooth=False)
        _line(axes, clone, OTHER, "warm start", style="--", is_smooth=False)
        axes.set_ylim(bottom=0)
        _iteration_axis(axes, "step")
        axes.set_ylabel("loss (nats per token)")
        _legend(axes)

    spoken = [
        f"{name} from {curve[0].value:.3g} to {curve[-1].value:.3g}"
        for name, curve in (("experience model", fit), ("warm start", clone))
        if curve
    ]
    return render(draw, alt=f"Supervised loss: {'; '.join(spoken)}.", height=2.5, name="loss")


def health_plot(metrics: Metrics) -> Markup | None:
    """Draw how many groups taught nothing, and the policy's entropy below."""
    dead = metrics.curve("dream", "groups/dead_share")
    entropy = metrics.curve("dream", "policy/entropy")
    if not dead and not entropy:
        return None

    def draw(figure: Any) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True)
        _line(upper, dead, WARN, "")
        upper.set_ylim(0, 1)
        share_axis(upper.yaxis)
        upper.set_ylabel("dead groups")
        _line(lower, entropy, OTHER, "")
        lower.set_ylim(bottom=0)
        lower.set_ylabel("entropy (nats)")
        _iteration_axis(lower)

    alt = f"Training signal. Groups with equal rewards: {_ends(dead)}."
    return render(draw, alt=alt, height=3.1, name="health")


def _line(
    axes: Any,
    curve: Sequence[Point],
    colour: str,
    text: str,
    *,
    style: str = "-",
    marker: str = "",
    is_smooth: bool = True,
) -> None:
    """Draw a curve; a long one faintly, with its running mean."""
    if not curve:
        return
    steps = [point.step for point in curve]
    values = [point.value for point in curve]
    if len(curve) >= _SMOOTH_FROM and is_smooth and not marker:
        axes.plot(steps, values, color=colour, linewidth=0.9, alpha=0.35)
        values = running_mean(values)
    if len(curve) == 1:
        marker = marker or "o"
    axes.plot(
        steps, values, style, color=colour, linewidth=1.9, label=text or None, marker=marker,
        markersize=4.5,
    )  # fmt: skip


def running_mean(values: Sequence[float]) -> list[float]:
    """Return the centred mean over a window of about an eighth of the curve.

    Towards the ends the window shrinks on both sides, so that the first and the last value stay
    what they were.
    """
    means = []
    for index in range(len(values)):
        half = min(max(1, len(values) // 16), index, len(values) - 1 - index)
        window = values[index - half : index + half + 1]
        means.append(sum(window) / len(window))
    return means


def _real_points(axes: Any, curve: Sequence[Point], text: str = "real success (probe)") -> None:
    if curve:
        _bars(axes, curve, REAL)
        axes.plot(
            [point.step for point in curve], [point.value for point in curve], "o",
            color=REAL, markersize=6, label=text, clip_on=False, zorder=3,
        )  # fmt: skip


def _bars(axes: Any, curve: Sequence[Point], colour: str) -> None:
    """Draw the 95 % Wilson interval of every point whose number of trials is known."""
    for point in curve:
        if point.n:
            low, high = wilson(round(point.value * point.n), point.n)
            axes.plot([point.step] * 2, [low, high], color=colour, linewidth=1.3)


def _share_frame(axes: Any, last: float | None = None) -> None:
    axes.set_ylim(0, 1)
    share_axis(axes.yaxis)
    _iteration_axis(axes)
    if last is not None:
        axes.set_xlim(-0.02 * max(last, 1), 1.02 * max(last, 1))


def _iteration_axis(axes: Any, text: str = "iteration") -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.set_xlabel(text)


def _legend(axes: Any, columns: int = 2) -> None:
    """Put the legend above the axes, where no curve runs."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, borderaxespad=0.2,
            handlelength=1.6, columnspacing=1.2, labelcolor=INK,
        )  # fmt: skip


def _by_use(curve: Sequence[Point], used: Sequence[Point]) -> list[Point]:
    totals = accumulate(point.value for point in used)
    return [Point(total, point.value) for total, point in zip(totals, curve, strict=True)]


def _ends(curve: Sequence[Point]) -> str:
    if not curve:
        return "no data"
    return f"{percent(curve[0].value)} at first, {percent(curve[-1].value)} at the end"
