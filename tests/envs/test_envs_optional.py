"""TextWorld and ScienceWorld: the adapters against stand-ins of what they adapt."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from dreamgym.envs import scienceworld_engine
from dreamgym.envs.check import CheckSettings, check_suite
from dreamgym.envs.scienceworld_engine import Reading, check_java
from dreamgym.envs.scienceworld_suite import UNKNOWN, ScienceworldSuite
from dreamgym.envs.textworld_suite import TextworldSuite, plain_command, tidy
from dreamgym.errors import ConfigError, DataError, EnvError, MissingExtra, UserError

SETTINGS = CheckSettings(num_tasks=2, num_admissible=8, num_steps=4)


class FakeGame:
    """A TextWorld game: `go east`, then `take key`."""

    def __init__(self, path: str) -> None:
        self.objective = json.loads(Path(path).with_suffix(".json").read_text())["objective"]
        self.place = 0

    def reset(self) -> Any:
        return self._state(f"{self.objective}\n\n-= Cell {self.place} =-")

    def step(self, command: str) -> tuple[Any, float, bool]:
        if command == "crash":
            raise RuntimeError("the interpreter died")
        assert command.isascii() and len(command) <= 200 and command.split()[0] != "save"
        if command == "look":
            return self._state(f"-= Cell {self.place} =-"), 0, False
        if self.place == 0 and command == "go east":
            self.place = 1
            return self._state("You go east.\n\n>      -= Hall =-0/1"), 0, False
        if self.place == 1 and command == "take key":
            self.place = 2
            return self._state("Taken."), 2, True
        return self._state("You can't do that."), 0, False

    def close(self) -> None:
        self.place = -1

    def _state(self, text: str) -> Any:
        actions = [["go east", "look"], ["take key", "look"], []][self.place]
        return types.SimpleNamespace(
            feedback=text, admissible_commands=actions, won=self.place == 2, lost=False, max_score=2
        )


@pytest.fixture
def textworld(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put a stand-in for the package into place and return a folder of two games."""
    module: Any = types.ModuleType("textworld")
    module.EnvInfos = dict
    module.start = lambda path, infos: FakeGame(path)
    module.Game = types.SimpleNamespace(load=FakeGame)
    module.generator = types.ModuleType("textworld.generator")
    monkeypatch.setitem(sys.modules, "textworld", module)
    monkeypatch.setitem(sys.modules, "textworld.generator", module.generator)
    for name in ("a", "b"):
        (tmp_path / f"{name}.z8").write_bytes(b"story")
        (tmp_path / f"{name}.json").write_text(json.dumps({"objective": f"Take key {name}."}))
    return tmp_path


def test_the_textworld_adapter_conforms(textworld: Path) -> None:
    check_suite(TextworldSuite(games=textworld, max_steps=8), SETTINGS).raise_for_failures()


def test_textworld_rewards_add_up_to_one_and_success_is_winning(textworld: Path) -> None:
    async def run() -> None:
        suite = TextworldSuite(games=textworld)
        env = suite.open(suite.tasks("train")[0], seed=0)
        await env.start()
        moved = await env.step("go east")
        assert (moved.observation.text, moved.reward) == ("You go east.", 0.0)
        won = await env.step("take key")
        assert (won.reward, won.terminated, won.success) == (1.0, True, True)

    asyncio.run(run())


def test_an_interpreter_that_dies_is_a_fault(textworld: Path) -> None:
    suite = TextworldSuite(games=textworld)
    env = suite.open(suite.tasks("train")[0], seed=0)
    asyncio.run(env.start())
    with pytest.raises(EnvError, match="the interpreter died"):
        asyncio.run(env.step("crash"))


@pytest.mark.parametrize(
    "action",
    ["save", "SAVE game", "quit", "look. save", "look, then restart", "tw-print x", "", "x" * 201],
)
def test_commands_outside_the_story_never_reach_the_interpreter(action: str) -> None:
    assert plain_command(action) is None


def test_commands_reach_the_interpreter_as_one_ascii_line() -> None:
    assert plain_command(" take\n the  caf\u00e9 key\x00 ") == "take the caf? key"
    assert plain_command("save the cat's life") is None  # the interpreter would save the game


def test_banner_status_line_and_prompt_are_no_part_of_the_text() -> None:
    banner, status = "   ________  ________  __    __ ", ">    -= Hall =-0/1"
    text = f"{banner}\n\n\nGo on.\n\n\n-= Hall =-\nA hall.\n\n{status}"
    assert tidy(text) == "Go on.\n-= Hall =-\nA hall."


