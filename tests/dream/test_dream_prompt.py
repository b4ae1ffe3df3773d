"""The experience model's prompt: what is in it, in which order, and what each switch removes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dream_worlds import TASK, Listening, dream, from_known, logs, make_transition, play
from msgspec.structs import replace

from dreamgym.agent.prompt import AgentPrompt
from dreamgym.dream.annotate import (
    AnnotateConfig,
    AnnotatedTransition,
    Annotator,
    scenario_tasks,
)
from dreamgym.dream.examples import ExampleConfig, ExampleStream
from dreamgym.dream.prompt import (
    SYSTEM,
    PromptConfig,
    StepContext,
    Turn,
    conflict_message,
    step_messages,
    step_target,
)
from dreamgym.dream.scenario import scenario_text
from dreamgym.envs.household.reader import HouseholdReader

CONTEXT = StepContext(
    task=TASK,
    scenario="desk 1: surface: pen 1",
    history=[Turn("look", "You see\na room."), Turn("go to desk 1", "You arrive.")],
    known=["at: desk 1", "holding: nothing"],
    neighbours=[make_transition(action="take mug 1", text=f"Mug {i}.") for i in range(3)],
    action="take pen 1 from desk 1",
)
FULL = PromptConfig(history=2)
PARTS: dict[str, str] = {
    "task": "task: put a pen in shelf.",
    "scenario": "scenario:\ndesk 1: surface: pen 1",
    "similar": "similar:\n> take mug 1\nMug 0.\n> take mug 1\nMug 1.",
    "past": "past:\n> look\nYou see a room.\n> go to desk 1\nYou arrive.",
    "known": "known:\nat: desk 1\nholding: nothing",
    "action": "action: take pen 1 from desk 1",
}


def text(config: PromptConfig, context: StepContext = CONTEXT) -> str:
    return step_messages(config, context)[-1].content


def test_what_never_changes_in_an_episode_stands_first() -> None:
    assert text(FULL) == "\n".join(PARTS.values())
    later = replace(CONTEXT, history=[], known=["at: shelf 1"], neighbours=[], action="look")
    fixed = f"{PARTS['task']}\n{PARTS['scenario']}\n"
    assert text(FULL).startswith(fixed)
    assert text(FULL, later).startswith(fixed)


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"history": 0}, "past"),
        ({"neighbours": 0}, "similar"),
        ({"scenario": "off"}, "scenario"),
        ({"scenario": "relevant"}, "scenario"),
        ({"ledger": False}, "known"),
    ],
)
def test_each_switch_removes_exactly_its_part(change: dict[str, object], gone: str) -> None:
    left = "\n".join(part for name, part in PARTS.items() if name != gone)
    assert text(replace(FULL, **change)) == left


def test_the_reasoning_switch_removes_the_rationale_from_the_target_only() -> None:
    def target(config: PromptConfig) -> str:
        return step_target(config, rationale="why", next_text="Done.", reward=1.0, done=True)

    plain = '{"next_state":"Done.","reward":1,"done":true}'
    assert target(FULL) == f"<think>why</think>{plain}"
    assert target(replace(FULL, reasoning=False)) == plain
    assert text(replace(FULL, reasoning=False)) == text(FULL)


def test_a_relevant_scenario_without_a_ledger_is_shown_whole() -> None:
    bare = replace(FULL, scenario="relevant", ledger=False)
    assert PARTS["scenario"] in text(bare)
    assert "known:" not in text(bare)


def test_past_actions_leave_out_observations_only_where_the_ledger_has_them() -> None:
    short = text(replace(FULL, past="actions"))
    assert "past: look\npast: go to desk 1\n" in short
    assert "You see a room." not in short
    assert PARTS["past"] in text(replace(FULL, past="actions", ledger=False))


def test_history_and_neighbours_are_cut_to_their_number() -> None:
    one = text(replace(FULL, history=1, neighbours=1))
    assert "> look" not in one
    assert "> go to desk 1\nYou arrive." in one
    assert "Mug 0." in one
    assert "Mug 1." not in one


def test_a_compact_prompt_has_no_system_message() -> None:
    full, compact = (step_messages(replace(FULL, style=s), CONTEXT) for s in ("full", "compact"))
    assert full[0].role == "system"
    assert full[0].content == SYSTEM
    assert compact == full[1:]


def test_buf_11_a_long_demonstration_is_cut_with_a_marker_that_says_how_much() -> None:
    long = make_transition(text="x" * 2_000_000)
    shown = text(replace(FULL, max_demo_chars=50), replace(CONTEXT, neighbours=[long]))
    assert f"{'x' * 50} [1999950 characters cut]" in shown
    assert "x" * 51 not in shown
    assert len(shown) < 600


def test_a_demonstration_of_exactly_the_limit_is_whole() -> None:
    exact = make_transition(text="y" * 50)
    shown = text(replace(FULL, max_demo_chars=50), replace(CONTEXT, neighbours=[exact]))
    assert "y" * 50 in shown
    assert "cut]" not in shown


def test_one_conflict_message_states_the_facts() -> None:
    message = conflict_message(["already holding pen 1."])
    assert message.role == "user"
    assert "already holding pen 1." in message.content


@pytest.mark.parametrize("style", ["full", "compact"])
def test_training_and_dreaming_read_the_same_prompt(style: str) -> None:
    """Replay a logged episode as a dream that answers truly: prompt by prompt the same."""
    rollout = logs()[0]
    config = PromptConfig(style=style, history=2, neighbours=0)  # type: ignore[arg-type]
    tasks = scenario_tasks([rollout], HouseholdReader())
    trained = _trained_prompts(rollout.id, config)
    said = {
        prompt: step_target(
            config, rationale=e.rationale, next_text=e.next_text, reward=e.reward, done=e.done
        )
        for prompt, e in trained
    }
    chat = Listening(lambda messages: said[messages[-1].content])
    played = play(
        dream(chat, task=tasks[rollout.task.id], prompt=config),
        [t.action for t in rollout.transitions],
        task=tasks[rollout.task.id],
    )
    assert not played.error
    assert [messages[-1].content for messages in chat.asked] == [prompt for prompt, _ in trained]
    assert len(played.transitions) == len(rollout.transitions)
    assert played.success == rollout.success
    known_scenario = tasks[rollout.task.id].scenario
    assert known_scenario is not None
    assert scenario_text(known_scenario) in trained[0][0]


def _trained_prompts(episode: str, config: PromptConfig) -> list[tuple[str, AnnotatedTransition]]:
    rollout = next(r for r in logs() if r.id == episode)
    annotator = Annotator(
        HouseholdReader(),
        scenario_tasks([rollout], HouseholdReader()),
        buffer=None,
        config=AnnotateConfig(negatives=0, relabel=0, neighbours=0, history=config.history),
    )
    return [(step_messages(config, e.context)[-1].content, e) for e in annotator.annotate(rollout)]


def test_the_example_stream_uses_the_same_builder() -> None:
    trained = _trained_prompts(logs()[0].id, FULL)
    stream = ExampleStream(
        [example for _, example in trained],
        FULL,
        ExampleConfig(renumber=0.0, conflict_share=0.0),
        seed=0,
    )
    prompts = {prompt for prompt, _ in trained}
    assert all(stream.draw(i).messages[-1].content in prompts for i in range(30))


SECRET = "the pencil is in drawer 3"


def leaking(say: Callable[..., str]) -> Callable[..., str]:
    return lambda messages: (
        f"<think>{SECRET}, so look there</think>" + say(messages)[say(messages).index("{") :]
    )


def test_exp_11_the_agent_never_sees_the_rationale() -> None:
    actions = ("go to desk 1", "dance", "take pen 1 from desk 1")
    rollout = play(dream(leaking(from_known)), actions)
    assert all(SECRET in t.rationale for t in rollout.transitions)
    prompt = AgentPrompt()
    seen = [m.content for m in prompt.first(TASK, rollout.transitions[0].observation)]
    for transition in rollout.transitions:
        seen += [m.content for m in prompt.later(transition.next_observation)]
    shown = "\n".join(seen[1:])
    assert "pencil" not in shown
    assert "think" not in shown
    assert "You arrive at desk 1." in shown
    assert all(t.next_observation.actions is None for t in rollout.transitions)
