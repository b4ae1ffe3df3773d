from __future__ import annotations

import io
import json
import lzma
import os
import sys
from pathlib import Path

import pytest

from dreamgym.cli import main

_DEFAULT = Path(__file__).resolve().parents[2].parent / "shared" / "data"
DATA = Path(os.environ.get("DREAMGYM_DATA", _DEFAULT))
GOLDEN = DATA / "alfworld_golden_valid_seen.json.xz"
needs_data = pytest.mark.skipif(
    not GOLDEN.is_file(), reason=f"needs the ALFWorld test data in {DATA} (or DREAMGYM_DATA)"
)


def test_env_list_names_suites_with_their_splits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "list"]) == 0
    shown = capsys.readouterr().out
    assert "household: splits " in shown
    assert "valid_unseen" in shown


def test_playing_by_hand_ends_with_the_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("inventory\n\ndance\n"))
    assert main(["env", "play", "household", "--option", "size=small"]) == 0
    shown = capsys.readouterr().out
    assert "You are carrying" in shown or "not carrying" in shown
    assert "go to " in shown
    assert "Nothing happens." in shown


@needs_data
def test_env_parity_prints_equal_of_total_and_exits_1_on_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episodes = json.loads(lzma.decompress(GOLDEN.read_bytes()))[:4]
    golden = tmp_path / "alfworld_golden_valid_seen.json"
    games = ["--games", str(DATA / "alfworld_valid_seen.json.xz")]
    golden.write_text(json.dumps(episodes))
    assert main(["env", "parity", "household", "--golden", str(golden), *games]) == 0
    assert "4/4 episodes equal" in capsys.readouterr().out
    episodes[1]["steps"][0]["feedback"] = "You arrive at the moon."
    golden.write_text(json.dumps(episodes))
    assert main(["env", "parity", "household", "--golden", str(golden), *games]) == 1
    shown = capsys.readouterr()
    assert "3/4 episodes equal" in shown.out
    assert "moon" in shown.err
