"""Helpers of the command-line tests."""

from __future__ import annotations

from pathlib import Path

from dreamgym.cli import main

SMALL = ["--option", "size=small"]


def collected(folder: Path, *, policy: str = "searcher", tasks: int = 3) -> Path:
    """Log a few episodes of generated training games and return the file."""
    out = folder / "logs.jsonl"
    code = main(["collect", *SMALL, "--policy", policy, "--tasks", str(tasks), "--out", str(out)])
    assert code == 0
    return out
