from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from curriculum_fakes import proposing, seed_task, template_key, validate
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym.curriculum.generate import GeneratorConfig, TaskGenerator
from dreamgym.curriculum.prompts import (
    Example,
    parse_facts,
    parse_pick,
    parse_variations,
    pick_messages,
    scenario_messages,
    scenario_target,
    vary_messages,
    vary_target,
)
from dreamgym.curriculum.writer import ChatScenarioWriter, SameWorld, retarget
from dreamgym.dream.reply import ReplyProblem
from dreamgym.errors import ConfigError, DataError, ModelError, UserError
from dreamgym.llm.base import Message
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.types import Scenario, Task


def generator(
    *proposals: str, pick: int = 1, evaluation: Sequence[Task] = (), writer: Any = None,
    **config: Any,
) -> TaskGenerator:  # fmt: skip
    chat = ScriptedChat(proposing(lambda seed: proposals, pick))
    return TaskGenerator(
        chat, validate=validate, template_key=template_key, evaluation_tasks=evaluation,
        scenario_writer=writer, config=GeneratorConfig(proposals=8, **config),
    )  # fmt: skip


def generate(maker: TaskGenerator, *seeds: Task, existing: Sequence[Task] = ()) -> list[Task]:
    return asyncio.run(maker.generate(seeds or (seed_task(),), seed=0, existing=existing))


def evaluation_task(instruction: str) -> Task:
    return Task(id="eval-1", suite="household", instruction=instruction, split="valid_unseen")


def test_a_variation_becomes_a_generated_task_of_its_seed() -> None:
    (task,) = generate(generator("put a bowl in desk."))
    assert (task.instruction, task.generated, task.parent_id) == ("put a bowl in desk.", True,
                                                                  "seed-0")  # fmt: skip
    assert (task.suite, task.split, task.room) == ("household", "train", "room")
    assert [task] == generate(generator("put a bowl in desk."))  # the same id every time
    other = generate(generator("put a bowl in desk."), seed_task(1))
    assert other[0].id != task.id


def test_the_second_stage_picks_and_can_be_left_out() -> None:
    options = ("put a bowl in desk.", "put two pen in fridge.")
    assert generate(generator(*options, pick=2))[0].instruction == "put two pen in fridge."
    single = generator(*options, pick=2, two_stage=False)
    assert generate(single)[0].instruction == "put a bowl in desk."
    assert single.metrics()["calls"] == 1.0


def test_cur_04_duplicates_are_refused_and_method_and_threshold_recorded() -> None:
    maker = generator(
        "put a mug on the shelf", "Put a mug on the shelf.", "place one mug onto the shelf",
        "put a bowl on the shelf", pick=2,
    )  # fmt: skip
    seed = seed_task(0, "put a pen in fridge.")
    tasks = generate(maker, seed)
    assert [task.instruction for task in tasks] == ["put a bowl on the shelf"]  # option 2 of 2
    assert maker.metrics()["refused/duplicate"] == 2.0
    checks = maker.state_dict()["checks"]
    assert checks["duplicate_threshold"] == 0.9 and "jaccard" in checks["method"]


def test_a_variation_of_two_seeds_is_kept_once_and_known_tasks_are_not_repeated() -> None:
    maker = generator("put a bowl in desk.")
    first = generate(maker, seed_task(0), seed_task(1, "put a pen in shelf."))
    assert len(first) == 1
    assert generate(maker, existing=first) == []
    elsewhere = seed_task(7)
    again = asyncio.run(
        maker.generate([Task(id="x", suite="household", instruction="put a pen in desk.",
                             room="another room")], seed=0, existing=[*first, elsewhere])
    )  # fmt: skip
    assert [task.room for task in again] == ["another room"]


@pytest.mark.parametrize(
    ("proposal", "rule"),
    [
        ("Put two soapbar in garbagecan.", "evaluation_text"),
        ("place two soapbars into the garbagecan", "evaluation_template"),
        ("find two soapbar 3 and put them in garbagecan 2", "evaluation_template"),
    ],
)
def test_cur_07_an_evaluation_task_is_blocked_however_it_is_worded(
    proposal: str, rule: str
) -> None:
    evaluation = [evaluation_task("put two soapbar in garbagecan")]
    maker = generator(proposal, evaluation=evaluation)
    assert generate(maker) == []
    assert maker.metrics()[f"refused/{rule}"] == 1.0


def test_cur_07_near_text_is_blocked_where_the_suite_knows_no_template() -> None:
    maker = TaskGenerator(
        ScriptedChat(proposing(lambda seed: ["place two soapbars into the garbagecan"])),
        validate=validate, template_key=lambda instruction: "",
        evaluation_tasks=[evaluation_task("put two soapbar in garbagecan")],
    )  # fmt: skip
    assert generate(maker) == []
    assert maker.metrics()["refused/evaluation_near"] == 1.0


