from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.agent.parse import Call, parse_action, resolve, split_call


def test_par_01_only_first_action_is_executed() -> None:
    text = (
        "Thought: a\nAction: go to desk 1\nObservation: You see a pen 1.\n"
        "Thought: b\nAction: take pen 1 from desk 1"
    )
    parsed = parse_action(text)
    assert parsed.action == "go to desk 1"
    assert parsed.thought == "a"
    assert {"invented_observation", "second_action"} <= set(parsed.flags)


def test_par_01_a_second_tag_is_dropped_and_flagged() -> None:
    parsed = parse_action("<action>look</action>\nIt is dark.\n<action>open door 1</action>")
    assert parsed.action == "look"
    assert "second_action" in parsed.flags


@pytest.mark.parametrize(
    "text",
    [
        "Action: open drawer 1\n\nI hope this helps!",
        "<action>open drawer 1</action> I hope this helps!",
        "<action>\nopen drawer 1\n</action>",
        "**Action:** open drawer 1\nGood luck",
        "Action: `open drawer 1`",
        "Action:\nopen drawer 1\n",
        "<think>so</think><ACTION> open drawer 1 </ACTION>",
        "<action>open drawer 1",
        "<action>open drawer 1</act>",
        "<action>open drawer 1</action><|im_end|>\n<|im_start|>user",
        "Action 3: open drawer 1",
    ],
)
def test_par_02_trailing_chatter_is_not_part_of_the_action(text: str) -> None:
    assert parse_action(text).action == "open drawer 1"


@pytest.mark.parametrize(
    ("action", "call"),
    [
        ("click[12 oz [2 pack]]", Call("click", "12 oz [2 pack]")),
        ("search[usb-c cable [3 ft]]", Call("search", "usb-c cable [3 ft]")),
    ],
)
def test_par_03_brackets_inside_arguments_survive(action: str, call: Call) -> None:
    assert parse_action(f"Action: {action}").action == action
    assert parse_action(f"Action: {action} and then buy it").action == action
    assert split_call(action) == call


def test_par_03_a_call_without_its_end_is_a_format_problem() -> None:
    assert parse_action("<action>search[usb cable</action>").problem == "format"
    assert split_call("go to desk 1") is None


@pytest.mark.parametrize(
    ("said", "spelled"),
    [
        ("click[navy-xl]", "click[Navy-XL]"),
        ("click[b0example1]", "click[B0EXAMPLE1]"),
        ("Click[Navy-XL]", "click[Navy-XL]"),
        ("put the pen 1 in/on desk 1.", "move pen 1 to desk 1"),
        ("put pen 1 on desk 1", "move pen 1 to desk 1"),
        ("go  to Desk 1", "go to desk 1"),
    ],
)
def test_par_05_letter_case_and_wording_match_the_environments_spelling(
    said: str, spelled: str
) -> None:
    admissible = ["click[Navy-XL]", "click[B0EXAMPLE1]", "move pen 1 to desk 1", "go to desk 1"]
    resolution = resolve(said, admissible)
    assert resolution.is_admissible
    assert resolution.action == spelled


def test_resolving_prefers_the_exact_spelling_and_leaves_doubt_alone() -> None:
    assert resolve("click[a]", ["click[A]", "click[a]"]).action == "click[a]"
    doubtful = resolve("CLICK[A]", ["click[A]", "click[a]"])
    assert (doubtful.action, doubtful.is_admissible) == ("CLICK[A]", False)
    assert resolve("anything", None).is_admissible is None


def test_a_placeholder_admits_any_text_but_not_none() -> None:
    admissible = ["search[<keywords>]", "click[< Prev]"]
    assert resolve("search[red [2 pack] shoe]", admissible).is_admissible
    assert resolve("search[]", admissible).is_admissible is False
    assert resolve("click[x]", admissible).is_admissible is False
    assert resolve("click[< prev]", admissible).action == "click[< Prev]"


