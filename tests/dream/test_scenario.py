"""Scenarios in hindsight, their completion, and pinning per group."""

from __future__ import annotations

import msgspec
import pytest

from dreamgym.dream.scenario import (
    Pins,
    complete,
    is_known,
    known_share,
    make_scenario,
    pin,
    scenario_text,
)
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.errors import DataError
from dreamgym.types import Observation, Origin, Scenario, Task, Transition

READER = HouseholdReader()
FIRST = (
    "You are in the middle of a room. Looking quickly around you, you see a desk 1, a drawer 2, "
    "and a drawer 1. Your task is to: put a pen in desk."
)
TASK = Task(id="t", suite="household", instruction="put a pen in desk.")


def episode(
    *steps: tuple[str, str], name: str = "e", task_id: str = "t", first: str = FIRST, start: int = 0
) -> list[Transition]:
    observation = Observation(text=first)
    found = []
    for number, (action, text) in enumerate(steps, start):
        found.append(
            Transition(
                task_id=task_id,
                suite="household",
                episode_id=name,
                step=number,
                instruction=TASK.instruction,
                observation=observation,
                action=action,
                next_observation=Observation(text=text),
                reward=0.0,
                terminated=False,
                truncated=False,
                success=False,
                origin=Origin.REAL,
            )
        )
        observation = Observation(text=text)
    return found


CLOSED = ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed.")
OPENED = ("open drawer 1", "You open the drawer 1. The drawer 1 is open. In it, you see a pen 1.")
DESK = ("go to desk 1", "You arrive at desk 1. On the desk 1, you see nothing.")


def test_scenario_takes_hidden_facts_from_all_episodes() -> None:
    made = make_scenario(TASK, [episode(CLOSED, OPENED), episode(DESK, name="f")], READER)
    assert made.first_observation == FIRST
    assert made.success_criterion == TASK.instruction
    assert made.facts == {
        "desk 1": "surface: nothing",
        "drawer 1": "closed: pen 1",
        "drawer 2": "unknown",
    }
    assert made.written == ()


def test_exp_12_episodes_with_different_starts_are_refused() -> None:
    other = FIRST.replace("a drawer 2", "a drawer 3")
    with pytest.raises(DataError, match="starts differently"):
        make_scenario(TASK, [episode(DESK), episode(DESK, name="f", first=other)], READER)


def test_episodes_of_another_task_are_refused() -> None:
    with pytest.raises(DataError, match="'other'"):
        make_scenario(TASK, [episode(DESK, task_id="other")], READER)


def test_without_a_first_step_there_is_no_scenario() -> None:
    with pytest.raises(DataError, match="first step"):
        make_scenario(TASK, [episode(DESK, start=3)], READER)
    with pytest.raises(DataError, match="first step"):
        make_scenario(TASK, [], READER)


def test_known_share_counts_facts_that_leave_nothing_open() -> None:
    facts = {
        "a 1": "closed: pen 1",
        "a 2": "closed: unknown",
        "a 3": "unknown",
        "a 4": "surface: x",
    }
    assert known_share(Scenario(first_observation="", facts=facts)) == 0.5
    assert known_share(Scenario(first_observation="")) == 1.0
    assert not is_known("")


def test_complete_fills_open_facts_only_and_records_what_was_written() -> None:
    facts = {"a 1": "closed: pen 1", "a 2": "closed: unknown", "a 3": "unknown", "a 4": "unknown"}
    asked: list[tuple[str, str]] = []

    def filler(entity: str, known: str) -> str:
        asked.append((entity, known))
        return {"a 2": "closed: \n mug 1", "a 3": "surface: nothing"}.get(entity, known)

    made = complete(Scenario(first_observation="f", facts=facts), filler)
    assert asked == [("a 2", "closed: unknown"), ("a 3", "unknown"), ("a 4", "unknown")]
    assert made.facts == facts | {"a 2": "closed: mug 1", "a 3": "surface: nothing"}
    assert list(made.facts) == list(facts)
    assert made.written == ("a 2", "a 3")
    assert known_share(made) == 0.75


def test_scenario_text_is_compact_and_leaves_out_the_first_observation() -> None:
    facts = {"a 1": "closed: pen 1", "a 2": "unknown", "a 3": "closed: unknown", "a 4": "unknown"}
    text = scenario_text(Scenario(first_observation="You see a lot.", facts=facts))
    assert text == "a 1: closed: pen 1\na 3: closed: unknown\nunknown: a 2, a 4"
    assert scenario_text(Scenario(first_observation="x")) == ""


def test_exp_12_a_group_shares_one_scenario_object_and_another_group_gets_its_own() -> None:
    pins = Pins()
    made: list[Scenario] = []

    def make() -> Scenario:
        made.append(Scenario(first_observation=f"start {len(made)}"))
        return made[-1]

    members = [pins.get("group 1", make) for _ in range(8)]
    assert all(member is members[0] for member in members)
    assert pins.get("group 2", make).first_observation != members[0].first_observation
    assert len(made) == 2


def test_exp_12_a_pinned_task_keeps_its_scenario() -> None:
    scenario = make_scenario(TASK, [episode(DESK)], READER)
    pinned = pin(TASK, scenario)
    assert pinned.scenario is scenario
    assert pin(pinned, scenario).scenario is scenario
    with pytest.raises(DataError, match="another scenario"):
        pin(pinned, Scenario(first_observation="elsewhere"))


def test_scenarios_survive_json() -> None:
    scenario = complete(
        make_scenario(TASK, [episode(CLOSED, DESK)], READER), lambda entity, known: "surface: é 1"
    )
    again = msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario)
    assert again == scenario
    assert list(again.facts) == list(scenario.facts)
