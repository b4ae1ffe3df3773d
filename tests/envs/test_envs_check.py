from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import envs_corridor as c
import pytest

from dreamgym.cli import main
from dreamgym.envs.check import CHECKS, CheckReport, CheckSettings, check_named, check_suite
from dreamgym.envs.check.spec import make_spec, open_spec, open_suite
from dreamgym.errors import ConfigError
from dreamgym.types import Observation

SPEC = "envs_corridor:CorridorSuite"

BROKEN: list[tuple[str, Any, str]] = [
    ("interface", c.broken_suite(name=" "), "name is ' '"),
    ("task list", c.broken_suite(tasks=c.lists_twice), "occurs more than once"),
    ("task list", c.broken_suite(tasks=c.rotates), "asked twice, the tasks or their order differ"),
    ("splits", c.broken_suite(tasks=c.same_ids), "is in 'train' and in 'test'"),
    ("unknown split", c.broken_suite(tasks=c.any_split), "returned 3 task(s)"),
    ("unknown split", c.broken_suite(tasks=c.key_error), "raised KeyError"),
    ("foreign task", c.broken_suite(open=c.opens_anything), "it was played"),
    ("foreign task", c.broken_suite(open=c.with_fault), "raised TypeError: cannot open"),
    ("first observation", c.broken(start=c.vague_start), "is not in it"),
    ("same start", c.broken_suite(open=c.seeded_start), "starts differently with another seed"),
    ("same again", c.broken(step=c.noisy_step), "step 0"),  # DET-01
    ("same again", c.broken(start=c.counting_start), "first observations differ"),  # ENV-04
    ("step records", c.broken(step=c.nan_step), "has the reward nan"),
    ("step records", c.broken(step=c.early_success), "the episode is not terminated"),
    ("step records", c.broken(step=c.tuple_step), "AttributeError"),  # ENV-01
    ("admissible actions", c.broken(actions=c.boasting_actions, apply=c.boasting_apply), "fly to"),
    ("admissible actions", c.broken(actions=c.doubled_actions), "is empty or twice"),
    ("admissible actions", c.broken(actions=lambda self: ()), "no state lists any action"),
    ("bad actions", c.broken(step=c.raising_step), "raised ValueError: empty action"),
    ("bad actions", c.broken(step=c.generous_step), "'click[' earned reward 1.0"),
    ("bad actions", c.broken(step=c.executing_step), "was executed as code"),  # SEC-06
    ("unicode", c.broken(step=c.latin_step), "UnicodeEncodeError"),
    ("unicode", c.broken(step=c.surrogate_step), "cannot be written as UTF-8"),
    ("long text", c.broken(step=c.short_step), "raised OverflowError"),
    ("honest end", c.broken(step=c.limit_terminates), "`terminated` is set"),  # CTX-04
    ("honest end", c.broken(step=c.limit_wins), "nonsense succeeded at step 12"),  # RWD-07
    ("honest end", c.broken(step=c.endless_step), "goes on after 12 steps"),
    ("honest end", c.broken(step=c.goes_on_after_the_end), "step after the end was allowed"),
    ("single use", c.broken(start=c.restarts), "a second start was allowed"),
    ("close twice", c.broken(close=c.closes_once), "close raised RuntimeError"),
    ("side by side", c.broken(start=c.shared_start, step=c.shared_step), "beside others"),
    ("global state", c.broken(start=c.seeding_start), "changed: random"),  # DET-01
    ("global state", c.broken(start=c.numpy_start), "changed: numpy.random"),
    ("global state", c.broken(start=c.argv_start), "changed: sys.argv"),
    ("global state", c.broken(start=c.environ_start), "changed: os.environ"),
]


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Broken suites break global state; put it back."""
    argv, environ, state = sys.argv, dict(os.environ), random.getstate()
    yield
    sys.argv = argv
    os.environ.clear()
    os.environ.update(environ)
    random.setstate(state)


@pytest.mark.parametrize(("name", "suite", "seen"), BROKEN)
def test_a_broken_suite_is_found_out(name: str, suite: Any, seen: str) -> None:
    result = check_named(name, suite)
    assert result.status == "fail"
    assert seen in result.seen
    assert result.line().startswith(f"FAIL  {name}: expected {CHECKS[name].expected}; seen: ")


def test_every_check_has_a_broken_suite() -> None:
    elsewhere = {"other process"}  # below, as it needs a suite by name
    assert {name for name, _, _ in BROKEN} | elsewhere == set(CHECKS)


def test_a_suite_without_open_fails_the_interface_check() -> None:
    bare: Any = c.Nameless()
    assert "missing" in check_named("interface", bare).seen


def test_answers_that_depend_on_hash_seeds_are_found_out() -> None:  # DET-03
    suite = hashing_suite()
    result = check_named("other process", suite, spec="test_envs_check:hashing_suite")
    assert result.status == "fail" and "PYTHONHASHSEED" in result.seen


def hashing_suite() -> c.CorridorSuite:
    return c.broken(step=c.hashing_step)


def test_a_right_suite_passes_every_check() -> None:
    report = check_suite(c.CorridorSuite(), spec=SPEC)
    report.raise_for_failures()
    assert [result.status for result in report.results] == ["pass"] * len(CHECKS)
    assert report.summary() == f"corridor: {len(CHECKS)} passed, 0 failed, 0 skipped"


def test_what_cannot_be_checked_is_skipped_with_the_reason() -> None:
    result = check_named("other process", c.CorridorSuite())
    assert result.status == "skip" and "given as an object" in result.seen
    unnamed = c.broken_suite(splits=())
    unnamed.tasks = lambda split: c.CorridorSuite().tasks("train")  # type: ignore[method-assign]
    assert check_named("splits", unnamed).status == "skip"
    no_list = c.broken(actions=lambda self: None, apply=lambda self, action: ("Hm.", False))
    assert "lists no admissible" in check_named("admissible actions", no_list).seen


def test_a_hanging_environment_fails_instead_of_hanging_the_check() -> None:
    async def forever(self: c.Corridor) -> Observation:
        await asyncio.Event().wait()
        raise AssertionError

    result = check_named("first observation", c.broken(start=forever), CheckSettings(seconds=0.05))
    assert result.status == "fail" and "took longer than 0.05 seconds" in result.seen


def test_a_failed_report_says_so_in_a_test() -> None:
    report = check_suite(c.broken(close=c.closes_once), CheckSettings(num_tasks=1, num_steps=2))
    assert not report.is_ok and "close twice" in {r.name for r in report.failures}
    with pytest.raises(AssertionError, match="close raised RuntimeError"):
        report.raise_for_failures()
    assert not CheckReport(suite="none", split="train", results=()).is_ok


def test_an_empty_split_and_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="has no tasks"):
        check_suite(c.CorridorSuite(num_tasks=0))
    with pytest.raises(ConfigError, match="num_steps must be positive; got 0"):
        CheckSettings(num_steps=0)
    with pytest.raises(ConfigError, match="did you mean 'unicode'"):
        check_named("unicod", c.CorridorSuite())


def test_a_suite_is_named_by_table_or_module() -> None:
    spec = make_spec(SPEC, {"num_tasks": 2, "max_steps": 5})
    suite = open_spec(spec)
    assert isinstance(suite, c.CorridorSuite) and (suite.num_tasks, suite.max_steps) == (2, 5)
    assert open_spec(make_spec("household", {"size": "tiny"})).name == "household"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no_such_module:Suite", {}, "cannot import 'no_such_module'"),
        ("envs_corridor:Nothing", {}, "has no class or function 'Nothing'"),
        (
            "envs_corridor:broken_suite",
            {"nam": 1},
            "unknown option of 'envs_corridor:broken_suite'",
        ),
        ("pathlib:Path", {}, "made a PosixPath, which is no suite"),
        ("houshold", {}, "did you mean 'household'"),
    ],
)
def test_a_wrong_name_is_one_sentence(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_suite(name, options)
    assert message in str(caught.value)


def test_the_command_prints_a_line_per_check_and_exits_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--option", "size=tiny", "--option", "num_tasks=4", "--tasks", "2", "--steps", "4"]
    assert main(["env", "check", "household", *options, "--tried", "12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CHECKS) + 1
    assert all(line.startswith("pass  ") for line in lines[:-1])
    assert lines[-1] == f"household: {len(CHECKS)} passed, 0 failed, 0 skipped"


def test_the_command_checks_the_abstract_view_of_a_suite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["env", "check", SPEC, "--abstract"]) == 0
    shown = capsys.readouterr().out
    assert "skip  other process: " in shown
    assert f"corridor: {len(CHECKS) - 1} passed, 0 failed, 1 skipped" in shown


def test_the_command_exits_1_for_a_broken_suite_and_prints_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["env", "check", "test_envs_check:hashing_suite", "--json", "--tasks", "1"]) == 1
    report = json.loads(capsys.readouterr().out)
    failed = [result["name"] for result in report["results"] if result["status"] == "fail"]
    assert failed == ["other process"]


def test_info_names_options_splits_and_the_first_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "info", SPEC]) == 0
    shown = capsys.readouterr().out
    assert "Walk along a corridor." in shown and "option num_tasks=4" in shown
    assert "split test: 4 task(s)" in shown and "open the chest in room 2" in shown


def test_a_played_episode_takes_numbers_and_says_how_it_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("\ngo on\n[bold]\n2\nopen chest\n"))
    assert main(["env", "play", SPEC]) == 0
    shown = capsys.readouterr().out
    assert "say <words>" in shown and "Nothing happens." in shown
    assert "success (the episode is over; last reward 1.0)" in shown


def test_list_goes_on_when_a_suite_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    assert main(["env", "list"]) == 0
    shown = capsys.readouterr().out
    assert "alfworld: not ready: " in shown and "household: splits train" in shown


def test_checks_leave_no_files_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_named("bad actions", c.CorridorSuite())
    assert list(tmp_path.iterdir()) == []
