"""Put the page together: tables and plots from `RunData`, HTML from the template.

Every text from the run passes through the template's autoescape; the only markup inserted as is
comes from our own drawings.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dreamgym.report import REPORT_NAME, curves, plots, wording
from dreamgym.report.data import STAGES, RunData, StageSuccess, Summary, load_run
from dreamgym.report.dreams import ChosenDream, remarkable_flags
from dreamgym.types import Rollout

_MAX_STEPS = 30
"""Steps of a dreamt trajectory that are shown."""
_MAX_TEXT = 1500
"""Characters of one observation or rationale that are shown."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the page: drawings with captions, or why there are none."""

    drawings: tuple[tuple[str, Markup], ...] = ()
    """(heading, drawing); the heading may be empty."""
    absent: str = "Not run yet."


def write_page(folder: Path, others: Sequence[Path]) -> Path:
    """Read the run folders, write the page beside the run's files and return its path."""
    run = load_run(folder)
    page = render_page(run, [load_run(other) for other in others])
    path = folder / REPORT_NAME
    # A reader who reloads while the page is rewritten never sees half of it.
    unfinished = path.with_suffix(".html.tmp")
    # Models do write halves of characters; such a half becomes a question mark.
    unfinished.write_text(page, encoding="utf-8", errors="replace")
    os.replace(unfinished, path)
    return path


