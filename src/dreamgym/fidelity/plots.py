"""Plots of a fidelity report; `figure` arguments are matplotlib figures, which have no types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from dreamgym.fidelity.calibration import Calibration
from dreamgym.fidelity.result import AblationRow, PolicyRow
from dreamgym.fidelity.tables import DriftPoint, StepRates
from dreamgym.fidelity.wording import STEP_BAR
from dreamgym.report.svg import DREAM, INK, LINE, MUTED, REAL, WARN, label, render, share_axis
from dreamgym.report.wording import percent
from dreamgym.stats import Rate


def kinds_plot(by_kind: Mapping[str, StepRates]) -> Markup | None:
    """Draw whole-step accuracy by kind of action, with intervals, against the bar."""
    rows = [(f"{name} ({rates.n})", rates.exact) for name, rates in by_kind.items()]
    return _rates_plot(rows, name="kinds", alt="Whole-step accuracy by kind of action")


def fields_plot(fields: Mapping[str, Rate]) -> Markup | None:
    """Draw how many of the changed facts came out right, by kind of fact."""
    rows = [(f"{name} ({rate.n})", rate) for name, rate in fields.items()]
    return _rates_plot(rows, name="fields", alt="Changed facts that came out right")


def _rates_plot(rows: Sequence[tuple[str, Rate]], *, name: str, alt: str) -> Markup | None:
    if not rows:
        return None
    lowest = min(rate.ci95[0] for _, rate in rows)
    floor = max(0.0, min(0.9, int(lowest * 10) / 10))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for row, (_, rate) in enumerate(rows):
            colour = REAL if rate.value >= STEP_BAR else WARN
            axes.plot(rate.ci95, [row, row], color=colour, linewidth=2.0, alpha=0.5)
            axes.plot(rate.value, row, "o", color=colour, markersize=5.5, clip_on=False)
        axes.axvline(STEP_BAR, color=INK, linestyle=(0, (4, 3)), linewidth=1.0)
        axes.set_yticks(range(len(rows)), [label(text, 28) for text, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        share_axis(axes.xaxis)
        axes.set_xlim(floor, 1.0)
        axes.set_xlabel(f"right (axis starts at {percent(floor)}; line: {percent(STEP_BAR)})")

    spoken = "; ".join(f"{text} {percent(rate.value, 1)}" for text, rate in rows)
    return render(draw, alt=f"{alt}: {spoken}.", height=0.7 + 0.24 * len(rows), name=name)


def drift_plot(curve: Sequence[DriftPoint]) -> Markup | None:
    """Draw free-running agreement by depth."""
    shown = [point for point in curve if point.unbroken.n]
    if not shown:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        depths = [point.depth for point in shown]
        for colour, text, rates in (
            (DREAM, "every step so far", [point.unbroken for point in shown]),
            (REAL, "this step", [point.agrees for point in shown]),
        ):
            kept = [(d, rate) for d, rate in zip(depths, rates, strict=True) if rate.n]
            axes.fill_between(
                [d for d, _ in kept],
                [rate.ci95[0] for _, rate in kept],
                [rate.ci95[1] for _, rate in kept],
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
            axes.plot(
                [d for d, _ in kept], [rate.value for _, rate in kept], color=colour, label=text
            )
        axes.set_ylim(0, 1.03)
        share_axis(axes.yaxis)
        axes.set_xlabel("steps into the episode")
        axes.legend(loc="lower left")

    last = shown[-1]
    spoken = f"after {last.depth} steps {percent(last.unbroken.value)} still right throughout"
    return render(draw, alt=f"Free-running drift: {spoken}.", height=2.6, name="drift")


def calibration_plot(found: Calibration) -> Markup | None:
    """Draw accuracy against confidence, one dot per bin of equally many answers."""
    if not found.bins:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        low = min(
            [one.confidence for one in found.bins] + [one.right.ci95[0] for one in found.bins]
        )
        axes.plot([low, 1], [low, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1.0)
        for one in found.bins:
            axes.plot([one.confidence] * 2, one.right.ci95, color=DREAM, linewidth=2.0, alpha=0.4)
            axes.plot(one.confidence, one.right.value, "o", color=DREAM, clip_on=False)
        share_axis(axes.xaxis)
        share_axis(axes.yaxis)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel("confidence of the answer")
        axes.set_ylabel("right")

    spoken = "; ".join(
        f"{percent(one.confidence, 1)} confident, {percent(one.right.value, 1)} right"
        for one in found.bins
    )
    return render(draw, alt=f"Calibration: {spoken}.", height=2.8, name="calibration")


def ranks_plot(policies: Mapping[str, PolicyRow]) -> Markup | None:
    """Draw each policy's success in the dream against its success in reality."""
    if not policies:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1.0)
        names: dict[tuple[float, float], list[str]] = defaultdict(list)
        for name, row in policies.items():
            names[row.real.value, row.dream.value].append(name)
            axes.plot(row.real.ci95, [row.dream.value] * 2, color=LINE, linewidth=2.0)
            axes.plot([row.real.value] * 2, row.dream.ci95, color=LINE, linewidth=2.0)
            axes.plot(row.real.value, row.dream.value, "o", color=DREAM, clip_on=False)
        for place, together in names.items():
            is_right = place[0] > 0.6
            axes.annotate(
                label(", ".join(together), 40),
                place,
                xytext=(-6 if is_right else 6, 5),
                textcoords="offset points",
                ha="right" if is_right else "left",
                color=INK,
                fontsize=9,
            )
        for axis in (axes.xaxis, axes.yaxis):
            share_axis(axis)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("success in reality")
        axes.set_ylabel("success in the dream")

    spoken = "; ".join(
        f"{name} {percent(row.dream.value)} dreamt, {percent(row.real.value)} real"
        for name, row in policies.items()
    )
    return render(draw, alt=f"Policies in both worlds: {spoken}.", height=3.6, name="ranks")


def ablation_plot(rows: Mapping[str, AblationRow]) -> Markup | None:
    """Draw what reality confirms of dreamt outcomes, with each part off in turn."""
    shown = [(name, row) for name, row in rows.items() if row.consistency.n]
    if not shown:
        return None

    def confirmed(row: AblationRow) -> Rate:
        outcomes = row.consistency.outcomes  # a fault confirms nothing
        return Rate.of(outcomes.true_yes + outcomes.true_no, row.consistency.n)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for place, (name, row) in enumerate(shown):
            rate = confirmed(row)
            colour = REAL if name == "full" else DREAM
            axes.plot(rate.ci95, [place, place], color=colour, linewidth=2.0, alpha=0.5)
            axes.plot(rate.value, place, "o", color=colour, clip_on=False)
        names = ["whole model" if name == "full" else f"without {name}" for name, _ in shown]
        axes.set_yticks(range(len(shown)), [label(text) for text in names])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        share_axis(axes.xaxis)
        axes.set_xlabel("dreamt outcomes that reality confirms")

    spoken = "; ".join(f"{name} {percent(confirmed(row).value)}" for name, row in shown)
    return render(
        draw, alt=f"Ablations: {spoken}.", height=0.7 + 0.3 * len(shown), name="ablations"
    )
