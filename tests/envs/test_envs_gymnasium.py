from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dreamgym.envs.check import CheckSettings, check_suite
from dreamgym.envs.check.spec import open_spec
from dreamgym.envs.gymnasium_shapes import read_reset, read_step
from dreamgym.envs.gymnasium_suite import GymnasiumSuite
from dreamgym.errors import ConfigError, DataError, EnvError
from dreamgym.types import Step

gymnasium = pytest.importorskip("gymnasium", reason="needs the extra gymnasium")

LAKE: dict[str, Any] = {"env_id": "FrozenLake-v1", "actions": ["left", "down", "right", "up"]}


Base: Any = gymnasium.Env


class Spelling(Base):  # type: ignore[misc]
    """A text environment: spell a word the reset chooses."""

    observation_space = gymnasium.spaces.Text(200)
    action_space = gymnasium.spaces.Text(20)
    fails = False

    def reset(
        self, *, seed: int | None = None, options: object = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.word = ["ant", "bee", "cow"][int(self.np_random.integers(3))]
        return f"Spell: {'-'.join(self.word)}", {"admissible_commands": [self.word, "pass"]}

    def step(self, action: str) -> Any:
        if self.fails:
            raise TimeoutError("the page does not load")
        won = action == self.word
        info = {"won": won, "admissible_commands": [self.word, "pass"]}
        return ("right" if won else f"{action} is wrong"), float(won), won, False, info


class Failing(Spelling):
    fails = True


class Finishing(Spelling):
    """Terminates without success (a lost game)."""

    def step(self, action: str) -> Any:
        return "over", 0.0, True, False, {}


def play(suite: GymnasiumSuite, *actions: str) -> list[Step]:
    async def run() -> list[Step]:
        env = suite.open(suite.tasks("train")[0], seed=0)
        await env.start()
        steps = [await env.step(action) for action in actions]
        await env.close()
        return steps

    return asyncio.run(run())


def text_suite(env: str = "Spelling", **options: Any) -> GymnasiumSuite:
    return GymnasiumSuite(
        env_id=f"test_envs_gymnasium:{env}", instruction="Spell the word.", **options
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: GymnasiumSuite(**LAKE, max_steps=10),
        lambda: GymnasiumSuite(env_id="Blackjack-v1", max_steps=10),
        lambda: text_suite(max_steps=10),
    ],
)
def test_environments_of_every_kind_conform(make: Callable[[], GymnasiumSuite]) -> None:
    check_suite(make(), CheckSettings(num_admissible=12)).raise_for_failures()


def test_a_text_environment_is_played_in_its_own_words() -> None:
    suite = text_suite()
    task = suite.tasks("train")[0]
    env = suite.open(task, seed=0)
    first = asyncio.run(env.start())
    assert first.text.startswith("Spell the word.\nSpell: ")
    assert first.actions is not None
    (wrong, right) = play(suite, "dog", first.actions[0])
    assert (wrong.observation.text, wrong.success) == ("dog is wrong", False)
    assert (right.reward, right.terminated, right.success) == (1.0, True, True)


def test_the_picture_of_a_grid_is_the_observation_and_marks_the_player() -> None:
    (step,) = play(GymnasiumSuite(**LAKE, make={"is_slippery": False}), "Down")
    assert step.observation.text == "(Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"
    assert step.observation.actions == ("left", "down", "right", "up")


def test_an_unknown_action_changes_nothing_and_is_flagged() -> None:
    unknown, known = play(GymnasiumSuite(**LAKE, make={"is_slippery": False}), "jump", "right")
    assert unknown.flags == ("no_effect", "invalid_action") and unknown.reward == 0.0
    assert known.observation.text.startswith("(Right)\nS[F]FF")


def test_being_over_is_not_success() -> None:  # RWD-07
    (step,) = play(text_suite("Finishing"), "x")
    assert step.terminated and not step.success
    hole = play(GymnasiumSuite(**LAKE, make={"is_slippery": False}), "right", "down")[-1]
    assert hole.terminated and not hole.success and hole.reward == 0.0


def test_the_step_limit_truncates() -> None:  # CTX-04
    last = play(text_suite(max_steps=2), "x", "y")[-1]
    assert last.truncated and not last.terminated and not last.success


def test_a_timeout_is_a_fault_and_no_reward() -> None:  # ENV-10
    with pytest.raises(EnvError, match="the page does not load"):
        play(text_suite("Failing"), "x")


def test_the_same_task_is_the_same_game() -> None:  # ENV-04
    suite = text_suite()
    tasks = suite.tasks("train")
    firsts = [asyncio.run(suite.open(t, seed=s).start()).text for t in tasks for s in (0, 7)]
    assert firsts[0::2] == firsts[1::2] and len(set(firsts)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the option env_id"),
        ({"env_id": "FrozenLak-v1"}, "Gymnasium does not know 'FrozenLak-v1'"),
        ({"env_id": "test_envs_gymnasium:Nothing"}, "cannot load the environment"),
        ({"env_id": "Pendulum-v1"}, "expected Text or Discrete actions"),
        ({"env_id": "FrozenLake-v1", "actions": "left,right"}, "has 4 actions; got 2 name"),
        ({"env_id": "FrozenLake-v1", "max_steps": 0}, "max_steps is 0; expected a whole number"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GymnasiumSuite(**options).tasks("train")
    assert message in str(caught.value)


def test_a_task_of_another_environment_is_refused() -> None:
    task = text_suite().tasks("train")[0]
    with pytest.raises(DataError, match="is no task of FrozenLake-v1"):
        GymnasiumSuite(**LAKE).open(task, seed=0)


def test_options_can_come_from_the_command_line() -> None:
    suite = open_spec('gymnasium?env_id="FrozenLake-v1"&actions="left, down, right, up"')
    first = asyncio.run(suite.open(suite.tasks("test")[0], seed=0).start())
    assert first.actions == ("left", "down", "right", "up")


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("hello", ("hello", {})),
        (("hello", None), ("hello", {})),
        (("hello", {"a": 1}), ("hello", {"a": 1})),
        ((["hello"], {"won": [False]}), ("hello", {"won": False})),
    ],
)
def test_resets_of_every_shape_become_one(returned: Any, expected: Any) -> None:  # ENV-01
    assert read_reset(returned) == expected


def test_steps_of_every_shape_become_one() -> None:  # ENV-01
    old = read_step(("a", 1, True, None))
    assert (old.terminated, old.truncated, old.info) == (True, False, {})
    cut = read_step(("a", 0, True, {"TimeLimit.truncated": True}))
    assert (cut.terminated, cut.truncated) == (False, True)
    new = read_step(("a", 0.5, False, True, {}))
    assert (new.reward, new.terminated, new.truncated) == (0.5, False, True)
    batch = read_step((["a"], [1], [True], {"won": [True]}))
    assert (batch.observation, batch.reward, batch.info) == ("a", 1.0, {"won": True})


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (("a", 0, False), "step returned 3 values; expected observation, reward, terminated"),
        ("a", "step returned str"),
        (("a", None, False, {}), "the reward None, which is no number"),
        (("a", 0, False, "info"), "info is a str"),
    ],
)
def test_other_shapes_are_a_clear_fault(returned: Any, message: str) -> None:  # ENV-01
    with pytest.raises(EnvError) as caught:
        read_step(returned)
    assert message in str(caught.value)
