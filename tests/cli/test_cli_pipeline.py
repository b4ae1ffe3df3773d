"""The whole method through the command line, at the smallest size that runs every part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dreamgym.cli import main
from dreamgym.collect import read_rollouts
from dreamgym.envs.household.guard import engine_calls, engine_forbidden
from dreamgym.runs import read_metrics
from dreamgym.types import Origin

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "household-smoke.toml"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices: threads only get into each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(command: str, *arguments: str) -> None:
    assert main([command, "--recipe", str(RECIPE), *arguments]) == 0


def test_collect_fit_clone_dream_transfer_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run("collect")
    run("fit", "--logs", "logs.jsonl")
    assert "whole step right" in capsys.readouterr().out
    em = Path("runs/em")
    assert {"model", "tasks.jsonl", "buffer", "accuracy.json"} <= {p.name for p in em.iterdir()}
    assert json.loads((em / "accuracy.json").read_text())["overall"]["n"] == 6
    run("clone", "--logs", "logs.jsonl", "--policy", "searcher")

    dream = ["--dream", "runs/em", "--policy", "runs/agent"]
    before = engine_calls()
    with engine_forbidden():  # training in a dream never touches the real environment
        run("train", *dream)
        run("train", *dream)  # the same command again: nothing left to do
        run("train", *dream, "--iterations", "2", "--resume")
    assert engine_calls() == before
    rows = read_metrics("runs/dream/metrics.jsonl")
    assert [(row["stage"], row["step"]) for row in rows] == [("dream", 0), ("dream", 1)]
    dreamt = read_rollouts("runs/dream/records/dream.jsonl")
    assert {t.origin for r in dreamt for t in r.transitions} <= {Origin.DREAM}
    assert not any("engine" in r.error for r in dreamt)  # faults of the untrained model only

    capsys.readouterr()
    run("transfer", "--policy", "runs/dream")
    run("transfer", "--policy", "runs/dream")  # the budget is used up: no further real step
    assert capsys.readouterr().out.count("60 of 60 real transitions used") == 2

    run("evaluate", "--policy", "runs/s2r", "--json", "--out", "result.json")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["n"], shown["mode"], shown["origin"]) == (6, "sampled", "real")
    assert len(json.loads(Path("result.json").read_text())["outcomes"]) == 6
    run("evaluate", "--policy", "runs/s2r", "--greedy", "--tasks", "2")
    assert "(real, greedy)" in capsys.readouterr().out


def test_training_on_the_real_suite_needs_no_dream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("collect", "--tasks", "2")
    run("clone", "--logs", "logs.jsonl", "--steps", "2")
    before = engine_calls()
    arguments = ["--suite", "household", "--tasks", "4", "--policy", "runs/agent"]
    run("train", *arguments, "--algorithm", "ppo", "--out", "runs/real")
    assert engine_calls() > before
    assert (Path("runs/real/model") / "config.json").is_file()
    assert [row["stage"] for row in read_metrics("runs/real/metrics.jsonl")] == ["real"]


def test_evaluating_an_expert_prints_the_interval_by_task_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("evaluate", "--policy", "expert", "--set", "limits.max_steps=50")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "expert in household (real, scripted)"
    assert lines[-2].split() == ["all", "6", "1.000", "[0.610,", "1.000]"]
