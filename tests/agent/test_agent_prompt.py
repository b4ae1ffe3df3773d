from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.agent.prompt import ACTIONS_TITLE, AgentPrompt, cut_middle
from dreamgym.errors import ConfigError
from dreamgym.types import Observation, Task

TASK = Task(id="t", suite="s", instruction="put a pen on the desk")


def test_chat_style_opens_with_a_system_prompt_and_the_task() -> None:
    messages = AgentPrompt().first(TASK, Observation(text="You are in a room."))
    assert [m.role for m in messages] == ["system", "user"]
    assert "<action>" in messages[0].content
    assert TASK.instruction in messages[1].content


def test_the_task_is_not_said_twice() -> None:
    seen = Observation(text="Your task is to: put a pen on the desk.")
    assert AgentPrompt().first(TASK, seen)[1].content == seen.text


def test_compact_style_is_the_observation_only() -> None:
    seen = Observation(text="You are in a room.", actions=("look",))
    assert [m.content for m in AgentPrompt(style="compact").first(TASK, seen)] == [seen.text]


def test_admissible_actions_are_listed_when_asked_for() -> None:
    seen = Observation(text="A room.", actions=("look", "go to desk 1"))
    content = AgentPrompt(show_actions=True).later(seen)[0].content
    assert content == f"A room.\n{ACTIONS_TITLE} look, go to desk 1"


def test_ctx_07_task_action_list_and_error_survive_the_cut() -> None:
    middle = "\n".join(f"row {i} of a long page" for i in range(1900))
    actions = "Actions: " + ", ".join(f"click[{i}]" for i in range(100))
    text = f"Your task is to: buy socks.\n{middle}\nERROR: sold out\n{actions}"
    assert len(text) > 40_000
    for limit in (3000, 8000):
        cut = cut_middle(text, limit)
        assert len(cut) <= limit
        assert cut.startswith("Your task is to: buy socks.")
        assert cut.endswith(f"ERROR: sold out\n{actions}")
        assert "characters cut ...]" in cut


def test_ctx_07_listed_actions_survive_beside_a_long_observation() -> None:
    actions = tuple(f"click[{i}]" for i in range(50))
    seen = Observation(text="buy socks " + "x" * 40_000 + " ERROR: sold out", actions=actions)
    content = AgentPrompt(show_actions=True, max_observation_chars=2000).later(seen)[0].content
    assert len(content) <= 2000
    assert content.endswith(", ".join(actions))
    assert "ERROR: sold out" in content


def test_an_overlong_action_list_says_how_many_are_missing() -> None:
    seen = Observation(text="page", actions=tuple(f"click[{i}]" for i in range(1000)))
    content = AgentPrompt(show_actions=True, max_observation_chars=400).later(seen)[0].content
    assert len(content) <= 400
    shown = content.count("click[")
    assert content.endswith(f"(and {1000 - shown} more)")


@given(st.text(max_size=3000), st.integers(200, 1000))
def test_a_cut_keeps_the_limit_and_states_what_is_missing(text: str, limit: int) -> None:
    cut = cut_middle(text, limit)
    if len(text) <= limit:
        assert cut == text
        return
    head, _, rest = cut.partition("\n[... ")
    number, _, tail = rest.partition(" characters cut ...]\n")
    assert len(cut) <= limit
    if number.isdigit():  # the text itself may contain a marker's pieces
        assert len(head) + int(number) + len(tail) == len(text)


def test_a_limit_too_small_to_be_useful_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_observation_chars must be at least 200; got 10"):
        AgentPrompt(max_observation_chars=10)
