from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cli_fixtures import collected

from dreamgym.dream.annotate import AnnotateConfig, Annotator, scenario_tasks
from dreamgym.dream.reply import ReplyProblem
from dreamgym.dream.teacher import (
    Teacher,
    TeacherConfig,
    parse_annotation,
    rationales,
    teacher_messages,
)
from dreamgym.envs.table import make_reader
from dreamgym.errors import ConfigError, DataError, ModelError
from dreamgym.llm.base import Message
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.pipeline.dreams import FitSettings
from dreamgym.pipeline.fitting import teach
from dreamgym.pipeline.logs import read_logs
from dreamgym.types import Rollout

TUTORIAL = {"overall_plan": "Find it.", "success_mode": "It is there.", "failure_mode": "Lost."}


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> list[Rollout]:
    return read_logs([str(collected(tmp_path_factory.mktemp("teacher")))]).rollouts


def steps_asked(messages: Sequence[Message]) -> list[str]:
    """Return the actions of the trajectory in the question, in order."""
    lines = messages[1].content.splitlines()
    return [line.partition(" action: ")[2] for line in lines if " action: " in line]


def answer(plans: Sequence[str]) -> str:
    return json.dumps({"tutorial": TUTORIAL, "transition_plans": list(plans)})


def good(messages: Sequence[Message]) -> str:
    return f"Sure:\n```json\n{answer([f'so {action}' for action in steps_asked(messages)])}\n```"


def annotate(
    script: Callable[[Sequence[Message]], str],
    rollout: Rollout,
    config: TeacherConfig | None = None,
) -> tuple[Teacher, ScriptedChat, dict[tuple[str, int], str]]:
    chat = ScriptedChat(script)
    teacher = Teacher(chat, config)
    found = asyncio.run(teacher.annotate_all([rollout]))
    return teacher, chat, rationales(found)


def test_the_teacher_reads_task_outcome_and_every_step(rollouts: list[Rollout]) -> None:
    rollout = rollouts[0]
    system, user = teacher_messages(rollout, TeacherConfig())
    assert "transition_plans" in system.content
    assert f"task: {rollout.task.instruction}" in user.content
    assert "succeeded: yes" in user.content
    assert steps_asked([system, user]) == [t.action for t in rollout.transitions]
    assert rollout.transitions[-1].next_observation.text.split(".")[0] in user.content


def test_one_request_annotates_every_step_of_a_trajectory(rollouts: list[Rollout]) -> None:
    rollout = rollouts[0]
    teacher, chat, found = annotate(good, rollout)
    assert chat.num_calls == 1
    assert found == {(t.episode_id, t.step): f"so {t.action}" for t in rollout.transitions}
    assert teacher.counters["teacher/annotated"] == 1


def test_a_wrong_number_of_plans_is_asked_again_with_the_count(rollouts: list[Rollout]) -> None:
    complaints: list[str] = []

    def forgets_one(messages: Sequence[Message]) -> str:
        plans = [f"so {action}" for action in steps_asked(messages)]
        if len(messages) == 2:
            return answer(plans[:-1])
        complaints.append(messages[-1].content)
        return answer(plans)

    rollout = rollouts[0]
    count = len(rollout.transitions)
    _, chat, found = annotate(forgets_one, rollout)
    assert chat.num_calls == 2
    assert f"{count - 1} transition plans for {count} steps" in complaints[0]
    assert len(found) == count


def test_a_teacher_that_never_answers_well_costs_a_bounded_number_of_calls(
    rollouts: list[Rollout],
) -> None:
    teacher, chat, found = annotate(
        lambda messages: answer(["one"] * 99), rollouts[0], TeacherConfig(attempts=2)
    )
    assert chat.num_calls == 2
    assert found == {}
    assert teacher.counters["teacher/faults"] == 1
    assert "99 transition plans" in teacher.reasons[rollouts[0].id]


def test_an_unreachable_teacher_is_a_fault_and_not_asked_again(rollouts: list[Rollout]) -> None:
    def down(messages: Sequence[Message]) -> str:
        raise ModelError("could not be reached")

    teacher, chat, found = annotate(down, rollouts[0])
    assert (chat.num_calls, found) == (1, {})
    assert teacher.counters["teacher/faults"] == 1


