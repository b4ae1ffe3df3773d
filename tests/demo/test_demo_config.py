"""The demo's configuration: strict, complete, and every lever reaches what it names."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from dreamgym.config import dump_config
from dreamgym.demo.config import NAIVE, PRESETS, DemoConfig, Levers, preset
from dreamgym.demo.context import DemoContext
from dreamgym.errors import ConfigError
from dreamgym.runs import RunFolder


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_survives_json_and_fits_together(name: str) -> None:
    config = preset(name)
    text = json.dumps(dump_config(config))
    assert msgspec.json.decode(text, type=DemoConfig) == config
    assert config.preset == name
    assert config.ask.prompt.neighbours == config.annotate.neighbours
    assert config.ask.prompt.history == config.annotate.history
    assert config.dream.max_steps == config.max_steps
    assert config.ask.max_tokens < config.experience.max_context
    assert config.evaluation.split.startswith("valid")
    assert config.experience.hidden % config.experience.heads == 0


def test_an_unknown_preset_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'tinny'; did you mean 'tiny'"):
        preset("tinny")


def test_an_unknown_key_is_refused_wherever_it_stands() -> None:
    for raw in ({"sede": 1}, {"logs": {"task": 3}}, {"ask": {"prompt": {"neighbors": 2}}}):
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.convert(raw, DemoConfig)


def test_configurations_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        preset("tiny").seed = 3  # type: ignore[misc]


def context(folder: Path, levers: Levers) -> DemoContext:
    config = replace(preset("tiny"), levers=levers)
    with RunFolder(folder / "run", config) as run:
        return DemoContext(config, run)


def test_all_levers_are_on_by_default() -> None:
    assert set(msgspec.to_builtins(Levers()).values()) == {True}


@pytest.mark.parametrize(
    ("lever", "field", "off", "on"),
    [
        ("reasoning", "reasoning", False, True),
        ("history", "history", 0, 1),
        ("replay", "neighbours", 0, 1),
        ("ledger", "ledger", False, True),
    ],
)
def test_a_lever_of_the_prompt_changes_that_part_alone(
    tmp_path: Path, lever: str, field: str, off: object, on: object
) -> None:
    full = context(tmp_path / "on", Levers()).prompt_config
    less = context(tmp_path / "off", Levers(**{lever: False})).prompt_config
    assert getattr(full, field) == on
    assert getattr(less, field) == off
    assert replace(less, **{field: on}) == full


def test_the_ledger_and_the_verifier_are_switched_where_they_act(tmp_path: Path) -> None:
    on = context(tmp_path / "on", Levers())
    off = context(tmp_path / "off", Levers(ledger=False, verifier=False))
    assert (on.ask_config.check_ledger, on.dream_config.verify) == (True, True)
    assert (off.ask_config.check_ledger, off.dream_config.verify) == (False, False)


def test_the_naive_run_has_no_grounding_left(tmp_path: Path) -> None:
    naive = context(tmp_path, NAIVE)
    grounding = ("free_negatives", "agent_logs", "ledger", "verifier", "probe", "curriculum")
    assert not any(getattr(NAIVE, name) for name in grounding)
    assert NAIVE.reasoning
    assert NAIVE.replay
    assert not naive.ask_config.check_ledger
    assert not naive.dream_config.verify


def test_logged_probe_and_real_training_tasks_are_apart_and_never_evaluated(
    tmp_path: Path,
) -> None:
    ctx = context(tmp_path, Levers())
    logged = {task.id for task in ctx.logged_tasks}
    others = {task.id for task in ctx.other_tasks}
    evaluated = list(ctx.evaluation_tasks)
    assert len(logged) == ctx.config.logs.tasks
    assert {task.id for task in ctx.probe_tasks} <= others
    assert not logged & others
    assert len(evaluated) == ctx.config.evaluation.tasks
    assert not {task.id for task in evaluated} & (logged | others)
    rooms = {task.room for task in (*ctx.logged_tasks, *ctx.other_tasks)}
    assert not rooms & {task.room for task in evaluated}


def test_seeds_depend_on_the_runs_seed_and_on_the_purpose(tmp_path: Path) -> None:
    ctx = context(tmp_path, Levers())
    assert ctx.seed("fit") == ctx.seed("fit")
    assert len({ctx.seed("fit"), ctx.seed("clone"), ctx.seed("fit", 1)}) == 3
