"""Demonstrations become the very sequences the policy would have met itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from household_worlds import episodes, suite, tokenizer
from msgspec.structs import replace

from dreamgym.agent.policy import ModelPolicy
from dreamgym.agent.prompt import AgentPrompt
from dreamgym.clone import action_text, augmented, demonstration, demonstrations
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.llm.render import Renderer
from dreamgym.llm.scripted import ScriptedEngine
from dreamgym.llm.tiny import CHAT_TEMPLATE, build_tokenizer
from dreamgym.rollout.episode import EpisodeLimits, run_episode
from dreamgym.types import Origin, Rollout, Scenario

NEWLINE_AFTER_TURN = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content']"
    " + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
"""A template that, like ChatML, writes a newline after the end of a turn."""


def templated(template: str) -> Any:
    if template == CHAT_TEMPLATE:
        return tokenizer()
    texts = [t.next_observation.text for r in episodes() for t in r.transitions]
    own = build_tokenizer(texts, vocab_size=700)
    own.chat_template = template
    return own


def play_with_model(rollout: Rollout, made: Any, prompt: AgentPrompt) -> Rollout:
    """Play the demonstrated actions in the real game through a token policy."""
    renderer = Renderer(made)
    assistant = made.convert_tokens_to_ids("<|assistant|>")
    turns = [renderer.completion(action_text(t.action, t.thought)) for t in rollout.transitions]

    def say(context: Sequence[int]) -> Sequence[int]:
        return turns[list(context).count(assistant) - 1]

    return asyncio.run(
        run_episode(
            suite().open(rollout.task, seed=0),
            ModelPolicy(ScriptedEngine(say, max_context=8192), made, prompt),
            rollout.task,
            episode_id="again",
            attempt=0,
            seed=0,
            limits=EpisodeLimits(max_steps=40),
            origin=Origin.REAL,
        )
    )


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, NEWLINE_AFTER_TURN], ids=["tiny", "chatml"])
@pytest.mark.parametrize("style", ["compact", "chat"])
@pytest.mark.parametrize("thought", ["", "it must be there"])
def test_a_demonstration_is_token_for_token_what_the_policy_would_meet(
    template: str, style: str, thought: str
) -> None:
    made, prompt = templated(template), AgentPrompt(style=style)  # type: ignore[arg-type]
    for expert in episodes()[:3]:
        rollout = replace(
            expert, transitions=tuple(replace(t, thought=thought) for t in expert.transitions)
        )
        played = play_with_model(rollout, made, prompt)
        assert played.success
        assert [t.action for t in played.transitions] == [t.action for t in rollout.transitions]
        ids: list[int] = []
        mask: list[int] = []
        for completion in played.completions:
            ids += [*completion.context_ids, *completion.token_ids]
            mask += [0] * len(completion.context_ids) + [1] * len(completion.token_ids)
        found = demonstration(rollout, prompt, Renderer(made))
        assert list(found.token_ids) == ids
        assert list(found.mask) == mask


def test_only_the_agents_turns_and_their_ends_are_learned() -> None:
    rollout = episodes()[0]
    render = Renderer(tokenizer())
    found = demonstration(rollout, AgentPrompt(style="compact"), render)
    turns: list[list[int]] = []
    previous = 0
    for token, learned in zip(found.token_ids, found.mask, strict=True):
        if learned and not previous:
            turns.append([])
        if learned:
            turns[-1].append(token)
        previous = learned
    assert [render.decode(turn) for turn in turns] == [
        action_text(t.action) for t in rollout.transitions
    ]
    assert all(turn[-1] == render.end_of_turn_id for turn in turns)
    assert found.mask[-1] == 1, "nothing after the last action is kept"


def test_failures_and_empty_episodes_are_not_imitated() -> None:
    good = episodes()[0]
    failed = replace(good, success=False, reward=0.0)
    empty = replace(good, transitions=())
    render, prompt = Renderer(tokenizer()), AgentPrompt(style="compact")
    assert demonstrations([failed, good, empty], prompt, render) == [
        demonstration(good, prompt, render)
    ]
    assert demonstrations([failed], prompt, render) == []


def signature(rollout: Rollout) -> list[tuple[str, bool]]:
    reader = HouseholdReader()
    return [
        (reader.action_kind(t.action), reader.is_no_effect(t.next_observation.text))
        for t in rollout.transitions
    ]


@pytest.mark.parametrize(("renumber", "rename"), [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_an_augmented_episode_is_the_same_story_in_another_world(
    renumber: float, rename: float
) -> None:
    """The reader, which knows nothing of the renaming, finds the task still completed."""
    reader = HouseholdReader()
    changed = 0
    for index, rollout in enumerate([*episodes(), *episodes("survey")]):
        other = augmented(rollout, Random(index), renumber=renumber, rename=rename)
        assert signature(other) == signature(rollout)
        assert other.success == rollout.success
        first = other.transitions[0].observation.text
        assert other.task.instruction in first, "the task sentence is renamed with the world"
        assert all(t.instruction == other.task.instruction for t in other.transitions)
        facts = reader.hindsight(other.transitions)
        scenario = Scenario(first_observation=first, facts=facts)
        task = replace(other.task, scenario=scenario)
        now = reader.initial(task)
        for transition in other.transitions:
            text = transition.next_observation.text
            assert reader.conflicts(now, transition.action, text) == []
            now = reader.update(now, transition.action, text)
        assert reader.achieved(task, now) is rollout.success
        changed += other != rollout
    assert changed > 6


def test_without_augmentation_only_the_admissible_lists_are_left_out() -> None:
    rollout = episodes()[0]
    same = augmented(rollout, Random(0), renumber=0.0, rename=0.0)
    assert [t.action for t in same.transitions] == [t.action for t in rollout.transitions]
    assert [t.next_observation.text for t in same.transitions] == [
        t.next_observation.text for t in rollout.transitions
    ]
    assert all(t.observation.actions is None for t in same.transitions)


def test_a_thoughtful_demonstrators_slips_are_shown_and_not_learned() -> None:
    rollout = episodes()[0]
    thoughtful = tuple(
        replace(t, thought="" if i == 1 else "need it.") for i, t in enumerate(rollout.transitions)
    )
    renderer, prompt = Renderer(tokenizer()), AgentPrompt(style="compact")
    example = demonstration(replace(rollout, transitions=thoughtful), prompt, renderer)
    pairs = zip(example.token_ids, example.mask, strict=True)
    learned = tokenizer().decode([token for token, mask in pairs if mask])
    assert learned.count("<think>") == learned.count("<action>") == len(thoughtful) - 1
    shown = tokenizer().decode(list(example.token_ids))
    assert shown.count("<action>") == len(thoughtful)
    plain = demonstration(rollout, prompt, renderer)
    pairs = zip(plain.token_ids, plain.mask, strict=True)
    everything = tokenizer().decode([token for token, mask in pairs if mask])
    assert everything.count("<action>") == len(rollout.transitions)
