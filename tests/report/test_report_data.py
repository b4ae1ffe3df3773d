"""What is read from a run folder, and what is said about what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from report_run_folder import rollout, write_dreams, write_run

from dreamgym.errors import DataError
from dreamgym.report.data import load_run
from dreamgym.report.dreams import read_dreams
from dreamgym.types import StopReason


def write_rows(folder: Path, *lines: str) -> Path:
    (folder / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_a_finished_run_is_read_without_notices(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run"))
    assert run.name == "run"
    assert run.notices == ()
    assert run.has_summary
    assert run.summary.real_success["dream"].sampled == 0.63
    assert len(run.metrics.curve("dream", "dream/success")) == 60
    assert run.versions["packages.torch"] == "2.13.0"


def test_a_missing_folder_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.*does not exist"):
        load_run(tmp_path / "nowhere")


def test_a_folder_without_run_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds none of summary\.json"):
        load_run(tmp_path)


def test_torn_and_foreign_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    good = '{"stage": "dream", "step": 0, "dream/success": 0.5}'
    run = load_run(write_rows(tmp_path, good, "[1, 2]", '{"step": 1}', '{"stage": "dream", "st'))
    assert [point.value for point in run.metrics.curve("dream", "dream/success")] == [0.5]
    assert run.notices == ("metrics.jsonl: 3 lines could not be read and were skipped.",)


def test_a_row_written_again_after_a_resume_replaces_the_first(tmp_path: Path) -> None:
    rows = [
        '{"stage": "dream", "step": 1, "dream/success": 0.5}',
        '{"stage": "dream", "step": 2, "dream/success": 0.6}',
        '{"stage": "dream", "step": 1, "dream/success": 0.7}',
    ]
    curve = load_run(write_rows(tmp_path, *rows)).metrics.curve("dream", "dream/success")
    assert [(point.step, point.value) for point in curve] == [(1, 0.7), (2, 0.6)]


def test_null_text_and_boolean_are_no_values(tmp_path: Path) -> None:
    rows = [
        '{"stage": "dream", "step": 0, "x": null}',
        '{"stage": "dream", "step": 1, "x": true}',
        '{"stage": "dream", "step": 2, "x": "0.5"}',
        '{"stage": "dream", "step": 3, "x": 0}',
    ]
    curve = load_run(write_rows(tmp_path, *rows)).metrics.curve("dream", "x")
    assert [(point.step, point.value) for point in curve] == [(3, 0)]


def test_a_point_carries_its_number_of_trials(tmp_path: Path) -> None:
    row = '{"stage": "dream", "step": 0, "probe/real_success": 0.5, "probe/n": 32}'
    metrics = load_run(write_rows(tmp_path, row)).metrics
    (point,) = metrics.curve("dream", "probe/real_success", count="probe/n")
    assert point.n == 32


def test_one_malformed_part_of_a_summary_does_not_cost_the_others(tmp_path: Path) -> None:
    content = {"seed": "zero", "preset": "tiny", "real_transitions": {"probe": 600}, "new": 1}
    (tmp_path / "summary.json").write_text(json.dumps(content), encoding="utf-8")
    run = load_run(tmp_path)
    assert run.summary.seed is None
    assert run.summary.preset == "tiny"
    assert run.summary.real_transitions == {"probe": 600}
    assert len(run.notices) == 1
    assert "seed is left out" in run.notices[0]


def test_a_torn_summary_is_named(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"seed": 0, "pre', encoding="utf-8")
    run = load_run(tmp_path)
    assert "summary.json could not be read" in run.notices[0]
    assert run.summary.preset == ""


def test_secrets_in_the_configuration_are_hidden(tmp_path: Path) -> None:
    content = {
        "model": {"api_key": "k-123", "max_tokens": 96},
        "endpoints": [{"Authorization": "Bearer abc", "url": "local"}],
    }
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    config = json.loads(load_run(tmp_path).config)
    assert config["model"] == {"api_key": "(hidden)", "max_tokens": 96}
    assert config["endpoints"] == [{"Authorization": "(hidden)", "url": "local"}]


def test_the_last_success_failure_and_generated_task_are_chosen(tmp_path: Path) -> None:
    write_dreams(
        tmp_path,
        [
            rollout("won-1", is_success=True),
            rollout("varied", is_success=True, generated=True),
            rollout("lost-1", is_success=False),
            rollout("won-2", is_success=True),
            rollout("lost-2", is_success=False, flags=("no_effect",)),
        ],
    )
    dreams = read_dreams(tmp_path / "records" / "dream.jsonl")
    assert [dream.rollout.id for dream in dreams.chosen] == ["won-2", "lost-2", "varied"]
    assert (dreams.num_read, dreams.num_skipped) == (5, 0)


def test_a_flagged_success_is_shown_once_when_there_is_no_other(tmp_path: Path) -> None:
    write_dreams(tmp_path, [rollout("only", is_success=True, flags=("asked_again",))])
    dreams = read_dreams(tmp_path / "records" / "dream.jsonl")
    assert [dream.title for dream in dreams.chosen] == ["A success"]


def test_a_fault_is_counted_and_not_shown_as_a_failure(tmp_path: Path) -> None:
    fault = msgspec.structs.replace(
        rollout("fault", is_success=False), stop=StopReason.FAULT, reward=None
    )
    write_dreams(tmp_path, [fault])
    dreams = read_dreams(tmp_path / "records" / "dream.jsonl")
    assert dreams.chosen == ()
    assert dreams.num_faults == 1


def test_a_torn_record_is_counted_and_the_header_is_not(tmp_path: Path) -> None:
    write_dreams(tmp_path, [rollout("won", is_success=True)])
    path = tmp_path / "records" / "dream.jsonl"
    path.write_bytes(path.read_bytes() + b'{"id": "torn", "ta')
    run = load_run(tmp_path)
    assert run.dreams.num_skipped == 1
    assert run.notices == ("records/dream.jsonl: 1 line could not be read and was skipped.",)
