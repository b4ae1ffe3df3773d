"""Whole-step accuracy: state, reward and done all right, at the first answer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence

import pytest
from dream_worlds import READER, answer, logs

from dreamgym.dream.accuracy import Accuracy, measure_accuracy
from dreamgym.dream.annotate import AnnotateConfig, AnnotatedTransition, Annotator, scenario_tasks
from dreamgym.dream.experience import ExperienceConfig, ExperienceModel
from dreamgym.dream.prompt import PromptConfig, step_messages, step_target
from dreamgym.llm.base import Message
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.stats import wilson

PROMPT = PromptConfig(neighbours=0)


@functools.cache
def examples() -> tuple[AnnotatedTransition, ...]:
    """Return examples of one game in which every prompt has one right answer."""
    config = AnnotateConfig(negatives=1, neighbours=0, relabel=0)
    tasks = scenario_tasks(logs(), READER)
    annotator = Annotator(READER, tasks, buffer=None, config=config)
    found = [example for rollout in logs()[:3] for example in annotator.annotate(rollout)]
    return tuple({prompt_of(example): example for example in found}.values())


def prompt_of(example: AnnotatedTransition) -> str:
    return step_messages(PROMPT, example.context)[-1].content


def truth(example: AnnotatedTransition) -> str:
    return step_target(
        PROMPT,
        rationale=example.rationale,
        next_text=example.next_text,
        reward=example.reward,
        done=example.done,
    )


Say = Callable[[AnnotatedTransition, Sequence[Message]], str]


def measure(say: Say) -> tuple[Accuracy, ScriptedChat, ExperienceModel]:
    asked = {prompt_of(example): example for example in examples()}

    def reply(messages: Sequence[Message]) -> str:
        return say(asked[next(m.content for m in messages if m.role == "user")], messages)

    chat = ScriptedChat(reply)
    model = ExperienceModel(chat, ExperienceConfig(prompt=PROMPT, max_tokens=500))
    return asyncio.run(measure_accuracy(model, examples(), READER)), chat, model


def test_right_answers_are_exact_also_with_listings_in_another_order() -> None:
    def shuffled(example: AnnotatedTransition, messages: Sequence[Message]) -> str:
        head, found, listed = truth(example).partition("you see ")
        names, end, rest = listed.partition(".")
        items = names.replace(", and ", ", ").split(", ")
        return head + found + ", ".join(reversed(items)) + end + rest

    for say in (lambda example, messages: truth(example), shuffled):
        found, _, _ = measure(say)
        assert found.overall.exact == found.overall.n == len(examples()) > 20
        assert found.misses == ()
    assert any("," in example.next_text for example in examples())


@pytest.mark.parametrize("part", ["state", "reward", "done"])
def test_one_wrong_part_makes_the_whole_step_wrong(part: str) -> None:
    def say(example: AnnotatedTransition, messages: Sequence[Message]) -> str:
        text, reward, done = example.next_text, example.reward, example.done
        return answer(
            "You find gold." if part == "state" else text,
            reward=0.5 if part == "reward" else reward,
            done=not done if part == "done" else done,
        )

    found, _, _ = measure(say)
    counts = {"state": found.overall.state, "reward": found.overall.reward}
    counts["done"] = found.overall.done
    assert counts.pop(part) == 0
    assert set(counts.values()) == {found.overall.n}
    assert found.overall.exact == 0
    assert found.overall.faults == 0


def test_accuracy_is_told_apart_by_kind_of_action() -> None:
    def say(example: AnnotatedTransition, messages: Sequence[Message]) -> str:
        return answer("You find gold.") if example.kind == "go" else truth(example)

    found, _, _ = measure(say)
    assert found.by_kind["go"].exact == 0
    assert all(c.exact == c.n for kind, c in found.by_kind.items() if kind != "go")
    assert sum(c.n for c in found.by_kind.values()) == found.overall.n
    assert found.overall.exact == found.overall.n - found.by_kind["go"].n
    miss = found.misses[0]
    assert miss.action.startswith("go to ")
    assert miss.known
    assert "You find gold." in miss.answered
    assert "You arrive at" in miss.expected


def test_only_the_first_answer_counts() -> None:
    """A reply that is only usable when asked again is wrong here, and reported as a fault."""

    def say(example: AnnotatedTransition, messages: Sequence[Message]) -> str:
        return truth(example) if len(messages) > 2 else "hm"

    found, chat, model = measure(say)
    assert found.overall.exact == 0
    assert found.overall.faults == found.overall.n
    assert chat.num_calls == found.overall.n
    assert "no JSON object" in found.misses[0].answered
    assert not model.counters, "measuring is not dreaming"


def test_the_summary_form_has_shares_and_intervals() -> None:
    found, chat, _ = measure(lambda example, messages: truth(example))
    overall = found.as_dict()["overall"]
    assert isinstance(overall, dict)
    n = len(examples())
    assert overall["exact"] == overall["state"] == 1.0
    assert overall["ci95"] == list(wilson(n, n))
    assert len(chat.released) == n


def test_no_examples_is_no_knowledge() -> None:
    model = ExperienceModel(ScriptedChat(lambda messages: ""))
    found = asyncio.run(measure_accuracy(model, [], READER))
    assert found.overall.rates()["n"] == 0
    assert found.overall.rates()["ci95"] == [0.0, 1.0]