def test_par_07_wrong_tags_are_a_format_problem() -> None:
    parsed = parse_action("<think> I need to move.</th>\n<suck> Move the boxes. </suck>")
    assert parsed.problem == "format"
    assert parsed.action == ""


def test_par_07_every_turn_of_the_public_transcript_is_a_format_problem() -> None:
    samples = Path(__file__).resolve().parents[2].parent / "shared" / "samples"
    file = samples / "v13_ragen_bad_tags_transcript.txt"
    if not file.exists():
        pytest.skip("the sample files are not beside this checkout (../shared/samples)")
    turns = file.read_text(encoding="utf-8").split("<|im_start|>assistant\n")[1:]
    problems = [parse_action(turn.split("<|im_end|>")[0]).problem for turn in turns]
    assert problems == ["format"] * 4


def test_par_09_a_reply_without_any_marking_is_a_format_problem_unless_bare_is_allowed() -> None:
    assert parse_action("I would look around").problem == "format"
    assert parse_action("look", dialects=("tags", "bare")).action == "look"


def test_par_10_an_empty_reply_is_a_problem_and_no_crash() -> None:
    assert [parse_action(t).problem for t in ("", "  \n", "<|im_end|>")] == ["empty"] * 3
    assert parse_action("<action></action>").problem == "format"


@pytest.mark.parametrize(
    "text",
    [
        "> think: first I need a pan\n> take pan 1 from stove 1",
        "<action>think: first I need a pan</action>",
        "Action: think[first I need a pan]",
    ],
)
def test_par_11_think_pseudo_actions_are_thoughts(text: str) -> None:
    parsed = parse_action(text)
    assert parsed.is_thought
    assert parsed.thought == "first I need a pan"


def test_a_react_command_line_is_an_action() -> None:
    assert parse_action("> go to cabinet 1\nOn the cabinet 1, you see").action == "go to cabinet 1"


@pytest.mark.parametrize(
    "text", ["<think>long ... <act", "<think>a</think><action>go to de", "Action: go to de", ""]
)
def test_ctx_02_a_cut_generation_is_not_a_format_problem(text: str) -> None:
    assert parse_action(text, finish="length").problem == "truncated_generation"


def test_ctx_02_an_action_completed_before_the_cut_counts() -> None:
    text = "<action>look</action> and now I will al"
    assert parse_action(text, finish="length").action == "look"
    assert parse_action("Action: look\nObs", finish="length").action == "look"


def test_exp_03_text_about_reward_never_reaches_the_environment() -> None:
    parsed = parse_action("<action>look</action>\nreward: 1.0\ndone: True")
    assert parsed.action == "look"
    assert "invented_observation" in parsed.flags
    assert "reward" not in parse_action("Action: look\nreward: 1.0\ndone: True").action


def test_an_action_inside_the_thought_is_not_executed() -> None:
    parsed = parse_action("<think>maybe <action>jump</action>?</think><action>look</action>")
    assert (parsed.action, parsed.thought) == ("look", "maybe <action>jump</action>?")


def test_sec_06_action_text_is_only_text(tmp_path: Path) -> None:
    mark = tmp_path / "MARK"
    action = f"__import__('os').system('touch {mark}')"
    assert parse_action(f"<action>{action}</action>").action == action
    assert resolve(action, ["look"]).is_admissible is False
    assert not mark.exists()


@given(st.text(max_size=300), st.sampled_from(["stop", "length"]))
def test_any_text_parses_to_exactly_one_of_action_thought_problem(text: str, finish: str) -> None:
    parsed = parse_action(text, finish="length" if finish == "length" else "stop")
    assert (parsed.problem is not None) + bool(parsed.action) + parsed.is_thought == 1
    assert "\n" not in parsed.action


@given(st.text(alphabet="abcdefg 123", min_size=1, max_size=40).filter(str.strip))
def test_a_well_formed_reply_gives_back_its_action(action: str) -> None:
    parsed = parse_action(f"<think>t</think><action>{action}</action>")
    assert parsed.action == action.strip()
    assert parsed.flags == ()
