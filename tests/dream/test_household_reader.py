"""The household reader on hand-made texts and on recorded episodes of the genuine engine."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import msgspec
import pytest

import dreamgym.envs.household as household
from dreamgym.envs.base import Facts, StateReader
from dreamgym.envs.household.goals import Goal, goal_sentence, parse_goal, vocabulary
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.envs.household.readtext import entities, read_action
from dreamgym.errors import DataError
from dreamgym.types import Observation, Origin, Scenario, Task, Transition

READER: StateReader = HouseholdReader()
FIRST = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly "
    "around you, you see a bed 1, a desk 1, a drawer 2, a drawer 1, and a shelf 1.\n\n"
    "Your task is to: put a mug in shelf."
)
HIDDEN = {
    "desk 1": "surface: desklamp 1, mug 1, pen 1",
    "drawer 1": "closed: pen 2",
    "drawer 2": "closed: unknown",
    "shelf 1": "surface: nothing",
}
TASK = Task(
    id="t",
    suite="household",
    instruction="put a mug in shelf.",
    scenario=Scenario(first_observation=FIRST, facts=HIDDEN),
)
AT_DESK = (
    "go to desk 1",
    "You arrive at desk 1. On the desk 1, you see a desklamp 1, a mug 1, and a pen 1.",
)
TAKE_MUG = ("take mug 1 from desk 1", "You pick up the mug 1 from the desk 1.")
AT_SHELF = ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see nothing.")
AT_DRAWER = ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed.")


def after(*steps: tuple[str, str], task: Task = TASK) -> Facts:
    facts = READER.initial(task)
    for action, text in steps:
        assert READER.conflicts(facts, action, text) == []
        facts = READER.update(facts, action, text)
    return facts


def logged(
    *steps: tuple[str, str], episode: str = "e", actions: tuple[str, ...] | None = None
) -> list[Transition]:
    observation = Observation(text=FIRST, actions=actions)
    transitions = []
    for number, (action, text) in enumerate(steps):
        following = Observation(text=text)
        transitions.append(
            Transition(
                task_id="t",
                suite="household",
                episode_id=episode,
                step=number,
                instruction=TASK.instruction,
                observation=observation,
                action=action,
                next_observation=following,
                reward=0.0,
                terminated=False,
                truncated=False,
                success=False,
                origin=Origin.REAL,
            )
        )
        observation = following
    return transitions


def test_reader_modules_import_no_engine() -> None:
    folder = Path(household.__file__).parent
    parts = "readtext readfacts readback readcheck readfree readshow readtask goals"
    allowed = set(parts.split())
    for path in [*folder.glob("read*.py"), folder / "goals.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                head, _, name = node.module.rpartition(".")
                assert head != "dreamgym.envs.household" or name in allowed, (path.name, name)
                assert node.module != "dreamgym.envs.household", path.name


def test_initial_facts_have_one_order_whatever_the_scenario_order() -> None:
    facts = READER.initial(TASK)
    turned = Scenario(first_observation=FIRST, facts=dict(reversed(HIDDEN.items())))
    other = READER.initial(Task(id="t", suite="h", instruction="", scenario=turned))
    assert list(facts) == ["at", "holding", "bed 1", "desk 1", "drawer 1", "drawer 2", "shelf 1"]
    assert list(facts.items()) == list(other.items())
    assert facts["bed 1"] == "unknown"


def test_a_task_without_scenario_is_refused() -> None:
    with pytest.raises(DataError, match="no scenario"):
        READER.initial(Task(id="t", suite="household", instruction="put a mug in shelf."))


def test_update_follows_hand_places_and_states() -> None:
    facts = after(AT_DESK, TAKE_MUG)
    assert (facts["at"], facts["holding"]) == ("desk 1", "mug 1")
    assert facts["desk 1"] == "surface: desklamp 1, pen 1"
    facts = READER.update(facts, "x", "You heat the mug 1 using the microwave 1.")
    facts = READER.update(facts, "x", "You clean the mug 1 using the sinkbasin 1.")
    assert facts["mug 1"] == "clean, hot"
    facts = READER.update(facts, "x", "You cool the mug 1 using the fridge 1.")
    assert facts["mug 1"] == "clean, cool"
    facts = READER.update(facts, *AT_SHELF)
    facts = READER.update(facts, "move mug 1 to shelf 1", "You move the mug 1 to the shelf 1.")
    assert (facts["holding"], facts["shelf 1"]) == ("nothing", "surface: mug 1")


def test_update_opens_and_closes_with_contents_kept() -> None:
    opened = (
        "open drawer 1",
        "You open the drawer 1. The drawer 1 is open. In it, you see a pen 2.",
    )
    assert after(AT_DRAWER)["drawer 1"] == "closed: pen 2"
    assert after(AT_DRAWER, opened)["drawer 1"] == "open: pen 2"
    closed = ("close drawer 1", "You close the drawer 1.")
    assert after(AT_DRAWER, opened, closed)["drawer 1"] == "closed: pen 2"


@pytest.mark.parametrize("text", ["Nothing happens.", "The moon is full.", ""])
def test_no_effect_and_unknown_wording_change_nothing(text: str) -> None:
    facts = after(AT_DESK, TAKE_MUG)
    assert READER.update(facts, "move mug 1 to desk 1", text) == facts


def test_relevant_lines_are_what_the_action_mentions() -> None:
    facts = after(AT_DESK, TAKE_MUG)
    assert READER.relevant(facts, "take pen 1 from desk 1") == [
        "at: desk 1",
        "holding: mug 1",
        "pen 1: here, in desk 1",
        "desk 1: here, surface: a desklamp 1, and a pen 1",
    ]
    assert READER.relevant(facts, "go to drawer 1")[2:] == ["drawer 1: away, closed: a pen 2"]
    assert READER.relevant(facts, "look")[2:] == [
        "desk 1: here, surface: a desklamp 1, and a pen 1"
    ]
    assert READER.relevant(facts, "take pen 2 from drawer 1")[2] == "pen 2: away, in drawer 1"
    assert READER.relevant(facts, "use mug 1")[2] == "mug 1: in hand"
    assert READER.relevant(facts, "use cd 1")[2] == "cd 1: not seen"
    assert READER.relevant(facts, "go to cellar 1")[2:] == ["cellar 1: not in this room"]


@pytest.mark.parametrize(
    ("action", "text", "expected"),
    [
        ("take pen 1 from desk 1", "You pick up the pen 1 from the desk 1.", "already holding"),
        ("move pen 1 to desk 1", "You move the pen 1 to the desk 1.", "holding mug 1, not pen 1"),
        ("move mug 1 to shelf 1", "You move the mug 1 to the shelf 1.", "not at shelf 1"),
        ("open drawer 1", "You open the drawer 2. The drawer 2 is open. In it, you see nothing.",
         "asked about drawer 1"),
        ("go to shelf 1", "You arrive at bed 1. On the bed 1, you see nothing.",
         "answered about bed 1"),
        ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see a pen 3.",
         "shelf 1 holds nothing"),
        ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is open. In it, you see a pen 2.",
         "known as closed"),
        ("go to bed 1", "You arrive at bed 1. On the bed 1, you see a mug 1.", "mug 1 is in hand"),
        ("go to bed 1", "You arrive at bed 1. On the bed 1, you see a pen 1.", "is in desk 1"),
        ("go to bed 1", "You arrive at bed 1. On the bed 1, you see a cd 1, and a cd 1.", "twice"),
        ("heat pen 1 with desk 1", "You heat the pen 1 using the desk 1.", "holding mug 1"),
        ("examine shelf 1", "On the shelf 1, you see nothing.", "at desk 1, not at shelf 1"),
        ("close desk 1", "You close the desk 1.", "known as surface"),
        ("use cd 1", "You turn on the cd 1.", "not here"),
        ("inventory", "You are not carrying anything.", "holding mug 1"),
        ("look", "You are facing the bed 1. Next to it, you see nothing.", "at desk 1"),
        ("go to shelf 1", "You open the shelf 1.", "another action"),
        ("dance", "You pick up the pen 1 from the desk 1.", "another action"),
    ],
)  # fmt: skip
def test_contradictions_are_named(action: str, text: str, expected: str) -> None:
    found = READER.conflicts(after(AT_DESK, TAKE_MUG), action, text)
    assert any(expected in sentence for sentence in found), found


def test_saying_that_nothing_happens_contradicts_nothing() -> None:
    facts = after(AT_DESK, TAKE_MUG)
    for action in ("go to bed 1", "move mug 1 to desk 1", "fly", ""):
        assert READER.conflicts(facts, action, "Nothing happens.") == []


def test_exp_06_second_pick_up_and_unlisted_place_are_contradictions() -> None:
    facts = after(AT_DESK, ("take pen 1 from desk 1", "You pick up the pen 1 from the desk 1."))
    second = ("take mug 1 from desk 1", "You pick up the mug 1 from the desk 1.")
    assert READER.conflicts(facts, *second) == ["already holding pen 1."]
    assert READER.update(facts, second[0], "Nothing happens.") == facts
    far = "You arrive at bathroom 1. On the bathroom 1, you see nothing."
    assert READER.conflicts(facts, "go to bathroom 1", far) == ["there is no bathroom 1."]


def test_exp_13_a_claim_in_other_words_is_a_contradiction_and_leaves_the_state() -> None:
    facts = after(AT_DESK, ("use desklamp 1", "You turn on the desklamp 1."))
    text = "I turned it off."
    assert READER.conflicts(facts, "use desklamp 1", text)
    assert READER.update(facts, "use desklamp 1", text)["desklamp 1"] == "on"


def test_hindsight_does_not_take_moved_objects_for_initial_contents() -> None:
    facts = READER.hindsight(
        logged(
            AT_DESK,
            TAKE_MUG,
            AT_DRAWER,
            (
                "open drawer 1",
                "You open the drawer 1. The drawer 1 is open. In it, you see nothing.",
            ),
            ("move mug 1 to drawer 1", "You move the mug 1 to the drawer 1."),
            ("examine drawer 1", "The drawer 1 is open. In it, you see a mug 1."),
        )
    )
    assert facts["desk 1"] == "surface: desklamp 1, mug 1, pen 1"
    assert facts["drawer 1"] == "closed: nothing"
    assert (facts["drawer 2"], facts["shelf 1"]) == ("unknown", "unknown")


def test_hindsight_merges_episodes_and_keeps_open_what_none_saw() -> None:
    one = logged(AT_DESK, AT_DRAWER, episode="a")
    two = logged(
        AT_DRAWER,
        ("open drawer 1", "You open the drawer 1. The drawer 1 is open. In it, you see a pen 2."),
        episode="b",
    )
    assert READER.hindsight(one)["drawer 1"] == "closed: unknown"
    both = READER.hindsight([*one, *two])
    assert both["drawer 1"] == "closed: pen 2"
    assert both["desk 1"] == "surface: desklamp 1, mug 1, pen 1"


def test_hindsight_refuses_episodes_that_start_differently() -> None:
    other = ("go to desk 1", "You arrive at desk 1. On the desk 1, you see nothing.")
    with pytest.raises(DataError, match="desk 1 starts as"):
        READER.hindsight([*logged(AT_DESK, episode="a"), *logged(other, episode="b")])


@pytest.mark.parametrize(
    ("sentence", "goal"),
    [
        ("put a mug in shelf.", Goal(thing="mug", place="shelf")),
        ("put some mug on shelf.", Goal(thing="mug", place="shelf")),
        ("put two mug in shelf.", Goal(thing="mug", place="shelf", count=2)),
        ("find two mug and put them in shelf.", Goal(thing="mug", place="shelf", count=2)),
        ("put a clean mug in shelf.", Goal(thing="mug", place="shelf", state="clean")),
        ("clean some mug and put it in shelf.", Goal(thing="mug", place="shelf", state="clean")),
        ("put a hot mug in shelf.", Goal(thing="mug", place="shelf", state="hot")),
        ("heat some mug and put it in shelf.", Goal(thing="mug", place="shelf", state="hot")),
        ("put a cool mug in shelf.", Goal(thing="mug", place="shelf", state="cool")),
        ("cool some mug and put it in shelf.", Goal(thing="mug", place="shelf", state="cool")),
        ("look at mug under the desklamp.", Goal(thing="mug", place="desklamp", looking=True)),
        ("examine the mug with the desklamp.", Goal(thing="mug", place="desklamp", looking=True)),
        ("Your task is to: put a mug in shelf.", Goal(thing="mug", place="shelf")),
        ("make me happy.", None),
    ],
)
def test_task_sentences_are_read(sentence: str, goal: Goal | None) -> None:
    assert parse_goal(sentence) == goal
    if goal is not None:
        assert parse_goal(goal_sentence(goal)) == goal


def test_achieved_needs_state_and_number_and_is_none_for_unknown_sentences() -> None:
    facts = {"at": "shelf 1", "holding": "nothing", "shelf 1": "surface: cup 1, mug 1"}

    def achieved(sentence: str, **more: str) -> bool | None:
        task = Task(id="t", suite="h", instruction=sentence)
        return READER.achieved(task, facts | {k.replace("_", " "): v for k, v in more.items()})

    assert achieved("put a mug in shelf.") is True
    assert achieved("put two mug in shelf.") is False
    assert achieved("put two mug in shelf.", shelf_1="surface: mug 1, mug 2") is True
    assert achieved("put two mug in shelf.", shelf_2="surface: mug 2") is False
    assert achieved("put a clean mug in shelf.") is False
    assert achieved("put a clean mug in shelf.", cup_1="clean") is False
    assert achieved("put a clean mug in shelf.", mug_1="clean") is True
    assert achieved("look at mug under the desklamp.") is False
    lit = {"holding": "mug 1", "shelf_1": "surface: desklamp 1", "desklamp_1": "on"}
    assert achieved("look at mug under the desklamp.", **lit) is True
    assert achieved("look at mug under the desklamp.", **lit | {"at": "bed 1"}) is False
    assert achieved("make me happy.") is None


def test_explain_orders_facts_decision_and_goal() -> None:
    facts = after(AT_DESK, TAKE_MUG, AT_SHELF)
    text = "You move the mug 1 to the shelf 1."
    assert READER.explain(TASK, facts, "move mug 1 to shelf 1", text, True) == (
        "holding mug 1. shelf 1 here, surface. mug 1 in hand. ok. holding nothing. "
        "mug 1 in shelf 1. needs mug in shelf. has mug in shelf. task done."
    )


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("take pen 1 from desk 1", "holding mug 1"),
        ("move mug 1 to shelf 1", "not at shelf 1"),
        ("move pen 1 to desk 1", "not holding pen 1"),
        ("open desk 1", "desk 1 surface"),
        ("go to cellar 1", "cellar 1 not in this room"),
        ("use cd 1", "cd 1 not here"),
        ("examine cd 1", "cd 1 not here"),
        ("sing", "no such action"),
        ("move mug 1 to desk 1", "not possible"),
    ],
)
def test_explain_names_the_fact_against_a_failure(action: str, reason: str) -> None:
    text = READER.explain(TASK, after(AT_DESK, TAKE_MUG), action, "Nothing happens.", False)
    assert text.endswith(f"no effect: {reason}.")


def test_env_06_both_dialects_and_any_listing_order_have_one_canonical_form() -> None:
    newer = "You arrive at desk 1. On the desk 1, you see a pen 10, a pen 2, and a mug 1."
    older = "On the desk 1, you see a mug 1, a pen 2, a pen 10."
    assert READER.canonical(newer) == READER.canonical(older)
    assert READER.canonical(newer) == (
        "You arrive at desk 1. On the desk 1, you see a mug 1, a pen 2, and a pen 10."
    )
    loc = "You arrive at loc 3. On the desk 1, you see a pen 2, a mug 1, and a pen 10."
    assert READER.canonical(loc) == READER.canonical(newer)
    bare = FIRST.split("\n\n", 1)[1]
    assert READER.canonical(FIRST) == READER.canonical(bare)
    put = "You put the mug 1 in/on the desk 1."
    assert READER.canonical(put) == READER.canonical("You move the mug 1 to the desk 1.")
    once = READER.canonical(FIRST)
    assert READER.canonical(once) == once


def test_canonical_keeps_different_states_apart() -> None:
    texts = [
        "You arrive at desk 1. On the desk 1, you see a pen 1.",
        "You arrive at desk 1. On the desk 1, you see a pen 2.",
        "You arrive at desk 1. The desk 1 is closed.",
        "You arrive at desk 2. On the desk 2, you see a pen 1.",
        "Nothing happens.",
    ]
    assert len({READER.canonical(text) for text in texts}) == len(texts)


def test_natural_keeps_the_dialect() -> None:
    older = "On the desk 1, you see a pen 2, a mug 1."
    assert HouseholdReader().natural(older) == "On the desk 1, you see a mug 1, and a pen 2."


def test_spellings_of_putting_down_are_one_action() -> None:
    spellings = ["move mug 1 to shelf 1", "put mug 1 in/on shelf 1", "Put  mug 1 ON shelf 1"]
    assert len({str(read_action(action)) for action in spellings}) == 1
    assert {READER.action_kind(action) for action in spellings} == {"move"}
    assert READER.action_kind("put mug 1 on") == "other"


def test_negatives_are_many_diverse_deterministic_and_never_admissible() -> None:
    admissible = ("go to desk 1", "go to drawer 1", "go to drawer 2", "go to shelf 1",
                  "examine bed 1", "move mug 1 to bed 1", "help", "inventory", "look")  # fmt: skip
    step = logged(AT_DESK, actions=admissible)[0]
    found = READER.negatives(step)
    assert found == READER.negatives(step)
    assert len(found) >= 30
    assert len(set(found)) == len(found)
    kinds = Counter(READER.action_kind(action) for action in found)
    assert {"take", "move", "go", "open", "close", "heat", "cool", "clean", "use"} <= set(kinds)
    asked = {str(read_action(action)) for action in admissible}
    assert not asked & {str(read_action(a)) for a in found if READER.action_kind(a) != "other"}
    assert READER.negatives(logged(AT_DESK)[0]) == []


def test_entities_and_vocabulary() -> None:
    assert entities(AT_DESK[1]) == ["desk 1", "desklamp 1", "mug 1", "pen 1"]
    words = vocabulary([TASK])
    assert words.places == ("bed", "desk", "drawer", "shelf")
    assert words.things == ("desklamp", "mug", "pen")


def test_learned_reader_refuses_tools_that_no_real_log_shows() -> None:
    facts = after(AT_DESK, TAKE_MUG)
    kind = ("heat mug 1 with desk 1", "You heat the mug 1 using the desk 1.")
    assert READER.conflicts(facts, *kind) == []
    real = logged(("heat mug 1 with microwave 1", "You heat the mug 1 using the microwave 1."))
    assert HouseholdReader().learned(real).conflicts(facts, *kind) == [
        "no log shows heat with desk."
    ]
    dreamt = [msgspec.structs.replace(step, origin=Origin.DREAM) for step in real]
    assert HouseholdReader().learned(dreamt).conflicts(facts, *kind) == []
