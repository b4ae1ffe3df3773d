"""The engine against recordings of the genuine one, and its official games."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path

import pytest

from dreamgym.envs.household.game import HouseholdGame
from dreamgym.envs.household.official import read_pack
from dreamgym.envs.household.parity import canonical_text, run_parity
from dreamgym.envs.household.pddl import parse_problem
from dreamgym.envs.household.planner import make_plan
from dreamgym.errors import DataError

_DEFAULT = Path(__file__).resolve().parents[2].parent / "shared" / "data"
DATA = Path(os.environ.get("DREAMGYM_DATA", _DEFAULT))
GOLDEN = DATA / "alfworld_golden_valid_seen.json.xz"
PACKS = ("train", "valid_seen", "valid_unseen", "valid_train")
needs_data = pytest.mark.skipif(
    not GOLDEN.is_file(), reason=f"needs the ALFWorld test data in {DATA} (or DREAMGYM_DATA)"
)


@needs_data
def test_all_recorded_episodes_of_the_genuine_engine_are_equal_at_every_step() -> None:
    report = run_parity(GOLDEN)
    assert report.differences == ()
    assert (report.equal, report.total) == (280, 280)
    assert report.exact_share == 1.0
    assert report.steps > 4_900


@needs_data
def test_parity_finds_a_changed_feedback_a_changed_reward_and_a_missing_command(
    tmp_path: Path,
) -> None:
    episodes = json.loads(lzma.decompress(GOLDEN.read_bytes()))[:3]
    episodes[0]["steps"][0]["feedback"] = "You arrive at the moon."
    episodes[1]["steps"][0]["reward"] = 0.5
    episodes[2]["steps"][0]["admissible"].pop()
    changed = tmp_path / "alfworld_golden_valid_seen.json"
    changed.write_text(json.dumps(episodes))
    report = run_parity(changed, DATA / "alfworld_valid_seen.json.xz")
    assert (report.equal, report.total, report.is_equal) == (0, 3, False)
    assert "moon" in report.differences[0]
    assert "reward expected 0.5, got 0.0" in report.differences[1]
    assert "admissible" in report.differences[2]


def test_canonical_text_ignores_the_order_of_listed_things_only() -> None:
    one = "On the desk 1, you see a pen 1, a mug 2, and a cd 1."
    assert canonical_text(one) == canonical_text(
        "On the desk 1, you see a cd 1, a pen 1, and a mug 2."
    )
    assert canonical_text(one) != canonical_text("On the desk 1, you see a cd 1, and a mug 2.")
    assert canonical_text(one) != canonical_text(
        "On the desk 2, you see a pen 1, a mug 2, and a cd 1."
    )


def test_parity_says_what_is_wrong_with_a_golden_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        run_parity(tmp_path / "alfworld_golden_none.json.xz")
    strange = tmp_path / "alfworld_golden_x.json"
    strange.write_text("{}")
    with pytest.raises(DataError, match="no list of episodes"):
        run_parity(strange)


@needs_data
@pytest.mark.parametrize("split", PACKS)
def test_walkthroughs_of_official_games_win_at_their_last_step(split: str) -> None:
    games = read_pack(DATA / f"alfworld_{split}.json.xz")
    sample = games[:: max(1, len(games) // 60)][:60]
    assert len(sample) == 60
    for game in sample:
        episode = HouseholdGame(parse_problem(game.pddl_problem, game.task))
        results = [episode.step(command) for command in game.walkthrough]
        assert [won for _, _, _, won in results] == [False] * (len(results) - 1) + [True], game.id


@needs_data
def test_the_planner_wins_official_games_and_is_not_longer_than_the_walkthrough_on_average() -> (
    None
):
    games = read_pack(DATA / "alfworld_valid_unseen.json.xz")
    ours = theirs = 0
    for game in games:
        episode = HouseholdGame(parse_problem(game.pddl_problem, game.task))
        plan = make_plan(episode.state)
        assert plan is not None, game.id
        won = False
        for command in plan:
            _, _, _, won = episode.step(command)
        assert won, game.id
        ours, theirs = ours + len(plan), theirs + len(game.walkthrough)
    assert ours <= 1.05 * theirs
