"""The suite and its episodes: options, limits, independence of parallel episodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dreamgym.envs.base import Env, Suite
from dreamgym.envs.household.generator import generate_game
from dreamgym.envs.household.guard import engine_calls, engine_forbidden
from dreamgym.envs.household.suite import HouseholdSuite
from dreamgym.envs.table import SUITES, make_reader, make_suite
from dreamgym.errors import ConfigError, DataError, EnvError, UserError
from dreamgym.seeds import derive_random
from dreamgym.types import Observation, Step, Task


def test_the_suite_and_its_episodes_follow_the_protocols() -> None:
    suite = make_suite("household", size="small", num_tasks=3)
    assert isinstance(suite, Suite)
    assert isinstance(suite.open(suite.tasks("train")[0], seed=0), Env)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make_suite("houshold"), "unknown suite 'houshold'; did you mean 'household'"),
        (lambda: make_suite("household", sizes="small"), "did you mean 'size'"),
        (lambda: make_suite("household", size="smal"), "unknown room size 'smal'; did you mean"),
        (lambda: make_suite("household", source="oficial"), "did you mean 'official'"),
        (lambda: make_suite("household", kinds=["look_at_obj"]), "did you mean 'look_at_obj_in_l"),
        (lambda: make_suite("household", kinds=[]), "kinds is empty"),
        (lambda: make_suite("household", num_tasks=0), "num_tasks is 0"),
        (lambda: make_suite("household", max_steps=True), "max_steps is True"),
        (lambda: make_suite("household", seed=-1), "seed is -1"),
        (lambda: make_suite("household").tasks("valid_unsen"), "did you mean 'valid_unseen'"),
        (lambda: make_reader("houshold"), "did you mean 'household'"),
    ],
)
def test_wrong_options_are_answered_with_the_nearest_right_one(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=words):
        call()


def test_official_games_need_a_place_to_read_from(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        make_suite("household", source="official", data=tmp_path / "nowhere")
    suite = make_suite("household", source="official", data=tmp_path)
    with pytest.raises(DataError, match="no ALFWorld games for split 'train'"):
        suite.tasks("train")


def test_every_listed_suite_can_be_imported() -> None:
    for name in SUITES:
        assert make_suite(name).name == name


def test_a_task_carries_sentence_kind_room_and_split() -> None:
    suite = HouseholdSuite(num_tasks=12)
    for task in suite.tasks("valid_unseen"):
        first = asyncio.run(suite.open(task, seed=0).start())
        assert first.text.endswith(f"Your task is to: {task.instruction}")
        assert task.split == "valid_unseen" and task.kind in task.id
        assert task.room.startswith("small-")
        assert suite.task(task.id) == task


def test_a_step_reports_reward_admissible_commands_and_flags() -> None:
    async def check() -> None:
        suite = HouseholdSuite(num_tasks=1)
        task = suite.tasks("train")[0]
        env = suite.open(task, seed=0)
        first = await env.start()
        assert first.actions is not None and "look" in first.actions
        nothing = await env.step("fly to the moon")
        assert nothing.observation.text == "Nothing happens."
        assert nothing.flags == ("no_effect",) and nothing.reward == 0.0
        steps = [await env.step(command) for command in generate_game(task.id).plan]
        assert all(step.flags == () for step in steps)
        assert [(s.reward, s.terminated, s.success) for s in steps[:-1]] == (
            [(0.0, False, False)] * (len(steps) - 1)
        )
        assert (steps[-1].reward, steps[-1].terminated, steps[-1].truncated) == (1.0, True, False)
        assert steps[-1].success

    asyncio.run(check())


def test_rwd_07_the_step_limit_truncates_and_is_no_success() -> None:
    async def check() -> None:
        suite = HouseholdSuite(num_tasks=1, max_steps=4)
        env = suite.open(suite.tasks("train")[0], seed=0)
        await env.start()
        steps = [await env.step("look") for _ in range(4)]
        assert [step.truncated for step in steps] == [False, False, False, True]
        assert not any(step.terminated or step.success or step.reward for step in steps)

    asyncio.run(check())


def test_rwd_07_winning_with_the_last_allowed_step_is_a_success_not_a_truncation() -> None:
    async def check() -> None:
        task = HouseholdSuite(num_tasks=1).tasks("train")[0]
        plan = generate_game(task.id).plan
        env = HouseholdSuite(max_steps=len(plan)).open(task, seed=0)
        await env.start()
        last = [await env.step(command) for command in plan][-1]
        assert (last.terminated, last.truncated, last.success) == (True, False, True)

    asyncio.run(check())


def test_an_episode_is_used_once() -> None:
    async def check() -> None:
        suite = HouseholdSuite(num_tasks=1, max_steps=1)
        env = suite.open(suite.tasks("train")[0], seed=0)
        with pytest.raises(EnvError, match="before start"):
            await env.step("look")
        await env.start()
        with pytest.raises(EnvError, match="used once"):
            await env.start()
        await env.step("look")
        with pytest.raises(EnvError, match="after its end"):
            await env.step("look")
        await env.close()
        await env.close()

    asyncio.run(check())


def test_dreamt_and_foreign_tasks_have_no_real_game() -> None:
    suite = HouseholdSuite(num_tasks=1)
    task = suite.tasks("train")[0]
    for wrong in (
        Task(id=task.id, suite="webshop", instruction=task.instruction),
        Task(id=task.id, suite="household", instruction=task.instruction, generated=True),
    ):
        with pytest.raises(DataError, match="no real household game"):
            suite.open(wrong, seed=0)


async def episode(suite: HouseholdSuite, task: Task, number: int) -> list[Observation | Step]:
    random = derive_random("test parallel", task.id, number)
    env = suite.open(task, seed=number)
    observation = await env.start()
    records: list[Observation | Step] = [observation]
    for _ in range(12):
        await asyncio.sleep(0)
        assert observation.actions is not None
        step = await env.step(random.choice(observation.actions))
        records.append(step)
        observation = step.observation
        if step.terminated:
            break
    await env.close()
    return records


def test_a_thousand_interleaved_episodes_give_the_records_of_sequential_ones() -> None:
    suite = HouseholdSuite(num_tasks=50)
    tasks = suite.tasks("train")
    jobs = [(tasks[number % len(tasks)], number) for number in range(1_000)]

    async def together() -> list[list[Observation | Step]]:
        return await asyncio.gather(*(episode(suite, task, number) for task, number in jobs))

    async def in_turn() -> list[list[Observation | Step]]:
        return [await episode(suite, task, number) for task, number in jobs]

    assert asyncio.run(together()) == asyncio.run(in_turn())


def test_the_guard_counts_and_forbids_the_engine() -> None:
    suite = HouseholdSuite(num_tasks=1)
    task = suite.tasks("train")[0]

    async def two_calls() -> None:
        env = suite.open(task, seed=0)
        await env.start()
        await env.step("look")

    before = engine_calls()
    asyncio.run(two_calls())
    assert engine_calls() == before + 2
    with engine_forbidden(), pytest.raises(RuntimeError, match="forbidden"):
        asyncio.run(two_calls())
    assert engine_calls() == before + 2
    asyncio.run(two_calls())


def official_file(folder: Path, name: str, **changes: object) -> Path:
    problem = """
    (define (problem plan) (:domain alfred)
    (:objects agent1 - agent Mug_bar_1 - object Desk_bar_1 - receptacle Shelf_bar_1 - receptacle)
    (:init
    (receptacleType Desk_bar_1 DeskType) (receptacleType Shelf_bar_1 ShelfType)
    (objectType Mug_bar_1 MugType) (pickupable Mug_bar_1) ; a comment (ignored
    (canContain DeskType MugType) (canContain ShelfType MugType)
    (receptacleAtLocation Desk_bar_1 loc_bar_1) (receptacleAtLocation Shelf_bar_1 loc_bar_2)
    (objectAtLocation Mug_bar_1 loc_bar_1) (inReceptacle Mug_bar_1 Desk_bar_1)
    (atLocation agent1 loc_bar_3) (= (distance loc_bar_1 loc_bar_2) 4))
    (:goal (and (exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r)
    (objectType ?o MugType) (receptacleType ?r ShelfType)))))))"""
    game = {
        "pddl_domain": "(define (domain alfred))",
        "grammar": 'grammar :: """{"task": [{"rhs": "Your task is to: put a mug in shelf."}]}"""',
        "pddl_problem": problem,
        "solvable": True,
        "walkthrough": ["go to desk 1"],
    }
    path = folder / "json_2.1.1" / "train" / name / "trial_T1" / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**game, **changes}))
    return path


def test_official_game_files_are_listed_sorted_and_playable(tmp_path: Path) -> None:
    official_file(tmp_path, "pick_and_place_simple-Mug-None-Shelf-9")
    official_file(tmp_path, "pick_and_place_simple-Mug-None-Shelf-10")
    official_file(tmp_path, "pick_and_place_simple-Mug-None-Shelf-11", solvable=False)
    official_file(tmp_path, "pick_and_place_with_movable_recep-Mug-Cup-Shelf-12")
    suite = HouseholdSuite(source="official", data=tmp_path)
    tasks = suite.tasks("train")
    assert [task.room for task in tasks] == ["FloorPlan10", "FloorPlan9"]
    assert tasks[0].instruction == "put a mug in shelf."

    async def play() -> Step:
        env = suite.open(tasks[0], seed=0)
        first = await env.start()
        assert "you see a desk 1, and a shelf 1." in first.text
        await env.step("go to desk 1")
        await env.step("take mug 1 from desk 1")
        await env.step("go to shelf 1")
        return await env.step("put mug 1 in/on shelf 1")

    assert asyncio.run(play()).success
    with pytest.raises(DataError, match="no official game"):
        suite.task("pick_and_place_simple-Mug-None-Shelf-99/trial_T1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git-LFS pointer"),
        (b'{"pddl_domain": "", "gram', "valid JSON"),
        (b"\xff\xfe\x00", "valid JSON"),
        (b"[]", "lacks pddl_domain"),
        (b'{"pddl_domain": "", "grammar": ""}', "lacks pddl_problem"),
        (b'{"pddl_domain": "", "grammar": "UNKNOWN", "pddl_problem": ""}', "names no task"),
    ],
)
def test_wrong_official_files_are_explained(tmp_path: Path, content: bytes, words: str) -> None:
    path = official_file(tmp_path, "pick_and_place_simple-Mug-None-Shelf-9")
    path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        HouseholdSuite(source="official", data=tmp_path).tasks("train")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("(:goal", "(:gaol", r"no \(:goal"),
        ("(receptacleType ?r ShelfType)))))))", "(receptacleType ?r", "brackets"),
        ("(inReceptacle ?o ?r)", "(floating ?o ?r)", "none of the six"),
        ("(atLocation agent1 loc_bar_3)", "", "0 agent locations"),
        ("(objectType Mug_bar_1 MugType)", "(objectType Mug_bar_1 CupType)", "asks for a mug"),
        ("(inReceptacle Mug_bar_1 Desk_bar_1)", "(inReceptacle Mug_bar_1)", "1 arguments"),
    ],
)
def test_damaged_problem_texts_are_explained(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = official_file(tmp_path, "pick_and_place_simple-Mug-None-Shelf-9")
    game = json.loads(path.read_text())
    assert old in game["pddl_problem"]
    game["pddl_problem"] = game["pddl_problem"].replace(old, new)
    path.write_text(json.dumps(game))
    suite = HouseholdSuite(source="official", data=tmp_path)
    with pytest.raises(DataError, match=words):
        suite.open(suite.tasks("train")[0], seed=0)


def test_packs_that_are_cut_off_or_of_another_shape_are_explained(tmp_path: Path) -> None:
    pack = tmp_path / "alfworld_train.json.xz"
    for content, words in ((b"\xfd7zXZ\x00\x00", "complete .xz"), (b"hello", "complete .xz")):
        pack.write_bytes(content)
        with pytest.raises(DataError, match=words):
            HouseholdSuite(source="official", data=pack).tasks("train")
    plain = tmp_path / "alfworld_valid_seen.json"
    for text, words in (("{}", "no list of games"), ('[{"id": 3}]', "item 0 of")):
        plain.write_text(text)
        with pytest.raises(DataError, match=words):
            HouseholdSuite(source="official", data=tmp_path).tasks("valid_seen")
