"""Scripted policies: what they know, how they fare, that seeds decide everything."""

from __future__ import annotations

import asyncio
import re

import pytest

from dreamgym.envs.base import Policy
from dreamgym.envs.household.policies import POLICIES, make_policy
from dreamgym.envs.household.searcher import Request, read_request
from dreamgym.envs.household.suite import HouseholdSuite
from dreamgym.errors import ConfigError
from dreamgym.types import Step, Task


async def play(
    suite: HouseholdSuite, policy: Policy, task: Task, seed: int
) -> tuple[list[str], list[Step]]:
    env, actor = suite.open(task, seed=seed), policy.start(task, seed=seed)
    observation = await env.start()
    commands: list[str] = []
    steps: list[Step] = []
    while not steps or not (steps[-1].terminated or steps[-1].truncated):
        completion = await actor.act(observation)
        turn = re.fullmatch(r"(?:<think>[^<]+</think>)?<action>(.*)</action>", completion.text)
        assert turn is not None
        assert completion.token_ids == ()
        commands.append(turn[1])
        steps.append(await env.step(commands[-1]))
        observation = steps[-1].observation
    await actor.close()
    await env.close()
    return commands, steps


def results(
    suite: HouseholdSuite, name: str, **options: object
) -> list[tuple[list[str], list[Step]]]:
    policy = suite.policy(name, **options)
    return [asyncio.run(play(suite, policy, task, 0)) for task in suite.tasks("valid_unseen")]


def success_rate(played: list[tuple[list[str], list[Step]]]) -> float:
    return sum(steps[-1].success for _, steps in played) / len(played)


@pytest.mark.parametrize("size", ["small", "full"])
def test_the_expert_wins_every_game_without_a_wasted_command(size: str) -> None:
    played = results(HouseholdSuite(size=size, num_tasks=60), "expert")
    assert success_rate(played) == 1.0
    assert not any(step.flags for _, steps in played for step in steps)


def test_the_noisy_expert_strays_and_still_wins_mostly() -> None:
    suite = HouseholdSuite(num_tasks=60)
    played, straight = results(suite, "noisy"), results(suite, "noisy", p=0.0)
    assert success_rate(played) >= 0.9
    assert straight == results(suite, "expert")
    assert sum(len(c) for c, _ in played) > 1.3 * sum(len(c) for c, _ in straight)


def test_the_searcher_knows_nothing_hidden_and_wins_most_games() -> None:
    suite = HouseholdSuite(num_tasks=60)
    played, expert = results(suite, "searcher"), results(suite, "expert")
    assert success_rate(played) >= 0.95
    assert sum(len(c) for c, _ in played) > sum(len(c) for c, _ in expert)


def test_the_searcher_says_which_fact_it_acts_on() -> None:
    suite = HouseholdSuite(num_tasks=20)
    task = suite.tasks("train")[0]
    policy = suite.policy("searcher")

    async def thoughts() -> list[tuple[str, str]]:
        env, actor = suite.open(task, seed=0), policy.start(task, seed=0)
        observation, said = await env.start(), []
        while True:
            think, _, action = (await actor.act(observation)).text.partition("</think><action>")
            said.append((think.removeprefix("<think>"), action.removesuffix("</action>")))
            step = await env.step(said[-1][1])
            observation = step.observation
            if step.terminated:
                return said

    wanted = read_request(task.instruction)
    assert wanted is not None
    said = asyncio.run(thoughts())
    taken = next((thought, action) for thought, action in said if action.startswith("take "))
    thing = taken[1].split(" from ")[0].removeprefix("take ")
    assert taken[0] == f"need {wanted.object_kind}. {thing} here."
    assert said[-1][0].startswith(f"have {thing}.")


def test_a_dawdling_searcher_wins_later_and_dawdles_harmlessly() -> None:
    suite = HouseholdSuite(num_tasks=40, max_steps=200)
    brisk, slow = results(suite, "searcher"), results(suite, "searcher", dawdles=0.5)
    assert success_rate(slow) >= success_rate(brisk)
    idle = [c for commands, _ in slow for c in commands if re.match("look|inventory|examine", c)]
    share = len(idle) / sum(len(commands) for commands, _ in slow)
    assert 0.4 < share < 0.6
    texts = [step.observation.text for _, steps in slow for step in steps]
    assert "Nothing happens." not in texts


