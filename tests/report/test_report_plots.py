"""Drawings: themed, self-contained, safe with any label, and leaving matplotlib as it was."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import matplotlib
import msgspec
import pytest
from report_run_folder import metrics as full_metrics
from report_run_folder import summary as full_summary

from dreamgym.report import curves, plots
from dreamgym.report.data import Accuracy, ActionAccuracy, Metrics, NaiveRun, StageTime, Summary
from dreamgym.report.svg import DREAM, label, render


def metrics_of(rows: list[dict[str, object]]) -> Metrics:
    read: dict[str, dict[float, dict[str, float]]] = {}
    for row in rows:
        numbers = {
            key: float(value) for key, value in row.items() if isinstance(value, int | float)
        }
        read.setdefault(str(row["stage"]), {})[numbers["step"]] = numbers
    return Metrics(read)


METRICS = metrics_of(full_metrics())
SUMMARY = msgspec.convert(full_summary(), type=Summary)


def texts(drawing: str) -> list[str]:
    """Return the texts of a drawing; fails when it is not well-formed."""
    root = ElementTree.fromstring(drawing)
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def test_a_drawing_has_theme_colours_and_no_fixed_size() -> None:
    drawing = plots.success_plot(SUMMARY)
    assert drawing is not None
    assert re.findall(r"#[0-9a-f]{6}\b", drawing) == []
    opening = drawing[: drawing.index(">")]
    assert "viewBox" in opening
    assert not re.search(r"\s(width|height)=", opening)
    assert "<style" not in drawing and "<metadata" not in drawing


def test_success_plot_says_every_stage_in_its_alternative_text() -> None:
    drawing = plots.success_plot(SUMMARY)
    assert drawing is not None
    spoken = ElementTree.fromstring(drawing).attrib["aria-label"].replace("\u00a0", " ")
    assert "Warm start 21 % sampled, interval 17–25 %, 30 % greedy" in spoken
    assert "After S2R 71 %" in spoken


@pytest.mark.parametrize(
    "kind", ["<script>x</script>", "$x_", "a & b", "漢\x00字", "l\nm", "a\ud83d"]
)
def test_sec_08_any_action_kind_is_a_harmless_label(kind: str) -> None:
    accuracy = Accuracy(by_kind={kind: ActionAccuracy(exact=0.9, n=10)})
    drawing = plots.accuracy_plot(accuracy)
    assert drawing is not None
    assert "<script" not in drawing
    clean = re.sub(r"[\x00-\x1f]", " ", kind).replace("\ud83d", "?")
    assert clean in texts(drawing)


def test_a_long_label_is_cut() -> None:
    assert label("a" * 50, 10) == "aaaaaaaaa…"


def test_drawing_leaves_the_settings_of_matplotlib_alone() -> None:
    before = dict(matplotlib.rcParams)
    plots.success_plot(SUMMARY)
    assert dict(matplotlib.rcParams) == before


def test_equal_data_gives_equal_drawings() -> None:
    assert curves.dream_plot(METRICS) == curves.dream_plot(METRICS)


def test_ids_of_two_drawings_never_meet() -> None:
    def draw(figure: Any) -> None:
        figure.subplots().plot([0, 1], [0, 1], "o-", color=DREAM)

    ids = [
        set(re.findall(r'\sid="([^"]+)"', render(draw, alt="x", height=2, name=name)))
        for name in ("one", "two")
    ]
    assert ids[0] and ids[1]
    assert not ids[0] & ids[1]


def test_without_data_there_is_no_drawing() -> None:
    empty = Metrics()
    assert plots.success_plot(Summary()) is None
    assert plots.accuracy_plot(None) is None
    assert plots.accuracy_plot(Accuracy()) is None
    assert plots.transitions_plot({}) is None
    assert plots.time_plot([]) is None
    assert curves.dream_plot(empty) is None
    assert curves.false_success_plot(empty) is None
    assert curves.curriculum_plot(empty) is None
    assert curves.real_training_plot(empty) is None
    assert curves.loss_plot(empty) is None
    assert curves.health_plot(empty) is None
    assert curves.collapse_plots(METRICS, None) == []


def test_a_single_point_and_zero_bars_can_be_drawn() -> None:
    assert curves.dream_plot(metrics_of([{"stage": "dream", "step": 0, "dream/success": 0.0}]))
    assert plots.time_plot([StageTime(name="collect", seconds=0.0)])
    assert plots.transitions_plot({"probe": 0})


def test_the_grounded_and_the_naive_run_share_their_axes() -> None:
    drawn = curves.collapse_plots(METRICS, SUMMARY.naive_run)
    assert [heading for heading, _ in drawn] == ["Grounded", "Without grounding"]
    ticks = [
        [text for text in texts(drawing) if re.fullmatch(r"\d+( %)?", text)] for _, drawing in drawn
    ]
    assert ticks[0] == ticks[1]
    assert "60" in ticks[1]


def test_the_naive_run_alone_is_drawn_alone() -> None:
    drawn = curves.collapse_plots(Metrics(), NaiveRun(dream_success=[0.2, 0.9]))
    assert [heading for heading, _ in drawn] == ["Without grounding"]


def test_real_training_is_drawn_over_transitions_only_when_all_are_counted() -> None:
    rows: list[dict[str, object]] = [
        {"stage": "s2r", "step": 0, "real/success": 0.5, "rollout/transitions": 250},
        {"stage": "s2r", "step": 1, "real/success": 0.6, "rollout/transitions": 250},
    ]
    counted = curves.real_training_plot(metrics_of(rows))
    del rows[0]["rollout/transitions"]
    uncounted = curves.real_training_plot(metrics_of(rows))
    assert counted is not None and uncounted is not None
    assert "real transitions used in this phase" in texts(counted)
    assert "iteration" in texts(uncounted)


def test_a_running_mean_keeps_the_ends_and_smooths_between() -> None:
    values = [0.0, 3.0, 0.0, 3.0, 0.0]
    assert curves.running_mean(values) == [0.0, 1.0, 2.0, 1.0, 0.0]


def test_loop_metrics_stand_in_for_dream_success() -> None:
    curve = curves.dreamt(metrics_of([{"stage": "dream", "step": 4, "rollout/success": 0.25}]))
    assert [(point.step, point.value) for point in curve] == [(4, 0.25)]
