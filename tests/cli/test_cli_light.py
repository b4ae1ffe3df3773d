from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_fixtures import collected

from dreamgym.cli import main

HEAVY = ("torch", "numpy", "transformers", "sklearn", "openai", "matplotlib")


def python(code: str, *, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=60
    )


def test_importing_the_package_takes_less_than_300_ms() -> None:
    code = (
        "import time; start = time.process_time(); import dreamgym; "
        "print(time.process_time() - start)"
    )
    took = min(float(python(code).stdout) for _ in range(3))
    assert took < 0.3


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["train", "--help"]])
def test_help_needs_no_heavy_package(arguments: list[str]) -> None:
    code = (
        f"import sys; from dreamgym.cli import main; code = main({arguments!r}); "
        f"loaded = sorted(set({HEAVY!r}) & set(sys.modules)); "
        "print('CODE', code, 'LOADED', loaded)"
    )
    result = python(code)
    assert result.stdout.strip().endswith("CODE 0 LOADED []"), result.stderr


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in ("demo", "collect", "clone", "fit", "train", "transfer", "evaluate", "env"):
        assert f"    {name} " in shown


def test_scripted_policies_play_without_the_training_stack(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers'))); "
        "from dreamgym.cli import main; "
        "sys.exit(main(['collect', '--policy', 'noisy', '--tasks', '1'])"
        " or main(['evaluate', '--policy', 'expert', '--tasks', '2']))"
    )
    result = python(code, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "logs.jsonl").is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--policy", "x", "--suite", "household"],
        ["clone", "--logs", "logs.jsonl"],
        ["fit", "--logs", "logs.jsonl"],
        ["evaluate", "--policy", "model"],
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    arguments: list[str], tmp_path: Path
) -> None:
    collected(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers'))); "
        f"from dreamgym.cli import main; sys.exit(main({arguments!r}))"
    )
    result = python(code, cwd=tmp_path)
    assert result.returncode == 2
    assert "pip install 'dreamgym[train]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_ctrl_c_exits_with_130_and_the_same_command_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "logs.jsonl"
    arguments = ["collect", "--policy", "random", "--episodes", "400", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dreamgym.cli", *arguments, "--tasks", "4"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    end = time.monotonic() + 30
    while (not out.exists() or out.stat().st_size < 20_000) and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, shown = process.communicate(timeout=30)
    assert process.returncode == 130, shown
    assert "run the same command again to go on" in shown
    assert "Traceback" not in shown
    before = out.read_bytes()
    few = ["collect", "--policy", "random", "--episodes", "3", "--out", str(out), "--tasks", "1"]
    assert main(few) == 0
    assert out.read_bytes().startswith(before.rpartition(b"\n")[0])


def test_a_second_collect_plays_nothing_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "logs.jsonl"
    arguments = ["collect", "--policy", "noisy", "--tasks", "2", "--out", str(out)]
    assert main(arguments) == 0
    before = out.read_bytes()
    capsys.readouterr()
    assert main(arguments) == 0
    assert out.read_bytes() == before
    assert capsys.readouterr().out.split()[-1] == "2"


def test_a_budget_bounds_the_transitions_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "logs.jsonl"
    arguments = ["collect", "--policy", "survey", "--tasks", "4", "--out", str(out)]
    assert main([*arguments, "--budget", "10"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert int(row[3]) == 10