words = st.sampled_from(["put", "two", "a", "mug", "bowl", "soapbar", "shelf", "garbagecan", "in"])


@settings(deadline=None, max_examples=80)
@given(st.lists(st.lists(words, min_size=1, max_size=6).map(" ".join), min_size=1, max_size=8))
def test_no_generated_task_has_an_evaluation_template_whatever_is_proposed(
    proposals: list[str],
) -> None:
    evaluation = [evaluation_task("put two soapbar in garbagecan"), evaluation_task("bowl shelf")]
    maker = generator(*proposals, evaluation=evaluation)
    keys = {template_key(task.instruction) for task in evaluation}
    for task in generate(maker):
        assert template_key(task.instruction) not in keys
        assert validate(seed_task(), task.instruction) is None


def test_an_evaluation_task_cannot_be_varied() -> None:
    with pytest.raises(UserError, match="'eval-1' is an evaluation task"):
        generate(generator("put a bowl in desk."), evaluation_task("put a mug in shelf."))


def test_refusals_are_counted_by_reason_and_explained() -> None:
    maker = generator(
        "put a spaceship in desk.", "put a mug in the cellar", "the", "put a mug in shelf"
    )
    assert generate(maker) == []
    assert {k: v for k, v in maker.metrics().items() if k.startswith("refused")} == {
        "refused/invalid": 2.0, "refused/empty": 1.0, "refused/duplicate": 1.0,
    }  # fmt: skip
    assert "no known thing" in maker.refusals[0].detail


@pytest.mark.parametrize("answer", ["", "put a bowl in desk.", "1: a\n3: b", "1. a", "2: a"])
def test_unreadable_proposals_are_refused(answer: str) -> None:
    maker = TaskGenerator(
        ScriptedChat(lambda messages: answer), validate=validate, template_key=template_key,
        evaluation_tasks=[],
    )  # fmt: skip
    assert generate(maker) == []
    assert maker.metrics()["refused/unreadable"] == 1.0


def test_an_unreadable_pick_and_a_cut_reply_cost_the_task_and_are_counted() -> None:
    options = ("put a bowl in desk.", "put a pen in fridge.")
    picky = generator(*options, pick=9)
    assert generate(picky) == []
    assert picky.metrics()["refused/unreadable_pick"] == 1.0
    short = generator(*options, max_tokens=3)
    assert generate(short) == []
    assert short.metrics()["refused/cut_off"] == 1.0


def test_a_model_fault_is_counted_and_the_other_seeds_go_on() -> None:
    def answer(messages: Sequence[Message]) -> str:
        if "put a pen in shelf." in messages[-1].content:
            raise ModelError("connection refused")
        return "1: put a bowl in desk."

    maker = TaskGenerator(
        ScriptedChat(answer), validate=validate, template_key=template_key, evaluation_tasks=[]
    )
    tasks = generate(maker, seed_task(0, "put a pen in shelf."), seed_task(1))
    assert [task.parent_id for task in tasks] == ["seed-1"]
    assert maker.metrics()["model_faults"] == 1.0
    assert maker.refusals[0].detail == "connection refused"


def possible(task: Task, scenario: Scenario) -> str | None:
    thing = task.instruction.split()[2]
    held = any(thing in contents for contents in scenario.facts.values())
    return None if held else f"there is no {thing}"


def test_the_seeds_world_is_used_only_where_the_new_task_is_possible_in_it() -> None:
    good = generate(generator("put a mug in desk.", writer=SameWorld(possible)))
    assert good[0].scenario is not None
    assert good[0].scenario.first_observation.endswith("Your task is to: put a mug in desk.")
    assert good[0].scenario.success_criterion == "put a mug in desk."
    assert good[0].scenario.facts == {"shelf 1": "open: nothing", "desk 1": "open: mug 1"}
    maker = generator("put a bowl in desk.", writer=SameWorld(possible))
    assert generate(maker) == []
    assert maker.metrics()["refused/scenario"] == 1.0


def test_a_seed_without_a_scenario_gives_no_scenario_to_write_from() -> None:
    bare = Task(id="bare", suite="household", instruction="put a mug in shelf.")
    maker = generator("put a bowl in desk.", writer=SameWorld(possible))
    assert generate(maker, bare) == []
    assert maker.metrics()["refused/seed_without_scenario"] == 1.0
    assert retarget(bare, Scenario(first_observation="a room without a task")) is None


def scenario_author(lines: Sequence[str]) -> ScriptedChat:
    """Return a model that gives each of `lines` in turn, once it is asked the right question."""
    left = list(lines)

    def answer(messages: Sequence[Message]) -> str:
        text = messages[-1].content
        assert "mode: scenario" in text and "places: shelf 1, desk 1" in text
        assert "task: put a bowl in desk." in text
        return left.pop(0)

    return ScriptedChat(answer)


