"""The ledger of a dreamt episode."""

from __future__ import annotations

from dreamgym.dream.ledger import Ledger
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.types import Scenario, Task

TASK = Task(
    id="t",
    suite="household",
    instruction="put a pen in shelf.",
    scenario=Scenario(
        first_observation=(
            "You are in the middle of a room. Looking quickly around you, you see a desk 1, "
            "a drawer 1, and a shelf 1. Your task is to: put a pen in shelf."
        ),
        facts={
            "desk 1": "surface: pen 1, pen 2",
            "drawer 1": "closed: cd 1",
            "shelf 1": "surface: nothing",
        },
    ),
)
ARRIVE = ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a pen 1, and a pen 2.")
TAKE = ("take pen 1 from desk 1", "You pick up the pen 1 from the desk 1.")


def ledger(*steps: tuple[str, str]) -> Ledger:
    made = Ledger(HouseholdReader(), TASK)
    for step in steps:
        made.apply(*step)
    return made


def test_lines_let_an_answer_be_looked_up() -> None:
    assert ledger().lines("go to drawer 1") == [
        "at: middle of the room",
        "holding: nothing",
        "drawer 1: away, closed: a cd 1",
    ]


def test_exp_06_taking_a_second_object_is_a_conflict_and_nothing_happens_is_not() -> None:
    found = ledger(ARRIVE, TAKE)
    second = "take pen 2 from desk 1"
    assert found.check(second, "You pick up the pen 2 from the desk 1.") == [
        "already holding pen 1."
    ]
    assert found.check(second, "Nothing happens.") == []
    before = found.facts
    found.apply(second, "Nothing happens.")
    assert found.facts == before


def test_exp_06_a_place_never_listed_is_a_conflict() -> None:
    text = "You arrive at bathroom 1. On the bathroom 1, you see nothing."
    assert ledger().check("go to bathroom 1", text) == ["there is no bathroom 1."]


def test_the_pinned_contents_cannot_be_reinvented() -> None:
    arrive = ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed.")
    text = "You open the drawer 1. The drawer 1 is open. In it, you see a pen 3."
    assert ledger(arrive).check("open drawer 1", text) == ["drawer 1 holds cd 1."]


def test_history_keeps_what_was_accepted_in_spite_of_conflicts() -> None:
    found = ledger(ARRIVE, ("take cd 1 from desk 1", "You pick up the cd 1 from the desk 1."))
    assert [entry.action for entry in found.history] == [ARRIVE[0], "take cd 1 from desk 1"]
    assert found.history[0].conflicts == ()
    assert found.history[1].conflicts == ("cd 1 is in drawer 1.",)


def test_exp_13_a_claimed_change_outside_the_wording_is_seen_by_the_ledger() -> None:
    found = ledger(ARRIVE)
    assert found.check("use pen 1", "I turned it off.")
    before = found.facts
    found.apply("use pen 1", "I turned it off.")
    assert found.facts == before
    assert found.history[-1].conflicts


def test_facts_are_a_copy() -> None:
    found = ledger()
    found.facts["at"] = "the moon"
    assert found.facts["at"] == "middle of the room"


def test_two_ledgers_of_a_task_do_not_share_facts() -> None:
    first, second = ledger(ARRIVE, TAKE), ledger()
    assert first.facts["holding"] == "pen 1"
    assert second.facts["holding"] == "nothing"
