from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dreamgym.abstraction import AbstractionSettings, AbstractSuite, ModelMapper, RuleMapper
from dreamgym.envs.check import CheckSettings, check_suite
from dreamgym.envs.table import make_suite
from dreamgym.errors import ModelError
from dreamgym.llm.base import Message
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.types import Observation

PAGE = "RootWebArea 'Menu'\n" + "\n".join(f"\t[{i}] link 'Entry {i}'" for i in range(20))


def choose(
    model: ScriptedChat, settings: AbstractionSettings | None = None
) -> tuple[str, ModelMapper]:
    mapper = ModelMapper(model, settings)
    seen = asyncio.run(mapper.abstract(Observation(text=PAGE), "open entry 4"))
    return seen.text, mapper


def test_a_wrapped_suite_still_conforms() -> None:
    suite = AbstractSuite(make_suite("household", size="tiny", num_tasks=3, max_steps=12))
    check_suite(suite, CheckSettings(num_admissible=20)).raise_for_failures()


def test_the_same_page_is_mapped_alike_whoever_shows_it() -> None:
    page = Observation(text=PAGE)
    mapper = RuleMapper()
    assert mapper.map(page, "open entry 4") == mapper.map(page, "open entry 4")
    assert asyncio.run(mapper.abstract(page, "x")) == mapper.map(page, "x")


def test_a_model_chooses_elements_and_cannot_change_them() -> None:
    text, mapper = choose(ScriptedChat(lambda _: "These: [5, 6, 7, 99] of all"))
    assert '[4] link: "Entry 4"' in text and "[6] link" in text
    assert text.count("link:") == 3
    assert mapper.counters == {"asked": 1}


def test_an_unreadable_answer_is_asked_again_then_the_rules_decide() -> None:
    text, mapper = choose(ScriptedChat(lambda _: "I would click entry four."))
    assert '[4] link: "Entry 4"' in text
    assert mapper.counters == {"asked": 2, "unreadable": 2, "fallback": 1}


def test_an_outage_is_a_fault_and_no_empty_page() -> None:
    def down(_: Sequence[Message]) -> str:
        raise ModelError("the endpoint does not answer")

    with pytest.raises(ModelError, match="does not answer"):
        choose(ScriptedChat(down))


def test_the_page_is_fenced_from_the_instructions_to_the_model() -> None:
    seen: list[str] = []

    def answer(messages: Sequence[Message]) -> str:
        seen.append(messages[-1].content)
        return "[1, 2, 3]"

    choose(ScriptedChat(answer), AbstractionSettings(max_elements=4))
    lines = seen[0].splitlines()
    assert lines[0] == "Task: open entry 4" and lines[1] == "Choose at most 4."
    assert lines[2] == '1. [0] link: "Entry 0"' and len(lines) == 22
