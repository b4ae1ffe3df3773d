"""Every code block of README.md and docs/*.md runs.

`python` blocks are executed; in `bash` blocks, `dreamgym ...` and `python -m ...` lines are run
with the smallest settings, and the `make` targets are looked up in the Makefile.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        if page.exists():
            for lang, body in BLOCK.findall(page.read_text("utf-8")):
                if lang == language:
                    found.append((page.name, body))
    return found


@pytest.mark.parametrize(("page", "body"), blocks("python"))
def test_python_blocks_run(page: str, body: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", body], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, f"{page}: {result.stderr}"


def commands() -> list[tuple[str, str]]:
    return [
        (page, line.strip())
        for page, body in blocks("bash")
        for line in body.replace("\\\n", " ").splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]


@pytest.mark.parametrize(("page", "line"), commands())
def test_bash_lines_name_things_that_exist(page: str, line: str) -> None:
    """Long commands are not run here; they must parse, and their targets must exist."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text("utf-8")
        for target in words[1:]:
            assert "=" in target or re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)
    elif words[0] == "dreamgym":
        from dreamgym.cli import build_parser

        parser, _ = build_parser()
        parser.parse_args(words[1:])
    elif words[:2] == ["python", "-m"]:
        module = ROOT / (words[2].replace(".", "/") + ".py")
        assert module.exists() or words[2].startswith("dreamgym"), f"{page}: no module {words[2]}"
    else:
        assert words[0] in {"git", "cd", "pip", "source", "export", "python"}, f"{page}: {line}"
