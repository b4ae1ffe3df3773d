"""Bad input: one sentence with what was wrong and what to do, exit code 2, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_fixtures import collected

from dreamgym.cli import main


def fails(capsys: pytest.CaptureFixture[str], arguments: list[str], *expected: str) -> None:
    capsys.readouterr()
    assert main(arguments) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("dreamgym: ")
    assert "Traceback" not in message
    for part in expected:
        assert part in message


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["colect"], "did you mean 'collect'"),
        (["collect", "--taks", "3"], "did you mean '--tasks'"),
        (["collect", "stray"], "unexpected argument 'stray'"),
        (["collect", "--tasks", "many"], "invalid int value: 'many'"),
        (["collect", "--tasks"], "expected one argument"),
        (["collect", "--suite", "houshold", "--policy", "noisy"], "did you mean 'household'"),
        (["collect", "--policy", "exprt"], "did you mean 'expert'"),
        (["collect", "--policy", "noisy", "--split", "trian"], "did you mean 'train'"),
        (["collect", "--policy", "noisy", "--policy", "noisy"], "is given twice"),
        (["collect"], "no policy given"),
        (["collect", "--policy", "noisy", "--option", "size=huge"], "room size 'huge'"),
        (["collect", "--policy", "noisy", "--option", "sise=small"], "did you mean 'size'"),
        (["collect", "--policy", "noisy", "--tasks", "0"], "tasks must be at least 1"),
        (["collect", "--policy", "noisy", "--episodes", "0"], "at least 1; got 0"),
        (
            ["collect", "--policy", "noisy", "--set", "limits.max_step=3"],
            "did you mean 'max_steps'",
        ),
        (["collect", "--policy", "noisy", "--set", "seed=x"], "seed must be int; got 'x'"),
        (["collect", "--recipe", "nowhere.toml"], "'nowhere.toml' does not exist"),
        (["evaluate", "--policy", "runs/none"], "'runs/none' does not exist"),
        (["evaluate", "--policy", "expert", "--split", "valid_unsen"], "'valid_unseen'"),
        (["evaluate", "--policy", "expert", "--attempts", "0"], "attempts must be at least 1"),
        (["evaluate"], "no policy given"),
        (["clone", "--logs", "none.jsonl"], "cannot read 'none.jsonl'"),
        (["clone"], "no logs given"),
        (["clone", "--logs", "none.jsonl", "--model", "smolm2"], "did you mean 'smollm2'"),
        (["fit", "--logs", "none.jsonl", "--model", "runs/none"], "'runs/none' does not exist"),
        (["fit", "--teacher-url", "http://localhost:1/v1"], "--teacher-model is missing"),
        (["fit", "--set", "heldout_share=1.5"], "heldout_share must be in [0, 1)"),
        (["train"], "nowhere to train"),
        (["train", "--suite", "household"], "no policy given"),
        (["train", "--dream", "runs/none", "--suite", "household"], "not in both"),
        (["train", "--algorithm", "gpro"], "did you mean 'grpo'"),
        (["train", "--set", "loop.group_size=1"], "GRPO needs group size >= 2"),
        (["train", "--iterations", "0"], "iterations must be at least 1"),
        (["transfer", "--set", "transfer.loop.group_size=1"], "GRPO needs group size >= 2"),
        (["transfer", "--budget", "0"], "budget must be at least 1"),
        (["transfer", "--policy", "runs/none"], "'runs/none' does not exist"),
        (["demo", "--preset", "tinny"], "did you mean 'tiny'"),
        (["demo", "--algorithm", "gpro"], "did you mean 'grpo'"),
        (["env", "lst"], "did you mean 'list'"),
        (["env", "parity", "houshold"], "did you mean 'household'"),
        (["env", "parity"], "parity needs --golden"),
        (["env", "parity", "--golden", "none.json"], "no file"),
        (["env", "play", "--index", "9999"], "index must be in 0.."),
        (["report", "runs/none"], "runs/none"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    fails(capsys, arguments, expected)


def test_training_logs_and_training_refuse_evaluation_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    collect = ["collect", "--policy", "searcher", "--tasks", "2", "--split", "valid_unseen"]
    fails(capsys, collect, "is for evaluation", "--allow-evaluation-split")
    assert not Path("logs.jsonl").exists()
    assert main([*collect, "--allow-evaluation-split"]) == 0
    for command in ("clone", "fit"):  # what was logged there still cannot be learned from
        fails(capsys, [command, "--logs", "logs.jsonl"], "evaluation task", "training data")
    fails(
        capsys, ["transfer", "--policy", "runs/none", "--split", "valid_seen"], "is for evaluation"
    )


def test_broken_lines_are_reported_with_file_and_line_and_the_rest_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = collected(tmp_path)
    lines = logs.read_bytes().splitlines()
    lines[2] = lines[2][: len(lines[2]) // 2]
    lines.append(b"not json")
    logs.write_bytes(b"\n".join(lines) + b"\n")
    capsys.readouterr()
    sizes = ("hidden=16", "layers=1", "heads=1", "kv_heads=1")
    smallest = [word for size in sizes for word in ("--set", f"model.{size}")]
    clone = ["clone", "--logs", str(logs), "--out", str(tmp_path / "agent"), "--steps", "1"]
    code = main([*clone, *smallest])
    shown = capsys.readouterr()
    assert code == 0
    assert f"{logs}:3: " in shown.err
    assert f"{logs}:5: not JSON" in shown.err
    assert "2 broken line(s) left out" in shown.err
    assert "2 demonstrations" in shown.out


def test_logs_without_a_usable_episode_or_success_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("{}\n")
    fails(capsys, ["fit", "--logs", str(empty)], "no usable episode", "1 broken lines")
    logs = collected(tmp_path, policy="random", tasks=2)
    out = str(tmp_path / "agent")
    fails(capsys, ["clone", "--logs", str(logs), "--out", out], "no successful episode")
    fails(
        capsys,
        ["clone", "--logs", str(logs), "--policy", "expert", "--out", out],
        "policies: random",
    )
    assert not Path(out).exists() or not (Path(out) / "model").exists()


def test_a_folder_that_is_no_dream_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"")
    out = tmp_path / "out"
    train = ["train", "--policy", str(model), "--out", str(out), "--dream"]
    fails(capsys, [*train, str(tmp_path / "none")], "is not a dream folder", "dreamgym fit")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"logs": []}')
    fails(capsys, [*train, str(other)], "not one of `dreamgym fit`")
    (other / "config.json").write_text('{"ask": {}, "heldout_share": 0.1}')
    fails(capsys, [*train, str(other)], "is not finished")
    assert not out.exists()


def test_resume_needs_a_run_and_fresh_never_deletes_what_is_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"")
    keep = tmp_path / "photos"
    keep.mkdir()
    (keep / "photo").write_text("mine")
    transfer = ["transfer", "--policy", str(model), "--out", str(keep)]
    fails(capsys, [*transfer, "--resume"], "there is no run to resume")
    fails(capsys, [*transfer, "--resume", "--fresh"], "give one of them")
    fails(capsys, [*transfer, "--fresh"], "is not a run folder")
    assert (keep / "photo").read_text() == "mine"


def test_a_run_with_other_settings_is_not_continued_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = collected(tmp_path)
    clone = ["clone", "--logs", str(logs), "--out", str(tmp_path / "agent"), "--steps", "0"]
    small = [f"model.{name}=1" for name in ("layers", "heads", "kv_heads")]
    sets = [word for text in (*small, "model.hidden=16") for word in ("--set", text)]
    assert main([*clone, *sets]) == 0
    fails(capsys, [*clone, *sets, "--seed", "1"], "different: seed")
    assert main([*clone, *sets]) == 0
    assert main([*clone, *sets, "--seed", "1", "--fresh"]) == 0
