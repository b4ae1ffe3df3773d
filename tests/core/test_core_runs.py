from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dreamgym import progress as progress_module
from dreamgym.errors import ConfigError
from dreamgym.progress import progress
from dreamgym.records import read_records
from dreamgym.runs import RunFolder, collect_versions, read_metrics


class Config(msgspec.Struct, frozen=True):
    """A config."""

    steps: int = 3
    api_key: str = ""


def test_a_run_folder_says_what_was_asked_for_and_with_which_versions(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "r", Config(api_key="sk-test-123"), seeds={"run": 4}) as run:
        run.write_summary({"success": 0.5})
        assert not run.is_resumed
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    versions = json.loads((tmp_path / "r" / "versions.json").read_text())
    assert config == {"steps": 3, "api_key": "***"}
    assert versions["seeds"] == {"run": 4}
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["packages"]["msgspec"] == msgspec.__version__
    assert json.loads((tmp_path / "r" / "summary.json").read_text()) == {"success": 0.5}


def test_sec_05_a_config_given_as_plain_data_is_blanked_too(tmp_path: Path) -> None:
    RunFolder(tmp_path / "r", {"headers": {"Authorization": "Bearer sk-test-123"}}).close()
    assert "sk-test-123" not in (tmp_path / "r" / "config.json").read_text()


def test_resuming_with_another_config_names_the_keys_unless_forced(tmp_path: Path) -> None:
    RunFolder(tmp_path / "r", Config()).close()
    with pytest.raises(ConfigError, match="different: steps"):
        RunFolder(tmp_path / "r", Config(steps=4))
    with RunFolder(tmp_path / "r", Config()) as run:
        assert run.is_resumed
    with RunFolder(tmp_path / "r", Config(steps=4), force=True) as run:
        assert run.config["steps"] == 4
    with RunFolder(tmp_path / "r") as run:
        assert run.config["steps"] == 4


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty and is not a run folder"):
        RunFolder(tmp_path, Config())
    with pytest.raises(ConfigError, match=r"it has no config\.json"):
        RunFolder(tmp_path / "none")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    code = (
        "import sys; from dreamgym.runs import RunFolder\n"
        "try: RunFolder(sys.argv[1])\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    with RunFolder(tmp_path / "r", Config()):
        command = [sys.executable, "-c", code, str(tmp_path / "r")]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert answer.startswith("ConfigError")
        assert f"pid {os.getpid()}" in answer
        with pytest.raises(ConfigError, match="being written by another process"):
            RunFolder(tmp_path / "r")
    RunFolder(tmp_path / "r").close()


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import os, sys; from dreamgym.runs import RunFolder\n"
        "run = RunFolder(sys.argv[1], {'a': 1}); os.kill(os.getpid(), 9)"
    )
    dead = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], check=False)
    assert dead.returncode == -9
    assert (tmp_path / "r" / "lock").read_text().startswith("pid ")
    with RunFolder(tmp_path / "r", {"a": 1}) as run:
        assert run.is_resumed


def test_metrics_are_logged_by_path_and_merged_on_reading(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "r", Config()) as run:
        run.log(0, stage="dream", **{"reward/mean": 0.25})
        run.log(1, stage="dream", **{"reward/mean": 0.5})
        run.log(0, stage="transfer", **{"reward/mean": 0.1})
    with RunFolder(tmp_path / "r", Config()) as run:  # repeats a step after a crash
        run.log(1, stage="dream", **{"reward/mean": 0.75, "probe/real": 0.3})
        rows = run.metrics()
    assert [(r["stage"], r["step"], r["reward/mean"]) for r in rows] == [
        ("dream", 0, 0.25),
        ("dream", 1, 0.75),
        ("transfer", 0, 0.1),
    ]
    assert rows[1]["probe/real"] == 0.3
    assert rows == read_metrics(tmp_path / "r" / "metrics.jsonl")


def test_a_metric_that_is_not_finite_stays_visible_and_the_file_valid(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "r", Config()) as run:
        run.log(0, **{"loss": float("nan"), "kl": 0.1})
        row = run.metrics()[0]
    assert (row["loss"], row["kl"], row["not_finite"]) == (None, 0.1, ["loss"])
    assert "NaN" not in (tmp_path / "r" / "metrics.jsonl").read_text()


def test_finished_stages_are_remembered_with_their_results(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "r", Config()) as run:
        assert not run.stage_done("fit")
        run.mark_stage("fit", {"accuracy": 0.98})
    with RunFolder(tmp_path / "r", Config()) as run:
        assert run.stage_done("fit")
        assert run.stage_result("fit") == {"accuracy": 0.98}
        with pytest.raises(ConfigError, match="stage 'train' of run 'r' is not finished"):
            run.stage_result("train")


def save_weights(text: str) -> Any:
    return lambda folder: (folder / "weights").write_text(text)


def test_a_checkpoint_is_replaced_whole(tmp_path: Path) -> None:
    loaded: list[str] = []

    def load(folder: Path) -> None:
        loaded.append((folder / "weights").read_text())

    with RunFolder(tmp_path / "r", Config()) as run:
        assert run.load_checkpoint("dream-latest", load) is None
        for step in range(3):
            run.save_checkpoint("dream-latest", save_weights(f"w{step}"), {"step": step})
        path = run.save_checkpoint("dream-best", save_weights("best"), {"step": 9})
        assert (path / "weights").read_text() == "best"
        assert run.load_checkpoint("dream-latest", load) == {"step": 2}
        assert loaded == ["w2"]
    names = sorted(p.name for p in (tmp_path / "r" / "checkpoints").iterdir())
    assert names == ["dream-best", "dream-best.000001", "dream-latest", "dream-latest.000003"]


def test_a_failing_save_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise RuntimeError("out of memory")

    with RunFolder(tmp_path / "r", Config()) as run:
        run.save_checkpoint("latest", save_weights("good"), {"step": 1})
        with pytest.raises(RuntimeError, match="out of memory"):
            run.save_checkpoint("latest", fail, {"step": 2})
        assert run.load_checkpoint("latest") == {"step": 1}
        folder = tmp_path / "r" / "checkpoints"
        assert (folder / "latest" / "weights").read_text() == "good"
        assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b"])
def test_names_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with (
        RunFolder(tmp_path / "r", Config()) as run,
        pytest.raises(ConfigError, match="must be a plain file name"),
    ):
        run.record_path(name)


def test_records_of_a_run_know_their_run(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "r", Config()) as run:
        with run.writer("logs", "note", {"seed": 1}) as writer:
            writer.write({"id": 1})
        header = read_records(run.record_path("logs"), dict).header
    assert header is not None
    assert header.provenance == {"run": "r", "seed": 1}


def test_the_commit_is_known_in_a_source_tree() -> None:
    commit = collect_versions()["commit"]
    if not (Path(__file__).resolve().parents[2] / ".git").is_dir():
        pytest.skip("these sources are not a git checkout")
    assert len(commit) == 40


def test_progress_without_a_terminal_prints_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with progress("collect", 50, stream=stream) as shown:
        for index in range(50):
            shown.advance(note=f"success {index}")
    assert stream.getvalue().splitlines() == ["collect: 50/50, success 49, done in 0:00"]
    assert progress_module.LINE_SECONDS == 10.0
    with progress("quiet", 5, quiet=True) as shown:
        shown.advance()
    assert capsys.readouterr().err == ""


def test_an_interrupted_progress_says_where_it_stopped() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), progress("train", 9, stream=stream) as shown:
        shown.advance(4)
        raise KeyboardInterrupt
    assert stream.getvalue() == "train: 4/9, stopped after 0:00\n"