def test_textworld_says_what_is_missing(
    textworld: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="is no folder"):
        TextworldSuite(games=textworld / "none").tasks("train")
    (textworld / "b.json").unlink()
    with pytest.raises(DataError, match=r"lies without its \.json"):
        TextworldSuite(games=textworld).tasks("train")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"holds no \.z8 file"):
        TextworldSuite(games=empty).tasks("train")
    with pytest.raises(ConfigError, match="rooms is 0; expected a whole number of at least 1"):
        TextworldSuite(rooms=0)
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(MissingExtra, match=r"dreamgym\[textworld\]"):
        TextworldSuite(games=textworld).tasks("train")


class FakeSimulator:
    """A ScienceWorld with two task types: open the door, then focus on the plant."""

    is_alive = True
    version = "fake"

    def kinds(self) -> tuple[str, ...]:
        return ("boil", "find-plant")

    def variations(self, kind: str, split: str) -> list[int]:
        first = {"train": 0, "dev": 10, "test": 20}[split]
        return list(range(first, first + 3))

    def description(self, kind: str, variation: int, simplification: str) -> str:
        return f"Task Description:\nYour task is to {kind} number {variation}."

    def open(self, kind: str, variation: int, simplification: str) -> Any:
        return FakeSimulation()


class FakeSimulation:
    def __init__(self) -> None:
        self.is_open, self.score = False, 0.0

    def act(self, action: str, *, with_actions: bool) -> Reading:
        text = UNKNOWN
        if action in ("look around", "open door"):
            self.is_open |= action == "open door"
            self.score = 0.25 if self.is_open else 0.0
            text = f"A hallway. The door is {'open' if self.is_open else 'closed'}."
        if self.is_open and action == "focus on plant":
            text, self.score = "You focus on the plant.", 1.0
        if action == "focus on door":
            text, self.score = "You focus on the door.", -1.0
        listed = ("look around", "open door", *(("focus on plant",) if self.is_open else ()))
        is_over = self.score in (1.0, -1.0)
        return Reading(text, self.score, is_over, listed if with_actions else None)


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scienceworld_engine, "_running", [FakeSimulator()])
    monkeypatch.setenv("DREAMGYM_CACHE", str(tmp_path))


@pytest.mark.usefixtures("simulator")
def test_the_scienceworld_adapter_conforms() -> None:
    check_suite(ScienceworldSuite(num_tasks=4, max_steps=8), SETTINGS).raise_for_failures()


@pytest.mark.usefixtures("simulator")
def test_scienceworld_rewards_add_up_to_the_score_and_a_wrong_focus_loses() -> None:
    async def run() -> None:
        suite = ScienceworldSuite(kinds="boil", num_tasks=2)
        assert [task.id for task in suite.tasks("train")] == ["boil-0000", "boil-0001"]
        env = suite.open(suite.tasks("train")[0], seed=0)
        first = await env.start()
        assert first.text.startswith("Your task is to boil number 0.\n\nA hallway.")
        gains = [(await env.step(a)).reward for a in ("open door", "focus on plant")]
        assert gains == [0.25, 0.75]
        lost = suite.open(suite.tasks("train")[1], seed=0)
        await lost.start()
        step = await lost.step("focus on door")
        assert (step.reward, step.terminated, step.success) == (-1.0, True, False)

    asyncio.run(run())


@pytest.mark.usefixtures("simulator")
def test_scienceworld_sentences_are_read_once_and_kept(tmp_path: Path) -> None:
    before = [task.instruction for task in ScienceworldSuite(num_tasks=3).tasks("test")]
    kept = json.loads((tmp_path / "scienceworld-fake.json").read_text())
    assert kept["boil-0020"] == before[0] == "Your task is to boil number 20."
    (tmp_path / "scienceworld-fake.json").write_text("{cut off")
    assert [task.instruction for task in ScienceworldSuite(num_tasks=3).tasks("test")] == before


@pytest.mark.usefixtures("simulator")
def test_an_unknown_scienceworld_task_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'boil'"):
        ScienceworldSuite(kinds="boli").tasks("train")


def test_scienceworld_without_java_says_which_and_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # ENV-12
    check_java.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs Java 8 or newer and there is no `java`"):
        check_java()
    shell = shutil.which("sh", path="/bin:/usr/bin")
    old = tmp_path / "java"
    old.write_text(f"#!{shell}\necho 'java version \"1.7.0_80\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(ConfigError, match=rf"{old} is version 7 \(tested: Java 17"):
        check_java()
    check_java.cache_clear()


def test_missing_packages_are_named_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scienceworld", None)
    monkeypatch.setattr(scienceworld_engine, "_running", [])
    with pytest.raises(UserError, match=r"dreamgym\[scienceworld\]"):
        ScienceworldSuite().tasks("train")