def render_page(run: RunData, others: Sequence[RunData] = ()) -> str:
    """Return the page as HTML."""
    environment = Environment(
        loader=PackageLoader("dreamgym.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=wording.percent,
        interval=wording.interval,
        count=wording.count,
        duration=wording.duration,
    )
    summary = run.summary
    return environment.get_template("report.html.j2").render(
        run=run,
        summary=summary,
        facts=_facts(run),
        headline=wording.headline(summary),
        gap=wording.gap_sentence(summary),
        collapse=wording.collapse_sentence(summary),
        parts=_parts(run, [other.summary for other in others]),
        stage_names=wording.STAGE_NAMES,
        stage_notes=wording.STAGE_NOTES,
        stages=_measured(summary),
        kinds=_kinds(summary),
        phases=[
            (wording.PHASE_NAMES.get(name, name), used)
            for name, used in summary.real_transitions.items()
        ],
        accuracy=_accuracy_rows(summary),
        levers=[
            (wording.LEVER_NAMES.get(name, name), is_on) for name, is_on in summary.levers.items()
        ],
        dreams=[_dream(dream) for dream in run.dreams.chosen],
        runs=[run, *others] if others else [],
        ranges=_ranges([run, *others]) if others else {},
        command=_command(summary),
    )


def _facts(run: RunData) -> list[str]:
    """Return the line under the title."""
    summary = run.summary
    facts = [f"preset {summary.preset}"] if summary.preset else []
    facts += [summary.algorithm.upper()] if summary.algorithm else []
    facts += [f"seed {summary.seed}"] if summary.seed is not None else []
    if summary.wall_seconds is not None:
        facts.append(f"{wording.duration(summary.wall_seconds)} of wall-clock time")
    facts += ["no grounding"] if summary.naive else []
    return facts


def _parts(run: RunData, others: Sequence[Summary]) -> dict[str, Part]:
    """Draw every figure; one without data says why."""
    summary, metrics = run.summary, run.metrics
    collapse = curves.collapse_plots(
        metrics, summary.naive_run, heading="This run" if summary.naive else "Grounded"
    )
    return {
        "success": _part(plots.success_plot(summary, others)),
        "transitions": _part(plots.transitions_plot(summary.real_transitions)),
        "dream": _part(curves.dream_plot(metrics)),
        "collapse": Part(drawings=tuple(collapse)),
        "false": _part(curves.false_success_plot(metrics), _switched_off(summary, "probe")),
        "curriculum": _part(curves.curriculum_plot(metrics), _switched_off(summary, "curriculum")),
        "accuracy": _part(plots.accuracy_plot(summary.dream.accuracy)),
        "real": _part(curves.real_training_plot(metrics)),
        "loss": _part(curves.loss_plot(metrics)),
        "health": _part(curves.health_plot(metrics)),
        "time": _part(plots.time_plot(summary.stages)),
    }


def _part(drawing: Markup | None, absent: str = "") -> Part:
    if drawing is not None:
        return Part(drawings=(("", drawing),))
    return Part(absent=absent) if absent else Part()


def _switched_off(summary: Summary, lever: str) -> str:
    is_on = summary.levers.get(lever, True)
    return "" if is_on else f"Switched off in this run (lever {lever!r})."


def _measured(summary: Summary) -> list[tuple[str, StageSuccess | None]]:
    """Return every stage, those without a result too."""
    shown = []
    for name in STAGES:
        stage = summary.real_success.get(name)
        shown.append((name, stage if stage and stage.sampled is not None else None))
    return shown


class KindRow(msgspec.Struct, frozen=True):
    """Success on one task type per stage, as text: (sampled, greedy, n)."""

    kind: str
    cells: list[tuple[str, str, str] | None]


def _kinds(summary: Summary) -> list[KindRow]:
    stages = [summary.real_success.get(name, StageSuccess()) for name in STAGES]
    rows = []
    for kind in sorted({kind for stage in stages for kind in stage.by_kind}):
        found = [stage.by_kind.get(kind) for stage in stages]
        cells = [
            (wording.percent(one.sampled), wording.percent(one.greedy), wording.count(one.n))
            if one
            else None
            for one in found
        ]
        rows.append(KindRow(kind, cells))
    return rows


def _accuracy_rows(summary: Summary) -> list[tuple[str, list[str]]]:
    accuracy = summary.dream.accuracy
    if accuracy is None:
        return []
    return [
        (
            kind,
            [
                wording.percent(one.exact, 1),
                wording.percent(one.reward, 1),
                wording.percent(one.done, 1),
                wording.count(one.n),
            ],
        )
        for kind, one in [("all actions", accuracy.overall), *accuracy.by_kind.items()]
    ]


def _ranges(runs: Sequence[RunData]) -> dict[str, str]:
    """Return the lowest and highest sampled success of each stage over the runs."""
    ranges = {}
    for name in STAGES:
        stages = [run.summary.real_success.get(name) for run in runs]
        values = [stage.sampled for stage in stages if stage and stage.sampled is not None]
        ranges[name] = wording.interval((min(values), max(values))) if values else wording.NONE
    return ranges


class DreamStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a dreamt trajectory, cut to a readable length."""

    action: str
    thought: str
    rationale: str
    observation: str
    reward: str
    is_end: bool
    flags: tuple[str, ...]


class DreamView(msgspec.Struct, frozen=True, kw_only=True):
    """A dreamt trajectory as the template shows it."""

    title: str
    rollout: Rollout
    flags: list[str]
    first_observation: str
    steps: list[DreamStep]
    num_more: int
    reward: str


def _dream(dream: ChosenDream) -> DreamView:
    rollout = dream.rollout
    shown = rollout.transitions[:_MAX_STEPS]
    return DreamView(
        title=dream.title,
        rollout=rollout,
        flags=remarkable_flags(rollout),
        first_observation=_cut(rollout.transitions[0].observation.text),
        steps=[
            DreamStep(
                action=_cut(step.action),
                thought=_cut(step.thought),
                rationale=_cut(step.rationale),
                observation=_cut(step.next_observation.text),
                reward=_reward(step.reward),
                is_end=step.terminated,
                flags=step.flags,
            )
            for step in shown
        ],
        num_more=len(rollout.transitions) - len(shown),
        reward=_reward(rollout.reward),
    )


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} … ({len(text)} characters)"


def _reward(value: float | None) -> str:
    return "not scored" if value is None else f"{value:g}"


def _command(summary: Summary) -> str:
    """Return the command that repeats the run; empty while it is not known."""
    if not summary.preset:
        return ""
    words = ["dreamgym", "demo", "--preset", summary.preset]
    words += ["--seed", str(summary.seed)] if summary.seed is not None else []
    words += ["--algorithm", summary.algorithm] if summary.algorithm else []
    words += ["--naive"] if summary.naive else []
    return shlex.join(words)
