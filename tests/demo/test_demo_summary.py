"""summary.json: real transitions accounted for, dream numbers pooled, partial runs too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dreamgym.demo.config import NAIVE, DemoConfig, preset
from dreamgym.demo.context import DemoContext
from dreamgym.demo.summary import false_success, make_summary, print_table
from dreamgym.runs import RunFolder
from dreamgym.stats import wilson

LOGS: dict[str, Any] = {
    "collect": {"warm_start": 700, "logs": 5000},
    "fit": {"loss": 0.1},
    "clone": {"loss": 0.2},
}


def measured(value: float, n: int = 100) -> dict[str, Any]:
    return {"sampled": value, "greedy": value, "n": n, "ci95": [0.1, 0.2]}


FULL: dict[str, Any] = {
    **LOGS,
    "evaluate_warm_start": measured(0.2),
    "collect_agent": {"agent_logs": 900},
    "refit": {"accuracy": {"overall": {"exact": 0.97, "n": 1500}, "bar": 0.98}},
    "dream": {
        "probe_transitions": 1234,
        "rollbacks": 1,
        "verifier": {"verify/missed_success": 0.01},
    },
    "evaluate_dream": measured(0.5),
    "s2r": {"transitions": 4000},
    "evaluate_s2r": measured(0.7),
    "baseline": {"transitions": 3999},
    "evaluate_baseline": measured(0.4),
    "naive": {"final_real": 0.1},
}


def summary(
    folder: Path,
    stages: dict[str, Any],
    rows: list[dict[str, float]] | None = None,
    config: DemoConfig | None = None,
) -> dict[str, Any]:
    """Return the summary of a run with these stage results and dream metrics."""
    config = config or preset("tiny")
    with RunFolder(folder / "run", config) as run:
        for step, row in enumerate(rows or []):
            run.log(step, stage="dream", **{"rollout/fault_share": 0.0, **row})
        for name, result in stages.items():
            run.mark_stage(name, {"seconds": 2.0, "result": result})
        made = make_summary(DemoContext(config, run))
    found: dict[str, Any] = json.loads(json.dumps(made))
    return found


ROWS = [{"rollout/success": i / 10, "rollout/fault_share": 0.1 * (i % 2)} for i in range(10)]


def test_real_transitions_are_told_apart_by_what_they_were_used_for(tmp_path: Path) -> None:
    assert summary(tmp_path, FULL, ROWS)["real_transitions"] == {
        "warm_start": 700,
        "experience_model": 5900,
        "probe": 1234,
        "s2r": 4000,
        "baseline": 3999,
    }


def test_success_of_each_policy_stands_under_its_name(tmp_path: Path) -> None:
    real = summary(tmp_path, FULL, ROWS)["real_success"]
    assert {name: row["sampled"] for name, row in real.items()} == {
        "warm_start": 0.2,
        "dream": 0.5,
        "s2r": 0.7,
        "real_only_baseline": 0.4,
    }


def test_dream_numbers_come_from_the_dreams_own_metrics(tmp_path: Path) -> None:
    dream = summary(tmp_path, FULL, ROWS)["dream"]
    assert dream["final_success"] == pytest.approx(0.7)
    assert dream["fault_rate"] == pytest.approx(0.05)
    assert dream["rollbacks"] == 1
    assert dream["missed_success_rate"] == 0.01
    assert dream["accuracy"]["overall"]["exact"] == 0.97


def test_time_is_the_sum_of_the_stages(tmp_path: Path) -> None:
    made = summary(tmp_path, FULL, ROWS)
    assert made["wall_seconds"] == 2.0 * len(FULL)
    assert [stage["name"] for stage in made["stages"]] == list(FULL)
    assert made["naive_run"] == {"final_real": 0.1}
    assert made["levers"]["ledger"] is True


def test_a_run_that_is_not_finished_has_a_summary_of_what_is_there(tmp_path: Path) -> None:
    empty = summary(tmp_path / "a", {})
    assert empty["real_success"] == {}
    assert empty["real_transitions"] == {}
    assert empty["wall_seconds"] == 0
    some = summary(tmp_path / "b", LOGS)
    assert some["real_transitions"] == {"warm_start": 700, "experience_model": 5000}


def probe_row(rate: float, replays: float) -> dict[str, float]:
    return {"probe/false_success": rate, "probe/replays": replays}


def test_false_successes_are_pooled_over_probes_by_their_number() -> None:
    rows: list[dict[str, Any]] = [probe_row(0.5, 4), {"rollout/success": 1.0}, probe_row(0.0, 16)]
    found = false_success(rows)
    assert found["false_success_rate"] == pytest.approx(2 / 20)
    assert found["false_success"] == {"successes": 2, "n": 20, "ci95": list(wilson(2, 20))}


def test_without_a_replay_the_false_success_rate_is_unknown_not_zero() -> None:
    for rows in ([], [probe_row(0.0, 0.0)]):
        found = false_success(rows)
        assert found["false_success_rate"] is None
        assert found["false_success"]["n"] == 0


def test_the_table_shows_every_policy_with_what_it_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    rows = [*ROWS, {"rollout/success": 0.9, **probe_row(0.25, 8)}]
    print_table(summary(tmp_path, FULL, rows), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    for name, value in (("warm start", "0.200"), ("dream", "0.500"), ("s2r", "0.700")):
        assert any(name in line and value in line for line in lines)
    s2r = next(line for line in lines if "s2r" in line)
    assert str(700 + 5900 + 1234 + 4000) in s2r
    assert any("2 of 8 replayed dreamt successes" in line for line in lines)
    assert any("whole-step accuracy 0.970 on 1500" in line for line in lines)


def test_a_naive_run_can_be_printed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(preset("tiny"), is_naive=True, levers=NAIVE)
    stages = {
        **LOGS,
        "evaluate_warm_start": measured(0.2),
        "naive": {"final_real": 0.05},
        "evaluate_naive": measured(0.05),
    }
    made = summary(tmp_path, stages, config=config)
    assert made["naive"] is True
    print_table(made, tmp_path)
    assert "naive" in capsys.readouterr().out
