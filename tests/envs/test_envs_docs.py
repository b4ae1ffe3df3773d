from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add-your-environment.md"
MAX_LINES = 60


def first_block() -> str:
    match = re.search(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def test_a_newcomers_suite_takes_fewer_than_sixty_lines() -> None:
    lines = [line for line in first_block().splitlines() if line.strip()]
    assert 30 < len(lines) < MAX_LINES


def test_the_file_of_the_page_passes_the_command_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "guess.py").write_text(first_block(), "utf-8")
    command = re.search(r"^dreamgym (env check .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert command is not None
    result = subprocess.run(
        [sys.executable, "-m", "dreamgym.cli", *command[1].split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 failed, 0 skipped" in result.stdout