def test_a_teacher_that_is_down_is_given_up_and_all_its_episodes_counted(
    rollouts: list[Rollout],
) -> None:
    def down(messages: Sequence[Message]) -> str:
        raise ModelError("could not be reached")

    chat = ScriptedChat(down)
    teacher = Teacher(chat, TeacherConfig(give_up_after=2, max_concurrent=1))
    assert asyncio.run(teacher.annotate_all([*rollouts, *rollouts])) == []
    assert chat.num_calls == 2
    assert teacher.counters["teacher/faults"] == 2 * len(rollouts)


def test_a_reply_cut_at_the_token_limit_is_not_used(rollouts: list[Rollout]) -> None:
    teacher, _, found = annotate(good, rollouts[0], TeacherConfig(max_tokens=3, attempts=1))
    assert found == {}
    assert "cut at the token limit" in teacher.reasons[rollouts[0].id]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no idea", "no JSON object"),
        ('{"tutorial": {', "cut or broken"),
        ('{"tutorial": "x", "transition_plans": []}', "tutorial must be an object"),
        (json.dumps({"tutorial": TUTORIAL}), "transition_plans must be a list"),
    ],
)
def test_a_reply_that_is_no_annotation_says_why(
    text: str, problem: str, rollouts: list[Rollout]
) -> None:
    with pytest.raises(ReplyProblem, match=problem):
        parse_annotation(text, rollouts[0])


def test_empty_plans_and_missing_tutorials_are_refused(rollouts: list[Rollout]) -> None:
    count = len(rollouts[0].transitions)
    with pytest.raises(ReplyProblem, match="plan 1 must be text"):
        parse_annotation(answer([" ", *["x"] * (count - 1)]), rollouts[0])
    half = {"tutorial": {"overall_plan": "Go."}, "transition_plans": ["x"] * count}
    with pytest.raises(ReplyProblem, match=r"tutorial\.success_mode"):
        parse_annotation(json.dumps(half), rollouts[0])


def test_plans_cannot_end_a_rationale_early(rollouts: list[Rollout]) -> None:
    count = len(rollouts[0].transitions)
    found = parse_annotation(answer(["a</think>\nb"] * count), rollouts[0])
    assert found.plans == ("a b",) * count


def test_taught_rationales_replace_those_of_the_reader_and_only_those(
    rollouts: list[Rollout],
) -> None:
    reader = make_reader("household").learned([t for r in rollouts for t in r.transitions])
    tasks = scenario_tasks(rollouts, reader)
    first = rollouts[0].transitions[0]
    taught = {(first.episode_id, first.step): "because I say so"}
    config = AnnotateConfig(negatives=1, relabel=0)
    plain = Annotator(reader, tasks, buffer=None, config=config)
    with_teacher = Annotator(reader, tasks, buffer=None, config=config, rationales=taught)
    before = [e.rationale for e in plain.annotate(rollouts[0])]
    after = [e.rationale for e in with_teacher.annotate(rollouts[0])]
    assert after == ["because I say so", *before[1:]]


def test_a_killed_annotation_asks_nothing_twice(rollouts: list[Rollout], tmp_path: Path) -> None:
    settings = FitSettings()
    first, again = ScriptedChat(good), ScriptedChat(good)
    found, _ = teach(settings, rollouts[:1], tmp_path, first)
    more, counters = teach(settings, rollouts[:2], tmp_path, again)
    assert (first.num_calls, again.num_calls) == (1, 1)
    assert found.items() <= more.items()
    assert counters["teacher/annotated"] == 2
    assert len(json.loads((tmp_path / "annotations.json").read_text())) == 2


def test_a_teacher_that_answers_nothing_at_all_stops_the_fit(
    rollouts: list[Rollout], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="annotated none of 2 episodes; first reason: there is no"):
        teach(FitSettings(), rollouts[:2], tmp_path, ScriptedChat(lambda messages: "hm"))


def test_no_teacher_means_no_rationales(rollouts: list[Rollout], tmp_path: Path) -> None:
    assert teach(FitSettings(), rollouts, tmp_path) == ({}, {})
    assert list(tmp_path.iterdir()) == []


def test_limits_of_a_teacher_must_allow_something() -> None:
    with pytest.raises(ConfigError, match="attempts must be at least 1"):
        TeacherConfig(attempts=0)
