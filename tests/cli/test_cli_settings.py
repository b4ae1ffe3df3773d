from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from dreamgym.cli import main
from dreamgym.errors import ConfigError
from dreamgym.pipeline.collecting import CollectSettings
from dreamgym.pipeline.evaluating import EvaluateSettings
from dreamgym.pipeline.settings import Recipe, SuiteSettings, load_settings, parse_options
from dreamgym.pipeline.suites import open_suite

RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.toml"))


def recipe(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text, "utf-8")
    return path


def test_flags_win_over_the_recipe_and_set_wins_over_flags(tmp_path: Path) -> None:
    path = recipe(tmp_path, "[collect]\ntasks = 5\nepisodes = 2\nseed = 9\n")
    settings = load_settings(
        CollectSettings,
        "collect",
        recipe=path,
        flags={"tasks": 7, "episodes": 3, "seed": None},
        overrides=["episodes=4"],
    )
    assert (settings.tasks, settings.episodes, settings.seed) == (7, 4, 9)


def test_options_of_a_suite_are_added_to_those_of_the_recipe(tmp_path: Path) -> None:
    path = recipe(tmp_path, '[evaluate.suite.options]\nsize = "small"\nseed = 1\n')
    options = parse_options(["seed=2", 'kinds=["pick_two_obj_and_place"]'])
    settings = load_settings(
        EvaluateSettings, "evaluate", recipe=path, flags={"suite.options": options}
    )
    assert settings.suite.options == {
        "size": "small",
        "seed": 2,
        "kinds": ["pick_two_obj_and_place"],
    }


def test_an_option_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="'size' must have the form name=value"):
        parse_options(["size"])


def test_a_section_no_command_has_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    path = recipe(tmp_path, "[trian]\nseed = 1\n")
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        load_settings(CollectSettings, "collect", recipe=path)


def test_a_mistake_in_the_recipe_is_named_even_where_a_flag_would_hide_it(tmp_path: Path) -> None:
    path = recipe(tmp_path, '[collect]\ntasks = "many"\n')
    with pytest.raises(ConfigError, match="tasks must be int; got 'many'"):
        load_settings(CollectSettings, "collect", recipe=path, flags={"tasks": 3})


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
@pytest.mark.parametrize("command", Recipe.__struct_fields__)
def test_every_recipe_loads_for_every_command(
    path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--recipe", str(path), "--dry-run"]) == 0
    resolved = json.loads(capsys.readouterr().out)
    section = tomllib.loads(path.read_text("utf-8")).get(command, {})
    for key, value in section.items():
        if not isinstance(value, dict):
            assert resolved[key] == value


def test_there_are_recipes() -> None:
    assert {"household-tiny", "household-smoke"} <= {path.stem for path in RECIPES}


def test_dry_run_prints_resolved_settings_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "logs.jsonl"
    arguments = ["collect", "--policy", "noisy", "--policy", "survey", "--out", str(out)]
    assert (
        main([*arguments, "--option", "size=full", "--set", "limits.max_steps=9", "--dry-run"]) == 0
    )
    resolved = json.loads(capsys.readouterr().out)
    assert resolved["policy"] == ["noisy", "survey"]
    assert resolved["suite"] == {"name": "household", "options": {"size": "full"}}
    assert resolved["limits"]["max_steps"] == 9
    assert not out.exists()


def test_a_suite_that_generates_its_tasks_gives_as_many_as_asked() -> None:
    for count in (5, 230):
        _, tasks = open_suite(SuiteSettings(options={"size": "small"}), "train", count)
        assert len({task.id for task in tasks}) == count


def test_given_tasks_are_sampled_over_the_whole_list_and_larger_samples_hold_smaller_ones() -> None:
    settings = SuiteSettings(options={"size": "small", "num_tasks": 120})
    _, everything = open_suite(settings, "valid_unseen", 500)
    _, some = open_suite(settings, "valid_unseen", 12)
    _, more = open_suite(settings, "valid_unseen", 40)
    assert (len(everything), len(some), len(more)) == (120, 12, 40)
    places = [everything.index(task) for task in some]
    assert places == sorted(places)
    assert places[0] < 40 and places[-1] >= 80
    assert {task.id for task in some} < {task.id for task in more}
