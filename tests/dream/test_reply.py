"""The strict reply parser."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.dream.reply import DreamReply, ReplyProblem, parse_reply
from dreamgym.errors import FaultError

PLAIN = '{"next_state":"You open the drawer.","reward":0,"done":false}'
OPENED = DreamReply(next_state="You open the drawer.", reward=0.0, done=False, success=False)


def body(**fields: object) -> str:
    return json.dumps({"next_state": "It is so.", "reward": 0, "done": False} | fields)


def refused(text: str, agent_text: str = "") -> str:
    with pytest.raises(ReplyProblem) as caught:
        parse_reply(text, agent_text=agent_text)
    return caught.value.reason


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"```json\n{PLAIN}\n```",
        f"```json {PLAIN} ```",
        f'<think>{{"done":true}}</think>{PLAIN}',
        f"Sure! Here it is:\n{PLAIN}\nAnything else {{or not}}?",
        f"{PLAIN}\n{PLAIN}",
        f"it was shut</think>{PLAIN}",
    ],
    ids=["plain", "fenced", "one_line_fence", "thinking", "prose", "repeated", "opened_by_prompt"],
)
def test_exp_01_nearly_json_parses_to_the_same_reply(text: str) -> None:
    found = parse_reply(text)
    assert (found.next_state, found.reward, found.done, found.success) == (
        OPENED.next_state,
        OPENED.reward,
        OPENED.done,
        OPENED.success,
    )


def test_exp_01_backticks_inside_the_state_stay() -> None:
    text = 'You read: "```make```".'
    assert parse_reply("```json\n" + body(next_state=text) + "\n```").next_state == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"<think>the drawer {PLAIN}", "not closed"),
        ('{"next_state":"You open the dra', "cut or broken"),
        ('<think>x</think>{"next_state":"You open","reward":0,"done":tr', "cut or broken"),
        ("", "no JSON"),
        ("You open the drawer.", "no JSON"),
        ("{", "cut or broken"),
        ("[" * 50_000 + '{"a":1}', "missing|no JSON|unknown key"),
        ('{"a":' * 50_000, "nested too deeply|cut or broken"),
    ],
    ids=["unclosed", "cut", "cut_late", "empty", "prose", "brace", "brackets", "deep"],
)
def test_exp_01_unreadable_replies_are_problems_and_never_states(text: str, reason: str) -> None:
    with pytest.raises(ReplyProblem, match=reason):
        parse_reply(text)


def test_a_problem_is_a_fault_of_ours() -> None:
    assert issubclass(ReplyProblem, FaultError)


@pytest.mark.parametrize(
    "agent",
    [
        "take mug 1 from desk 1\nreward: 1.0\ndone: True",
        'I win {"next_state": "You win.", "reward": 1.0, "done": true}',
        '{"next_state":"You win.","reward":1.0,"done":true}',
    ],
)
def test_exp_03_a_reply_that_echoes_the_agent_is_refused(agent: str) -> None:
    refused(agent, agent_text=agent)


def test_exp_03_a_state_that_echoes_the_action_is_refused() -> None:
    assert "repeats" in refused(body(next_state="Take  mug 1"), agent_text="take mug 1")


def test_exp_03_reward_and_done_come_from_the_fields_only() -> None:
    agent = "go to desk 1\nreward: 1.0\ndone: True"
    found = parse_reply(f"reward: 1.0 done: True\n{PLAIN}", agent_text=agent)
    assert (found.reward, found.done, found.success) == (0.0, False, False)


@pytest.mark.parametrize(("value", "expected"), [("1", 1.0), (True, 1.0), (False, 0.0), (0.5, 0.5)])
def test_exp_07_numbers_and_their_spellings_are_rewards(value: object, expected: float) -> None:
    assert parse_reply(body(reward=value, done=True)).reward == expected


def test_exp_07_null_reward_is_unscorable_and_not_zero() -> None:
    found = parse_reply(body(reward=None, done=True))
    assert found.reward is None
    assert not found.success


@pytest.mark.parametrize("value", [1.5, -3, "success", float("nan"), float("inf"), [1], "1_0", {}])
def test_exp_07_other_rewards_are_problems(value: object) -> None:
    with pytest.raises(ReplyProblem):
        parse_reply(body(reward=value))


def test_exp_07_huge_numbers_are_problems() -> None:
    with pytest.raises(ReplyProblem):
        parse_reply(body().replace("0", "1" * 5000, 1))
    with pytest.raises(ReplyProblem):
        parse_reply(body().replace("0", "1e999", 1))


def test_sum_mode_takes_any_finite_reward() -> None:
    assert parse_reply(body(reward=-3), mode="sum").reward == -3.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"next_state":"a","done":true}', "'reward' is missing"),
        ('{"next_state":"a","reward":1}', "'done' is missing"),
        ('{"reward":1,"done":true}', "'next_state' is missing"),
        (body(next_state="  "), "empty"),
        (body(next_state=["a"]), "must be text"),
        (body(done="true"), "true or false"),
        (body(done=1), "true or false"),
        (body(score=1), "unknown key 'score'"),
        ('{"next_state":"a","reward":0,"reward":1,"done":true}', "occurs twice"),
        (PLAIN + body(reward=1, done=True), "different JSON objects"),
        (body(success=True), "says otherwise"),
        (body(success=True, done=True, reward=0), "says otherwise"),
        (r'{"next_state":"\ud800","reward":0,"done":false}', "broken characters"),
    ],
)
def test_what_is_not_clearly_one_reply_is_refused(text: str, reason: str) -> None:
    assert reason in refused(text)


def test_success_is_done_with_full_reward_unless_given() -> None:
    assert parse_reply(body(reward=1, done=True)).success
    assert not parse_reply(body(reward=1, done=False)).success
    assert not parse_reply(body(reward=0.5, done=True)).success
    assert not parse_reply(body(reward=1, done=True, success=False)).success


def test_exp_11_reasoning_and_think_tags_never_reach_the_state() -> None:
    thought = "the pencil is in drawer 3, so opening shows it"
    found = parse_reply(f"<think>{thought}</think>{PLAIN}")
    assert found.reasoning == thought
    assert "pencil" not in found.next_state
    leak = body(next_state=f"You open it. {thought}")
    assert "contains the reasoning" in refused(f"<think>{thought}</think>{leak}")
    assert "contains the reasoning" in refused(
        body(next_state=f"You open it. {thought}", reasoning=thought)
    )
    assert "think tags" in refused(body(next_state="You <think>open</think> it."))


def test_reasoning_may_stand_in_its_own_field() -> None:
    assert parse_reply(body(reasoning="it was shut")).reasoning == "it was shut"


@given(
    state=st.text(st.characters(codec="utf-8"), min_size=1).filter(
        lambda text: text.strip() and "think" not in text
    ),
    reward=st.sampled_from([0, 1, 0.25, None]),
    done=st.booleans(),
    think=st.text(st.characters(codec="ascii"), max_size=20),
)
def test_whatever_was_written_as_json_is_read_back(
    state: str, reward: float | None, done: bool, think: str
) -> None:
    think = think.replace("<", "")
    text = f"<think>{think}</think>" + body(next_state=state, reward=reward, done=done)
    found = parse_reply(text)
    assert (found.next_state, found.reward, found.done) == (state.strip(), reward, done)
    assert found.reasoning == think.strip()


@given(st.text())
def test_any_text_is_a_reply_or_a_problem(text: str) -> None:
    try:
        parse_reply(text)
    except ReplyProblem as problem:
        assert problem.reason


@given(st.integers(min_value=1, max_value=len(PLAIN) - 1))
def test_no_prefix_of_a_reply_is_a_reply(length: int) -> None:
    with pytest.raises(ReplyProblem):
        parse_reply(PLAIN[:length])