def test_a_model_writes_the_scenario_and_is_asked_again_when_it_is_no_use() -> None:
    good = "shelf 1: open: bowl 1\ndesk 1: open: nothing"
    chat = scenario_author(["shelf 1: open: bowl 1", good.replace("bowl", "pen"), good])
    writer = ChatScenarioWriter(chat, check=possible, attempts=3)
    (task,) = generate(generator("put a bowl in desk.", writer=writer))
    assert task.scenario is not None
    assert task.scenario.facts == {"shelf 1": "open: bowl 1", "desk 1": "open: nothing"}
    assert task.scenario.written == ("shelf 1", "desk 1")
    assert "put a bowl in desk." in task.scenario.first_observation
    assert writer.counters == {"unreadable": 1, "impossible": 1}
    hopeless = ChatScenarioWriter(scenario_author(["no"] * 2), check=possible, attempts=2)
    assert generate(generator("put a bowl in desk.", writer=hopeless)) == []


def test_a_fault_of_the_scenario_model_is_counted() -> None:
    def down(messages: Sequence[Message]) -> str:
        raise ModelError("out of memory")

    maker = generator("put a bowl in desk.",
                      writer=ChatScenarioWriter(ScriptedChat(down), check=possible))  # fmt: skip
    assert generate(maker) == []
    assert maker.metrics()["model_faults"] == 1.0


def test_counters_survive_a_checkpoint_and_other_checks_are_refused() -> None:
    maker = generator("put a bowl in desk.")
    generate(maker)
    state = json.loads(json.dumps(maker.state_dict()))
    again = generator("put a bowl in desk.")
    again.load_state_dict(state)
    assert again.metrics() == maker.metrics()
    with pytest.raises(DataError, match="saved with checks"):
        generator("x", duplicate_threshold=0.5).load_state_dict(state)


def test_prompts_name_their_mode_and_hide_the_scenario_of_the_seed() -> None:
    seed = seed_task()
    full = vary_messages(seed, 3)
    assert [message.role for message in full] == ["system", "user"]
    (compact,) = vary_messages(seed, 3, compact=True)
    assert compact.content.startswith("mode: vary\ntask: put a mug in shelf.")
    assert "mug 1" not in compact.content  # hidden facts would give the task away
    assert pick_messages(seed, ["a", "b"])[-1].content.endswith("options:\n1: a\n2: b")
    assert seed.scenario is not None
    example = Example(instruction="put a pen in desk.", scenario=seed.scenario)
    asked = scenario_messages("put a bowl in desk.", world="a room", places=["desk 1"],
                              examples=[example])[-1].content  # fmt: skip
    assert "example: put a pen in desk.\nshelf 1: open: nothing\ndesk 1: open: mug 1" in asked


@given(st.lists(st.text("abc: .1", min_size=1).filter(lambda t: t.strip()), min_size=1, max_size=5))
def test_variations_are_read_back_as_written(texts: list[str]) -> None:
    clean = [" ".join(text.split()) for text in texts]
    assert parse_variations("<think>hm</think>\n" + vary_target(texts), len(texts)) == clean


@pytest.mark.parametrize("answer", ["0", "3", "two", "1, 2", "", "1.", "-1", "²"])
def test_a_pick_is_one_number_in_range(answer: str) -> None:
    assert parse_pick(" 2\n", 2) == 1
    with pytest.raises(ReplyProblem, match="from 1 to 2"):
        parse_pick(answer, 2)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("desk 1: open: pen 1", "no line for 'shelf 1'"),
        ("desk 1: a\nshelf 1: b\nsafe 1: c", "none of the places"),
        ("desk 1: a\ndesk 1: b\nshelf 1: c", "twice"),
        ("desk 1: closed: unknown\nshelf 1: c", "left unknown"),
        ("Sure!\ndesk 1: a\nshelf 1: c", "expected `place: contents`"),
    ],
)
def test_facts_need_exactly_one_line_per_place(answer: str, complaint: str) -> None:
    with pytest.raises(ReplyProblem, match=complaint):
        parse_facts(answer, ["desk 1", "shelf 1"])


def test_a_written_scenario_is_read_back() -> None:
    facts = {"shelf 1": "open: nothing", "drawer 1": "closed: pen 1, mug 2"}
    scenario = Scenario(first_observation="a room", facts=facts)
    assert parse_facts(scenario_target(scenario), list(facts)) == facts


@pytest.mark.parametrize("bad", [{"proposals": 0}, {"duplicate_threshold": 0.0}])
def test_impossible_generator_options_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        GeneratorConfig(**bad)
    with pytest.raises(ConfigError, match="attempts"):
        ChatScenarioWriter(ScriptedChat(lambda m: ""), check=possible, attempts=0)
