from __future__ import annotations

import asyncio
import json
import lzma
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dreamgym.envs.alfworld_engine import EnginePool, Turn, checked_sentence
from dreamgym.envs.alfworld_suite import AlfworldSuite
from dreamgym.envs.check import CheckSettings, check_suite
from dreamgym.errors import ConfigError, DataError, EnvError, MissingExtra

_DEFAULT = Path(__file__).resolve().parents[2].parent / "shared" / "data"
DATA = Path(os.environ.get("DREAMGYM_DATA", _DEFAULT))
GOLDEN = DATA / "alfworld_golden_valid_seen.json.xz"


class FakeEngine:
    """Answers like the engine: go to the shelf, take the pen, and the task is done."""

    is_broken = False

    def start(self, problem: str, sentence: str) -> Turn:
        self.place = "room"
        return Turn(
            f"A room with a shelf 1.\n\nYour task is to: {sentence}", self._actions(), False
        )

    def step(self, command: str) -> Turn:
        if self.is_broken:
            raise EnvError("ALFWorld's engine failed")
        if command not in self._actions():
            return Turn("Nothing happens.", self._actions(), False)
        self.place = "shelf" if command == "go to shelf 1" else self.place
        said = {"look": f"You are at the {self.place}.", "go to shelf 1": "You arrive at shelf 1."}
        won = command == "take pen 1 from shelf 1"
        return Turn(said.get(command, "You pick up the pen 1."), self._actions(), won)

    def _actions(self) -> tuple[str, ...]:
        here = "take pen 1 from shelf 1" if self.place == "shelf" else "go to shelf 1"
        return (here, "look")


def packed(folder: Path, count: int = 3) -> Path:
    games = [
        {"id": f"pick_and_place_simple-Pen-None-Shelf-{i}/t{i}", "task": f"take pen {i}.",
         "pddl_problem": f"(problem {i})"}
        for i in range(count)
    ]  # fmt: skip
    for split in AlfworldSuite.splits:
        named = [{**game, "id": f"{game['id']}-{split}"} for game in games]
        (folder / f"alfworld_{split}.json").write_text(json.dumps(named), "utf-8")
    return folder


def suite_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, engine: Any = FakeEngine
) -> AlfworldSuite:
    from dreamgym.envs import alfworld_suite

    monkeypatch.setattr(alfworld_suite, "check_installed", lambda: None)
    suite = AlfworldSuite(data=packed(folder), max_steps=6)
    suite.pool = EnginePool(engine)
    return suite


def test_the_adapter_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = suite_with(tmp_path, monkeypatch)
    check_suite(suite, CheckSettings(num_admissible=8)).raise_for_failures()


def test_engines_are_reused_and_never_shared_by_open_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        tasks = suite.tasks("train")
        for task in list(tasks) * 20:
            env = suite.open(task, seed=0)
            await env.start()
            await env.close()
            await env.close()
        assert suite.pool.num_made == 1
        open_ones = [suite.open(task, seed=0) for task in tasks]
        for env in open_ones:
            await env.start()
        assert suite.pool.num_made == 3
        await open_ones[0].step("go to shelf 1")
        assert "room" in (await open_ones[1].step("look")).observation.text

    suite = suite_with(tmp_path, monkeypatch)
    asyncio.run(run())


def test_success_comes_from_the_engine_and_the_limit_truncates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # RWD-07, ENV-07
    async def run() -> None:
        env = suite.open(suite.tasks("train")[0], seed=0)
        await env.start()
        await env.step("go to shelf 1")
        won = await env.step("take pen 1 from shelf 1")
        assert (won.reward, won.terminated, won.success) == (1.0, True, True)
        lost = suite.open(suite.tasks("train")[0], seed=0)
        await lost.start()
        last = [await lost.step("look") for _ in range(6)][-1]
        assert (last.truncated, last.terminated, last.success) == (True, False, False)

    suite = suite_with(tmp_path, monkeypatch)
    asyncio.run(run())


def test_a_failing_engine_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(FakeEngine):
        is_broken = True

    suite = suite_with(tmp_path, monkeypatch, Broken)
    env = suite.open(suite.tasks("train")[0], seed=0)
    asyncio.run(env.start())
    with pytest.raises(EnvError, match="engine failed"):
        asyncio.run(env.step("look"))


def test_missing_data_and_packages_are_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # ENV-03
    from dreamgym.envs.alfworld_engine import _packages

    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(ConfigError, match="set the option data"):
        AlfworldSuite().tasks("train")
    with pytest.raises(DataError, match="does not exist"):
        AlfworldSuite(data=tmp_path / "none").tasks("train")
    _packages.cache_clear()
    monkeypatch.setitem(sys.modules, "fast_downward", None)
    monkeypatch.setitem(sys.modules, "textworld", None)
    suite = AlfworldSuite(data=packed(tmp_path))
    with pytest.raises(MissingExtra, match=r"pip install 'dreamgym\[alfworld\]'"):
        suite.open(suite.tasks("train")[0], seed=0)
    _packages.cache_clear()


@pytest.mark.parametrize("sentence", ['put "x"', "{__import__('os')}", "#task#", "a|b", "a\nb", ""])
def test_a_task_sentence_cannot_be_a_grammar(sentence: str) -> None:  # SEC-06
    with pytest.raises(DataError, match="expected plain words"):
        checked_sentence(sentence)
    assert checked_sentence("put a pen, the 2nd one.") == "put a pen, the 2nd one."


def test_the_genuine_engine_gives_the_recorded_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fast_downward", reason="needs the extra alfworld")
    pytest.importorskip("alfworld", reason="needs the extra alfworld")
    if not GOLDEN.is_file():
        pytest.skip(f"needs the ALFWorld test data in {DATA} (or DREAMGYM_DATA)")
    before = dict(os.environ), list(sys.argv)
    suite = AlfworldSuite(data=DATA)
    tasks = {task.id: task for task in suite.tasks("valid_seen")}

    async def replay(episode: dict[str, Any]) -> None:
        env = suite.open(tasks[episode["id"]], seed=0)
        first = await env.start()
        assert first.text == episode["first"].strip()
        assert sorted(first.actions or ()) == sorted(episode["admissible"])
        for recorded in episode["steps"]:
            step = await env.step(recorded["action"])
            assert step.observation.text == recorded["feedback"].strip()
            assert sorted(step.observation.actions or ()) == sorted(recorded["admissible"])
            assert (step.reward, step.success) == (recorded["reward"], recorded["won"])
        await env.close()

    for episode in json.loads(lzma.decompress(GOLDEN.read_bytes()))[:2]:
        asyncio.run(replay(episode))
    assert suite.pool.num_made == 1
    assert (dict(os.environ), sys.argv) == before
