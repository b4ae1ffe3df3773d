"""Dreamt episodes: same start for a group, honest success, and no engine anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import pstdev

import pytest
from dream_worlds import (
    TASK,
    WINNING,
    Found,
    ListBuffer,
    Listening,
    answer,
    asked_action,
    dream,
    from_known,
    make_transition,
    play,
    play_group,
    real_suite,
)
from msgspec.structs import replace

from dreamgym.dream.prompt import PromptConfig
from dreamgym.envs.base import Env, Suite
from dreamgym.envs.household.guard import engine_calls, engine_forbidden
from dreamgym.errors import ConfigError, EnvError
from dreamgym.llm.base import Message, Reply
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.types import Observation, StopReason

ARRIVE = "You arrive at desk 1. On the desk 1, you see a pen 1, and a pen 2."
CLEAN = replace(TASK, id="clean", instruction="put a clean pen in shelf.")


def test_a_dream_is_a_suite_and_its_episodes_are_environments() -> None:
    suite = dream()
    assert isinstance(suite, Suite)
    assert isinstance(suite.open(TASK, seed=0), Env)
    assert suite.tasks("train") == [TASK]
    assert suite.tasks("valid_seen") == []


def test_exp_12_all_members_of_a_group_start_from_the_pinned_scenario() -> None:
    group = play_group(dream(), WINNING, size=8)
    assert TASK.scenario is not None
    starts = {r.transitions[0].observation for r in group.rollouts}
    assert starts == {Observation(text=TASK.scenario.first_observation)}
    suite = dream()
    seen = {asyncio.run(suite.open(TASK, seed=seed).start()).text for seed in range(8)}
    assert seen == {TASK.scenario.first_observation}


def test_the_same_actions_in_16_copies_get_the_same_reward() -> None:
    for actions, reward in ((WINNING, 1.0), (WINNING[:3], 0.0)):
        group = play_group(dream(), actions, size=16)
        assert group.rewards == [reward] * 16
        assert pstdev(r for r in group.rewards if r is not None) == 0.0
        texts = {tuple(t.next_observation.text for t in r.transitions) for r in group.rollouts}
        assert len(texts) == 1


def test_a_dreamt_success_ends_the_episode_and_holds_in_the_ledger() -> None:
    rollout = play(dream(), [*WINNING, "look"])
    assert rollout.success
    assert rollout.stop is StopReason.TERMINATED
    assert len(rollout.transitions) == 4
    assert rollout.transitions[-1].terminated
    assert not any(t.flags for t in rollout.transitions)


def claims(text_for: dict[str, str]) -> Listening:
    """Answer listed actions as given, all others from the known facts."""

    def say(messages: Sequence[Message]) -> str:
        return text_for.get(asked_action(messages)) or from_known(messages)

    return Listening(say)


def test_exp_04_a_claimed_success_without_the_work_pays_nothing_and_is_flagged() -> None:
    last = answer("You move the pen 1 to the shelf 1.", reward=1, done=True)
    suite = dream(claims({WINNING[-1]: last}), task=CLEAN)
    rollout = play(suite, WINNING, task=CLEAN)
    assert not rollout.success
    assert rollout.reward == 0.0
    assert "unsupported_success" in rollout.transitions[-1].flags
    assert not rollout.transitions[-1].terminated
    assert suite.verifier is not None
    assert suite.verifier.rates()["verify/unsupported_success"] == 1.0


def test_exp_04_without_the_verifier_the_claim_would_stand() -> None:
    last = answer("You move the pen 1 to the shelf 1.", reward=1, done=True)
    suite = dream(claims({WINNING[-1]: last}), task=CLEAN, verify=False)
    assert play(suite, WINNING, task=CLEAN).success


SECOND = "take pen 2 from desk 1"
PLAYS_ALONG = answer("You pick up the pen 2 from the desk 1.")


def test_exp_06_a_model_that_plays_along_is_stopped_by_the_ledger() -> None:
    rollout = play(dream(claims({SECOND: PLAYS_ALONG})), [*WINNING[:2], SECOND])
    assert rollout.stop is StopReason.FAULT
    assert rollout.reward is None
    assert [t.action for t in rollout.transitions] == list(WINNING[:2])
    assert "already holding pen 1" in rollout.error


def test_exp_06_told_of_the_conflict_the_model_can_say_that_nothing_happens() -> None:
    def say(messages: Sequence[Message]) -> str:
        told = messages[-1].content.startswith("conflict: already holding pen 1.")
        if asked_action(messages) == SECOND and not told:
            return PLAYS_ALONG
        return from_known(messages)

    chat = Listening(say)
    rollout = play(dream(chat), [*WINNING[:2], SECOND, *WINNING[2:]])
    assert rollout.transitions[2].next_observation.text == "Nothing happens."
    assert rollout.transitions[2].reward == 0.0
    assert set(rollout.transitions[2].flags) == {"asked_again", "no_effect"}
    assert rollout.success, "the state was left unchanged, so the plan still works"


def test_exp_06_a_place_never_listed_is_caught_too() -> None:
    action = "go to bathroom 1"
    arrives = answer("You arrive at bathroom 1. On the bathroom 1, you see nothing.")
    rollout = play(dream(claims({action: arrives})), [action])
    assert rollout.is_fault
    assert "there is no bathroom 1" in rollout.error


def test_exp_08_a_reward_before_the_end_is_ignored_and_flagged() -> None:
    early = answer(ARRIVE, reward=1, done=False)
    rollout = play(dream(claims({WINNING[0]: early})), ["go to desk 1", "look"])
    assert rollout.transitions[0].reward == 0.0
    assert "early_reward" in rollout.transitions[0].flags
    assert not rollout.transitions[0].terminated
    assert rollout.reward == 0.0


def test_exp_09_a_done_without_the_required_state_does_not_end_the_episode() -> None:
    stops = answer(ARRIVE, reward=0, done=True)
    rollout = play(dream(claims({WINNING[0]: stops})), WINNING)
    assert "early_stop" in rollout.transitions[0].flags
    assert not rollout.transitions[0].terminated
    assert rollout.success


WEBSHOP = make_transition(suite="webshop", text="You buy a red shirt.")
HOUSE = make_transition(suite="household", text="You arrive at couch 1.")
SAME_GAME = make_transition(suite="household", task=TASK.id, text="The answer of this very game.")


def test_exp_14_only_demonstrations_of_the_same_suite_and_of_other_games_are_shown() -> None:
    chat = Listening(from_known)
    suite = dream(chat, buffer=ListBuffer([WEBSHOP, SAME_GAME, HOUSE]))
    play(suite, WINNING)
    prompts = [messages[-1].content for messages in chat.asked]
    assert all("couch 1" in prompt for prompt in prompts)
    assert not any("shirt" in p or "very game" in p for p in prompts)


def test_without_neighbours_in_the_prompt_the_buffer_is_not_asked() -> None:
    class Broken(ListBuffer):
        def query(self, *args: object, **options: object) -> list[Found]:
            raise AssertionError("the buffer was asked")

    prompt = PromptConfig(neighbours=0)
    assert play(dream(prompt=prompt, buffer=Broken([])), WINNING).success


def test_a_task_without_a_scenario_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'pens' has no scenario"):
        dream().open(replace(TASK, scenario=None), seed=0)


def test_an_episode_is_used_once() -> None:
    async def scenario() -> None:
        env = dream().open(TASK, seed=0)
        with pytest.raises(EnvError, match="new; call start"):
            await env.step("look")
        await env.start()
        with pytest.raises(EnvError, match="used once"):
            await env.start()
        for action in WINNING:
            step = await env.step(action)
        assert step.terminated
        with pytest.raises(EnvError, match="finished"):
            await env.step("look")
        await env.close()
        await env.close()
        with pytest.raises(EnvError, match="closed"):
            await env.step("look")

    asyncio.run(scenario())


def test_an_episode_is_truncated_at_its_step_limit() -> None:
    async def scenario() -> list[tuple[bool, bool]]:
        env = dream(max_steps=3).open(TASK, seed=0)
        await env.start()
        steps = [await env.step("dance") for _ in range(3)]
        return [(step.truncated, step.terminated) for step in steps]

    assert asyncio.run(scenario()) == [(False, False), (False, False), (True, False)]


def test_a_success_at_the_last_step_is_not_a_truncation() -> None:
    async def scenario() -> tuple[bool, bool]:
        env = dream(max_steps=4).open(TASK, seed=0)
        await env.start()
        for action in WINNING:
            step = await env.step(action)
        return step.truncated, step.success

    assert asyncio.run(scenario()) == (False, True)


def test_closing_frees_the_models_cache_of_the_episode() -> None:
    chat = Listening(from_known)
    play_group(dream(chat), WINNING, size=3)
    assert len(chat.released) == 3
    assert set(chat.released.values()) == {1}


def test_a_dream_never_touches_the_real_engine() -> None:
    before = engine_calls()
    with engine_forbidden():
        group = play_group(dream(), WINNING, size=4)
        with pytest.raises(RuntimeError, match="forbidden"):
            real = real_suite()
            asyncio.run(real.open(real.tasks("train")[0], seed=0).start())
    assert [r.error for r in group.rollouts] == [""] * 4
    assert group.rewards == [1.0] * 4
    assert engine_calls() == before


class Seeds(ScriptedChat):
    """Answers from the known facts and keeps (action, seed)."""

    def __init__(self) -> None:
        super().__init__(from_known)
        self.seeds: list[tuple[str, int]] = []

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        self.seeds.append((asked_action(messages), seed))
        return await super().reply(messages, seed=seed, max_tokens=max_tokens, session=session)


def test_a_step_is_answered_with_one_seed_for_the_whole_group_and_another_for_the_next() -> None:
    chat = Seeds()
    play_group(dream(chat), WINNING, size=6)
    assert len(chat.seeds) == 6 * len(WINNING)
    assert len(set(chat.seeds)) == len(WINNING)
    assert len({seed for _, seed in chat.seeds}) == len(WINNING)