def test_a_slipping_searcher_finds_its_way_back() -> None:
    suite = HouseholdSuite(num_tasks=40, max_steps=100)
    played = results(suite, "searcher", slips=0.2)
    texts = [step.observation.text for _, steps in played for step in steps]
    assert 0 < texts.count("Nothing happens.") < 0.2 * len(texts)
    assert success_rate(played) >= 0.9


def test_the_searcher_starts_the_same_way_in_rooms_that_look_the_same() -> None:
    suite = HouseholdSuite(num_tasks=30)
    for task in suite.tasks("train"):
        first = asyncio.run(suite.open(task, seed=0).start())
        actor = suite.policy("searcher").start(
            Task(id="unknown", suite="other", instruction=task.instruction), seed=0
        )
        known = suite.policy("searcher").start(task, seed=0)
        assert asyncio.run(actor.act(first)) == asyncio.run(known.act(first))


@pytest.mark.parametrize("size", ["small", "full"])
def test_the_survey_sees_the_inside_of_every_receptacle_and_then_wins(size: str) -> None:
    suite = HouseholdSuite(size=size, num_tasks=40, max_steps=200)
    for task, (_, steps) in zip(suite.tasks("valid_unseen"), results(suite, "survey"), strict=True):
        text = "\n".join(step.observation.text for step in steps)
        for receptacle in suite.world(task).receptacles:
            looked = (
                f"On the {receptacle.name}, you see",
                f"The {receptacle.name} is open. In it, you see",
            )
            assert any(words in text for words in looked), receptacle.name
        assert steps[-1].success


def test_random_play_is_mostly_admissible_and_sometimes_deliberately_not() -> None:
    suite = HouseholdSuite(num_tasks=60)
    for options, low, high in (({}, 0.09, 0.15), ({"illegal": 0.0}, 0.0, 0.0)):
        played = results(suite, "random", **options)
        flags = [bool(step.flags) for _, steps in played for step in steps]
        assert low <= sum(flags) / len(flags) <= high
    assert success_rate(played) < 0.2


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_seed_decides_the_whole_episode(name: str) -> None:
    suite = HouseholdSuite(num_tasks=12)
    policy = suite.policy(name)
    assert policy.name == name
    different = 0
    for task in suite.tasks("train"):
        one = asyncio.run(play(suite, policy, task, 1))
        assert one == asyncio.run(play(suite, make_policy(name, suite), task, 1))
        different += one != asyncio.run(play(suite, policy, task, 2))
    assert (different > 0) == (name in ("noisy", "random", "survey"))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("expertt", {}, "did you mean 'expert'"),
        ("random", {"ilegal": 0.1}, "did you mean 'illegal'"),
        ("noisy", {"p": 1.5}, "p is 1.5; expected a number from 0 to 1"),
        ("noisy", {"p": True}, "p is True"),
    ],
)
def test_wrong_policy_names_and_options_are_explained(
    name: str, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        HouseholdSuite(num_tasks=1).policy(name, **options)


def test_task_sentences_are_read_in_every_template() -> None:
    read = read_request("find two pen and put them in drawer.")
    assert read == Request("pick_two_obj_and_place", "pen", "drawer")
    assert read_request("examine the cd with the desklamp.") == Request(
        "look_at_obj_in_light", "cd", "desklamp"
    )
    assert read_request("solve world hunger") is None


def test_env_07_a_lost_searcher_is_reported_as_failed() -> None:
    suite = HouseholdSuite(num_tasks=1, max_steps=2)
    _, steps = asyncio.run(play(suite, suite.policy("searcher"), suite.tasks("train")[0], 0))
    assert (steps[-1].success, steps[-1].truncated, steps[-1].reward) == (False, True, 0.0)
