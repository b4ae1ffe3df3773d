"""Rearranged worlds: free instances of dreamt tasks, valued as the task they come from."""

from __future__ import annotations

import json

from dreamgym.curriculum.sampler import UniformSampler
from dreamgym.curriculum.worlds import WorldSampler
from dreamgym.envs.household.goals import parse_goal
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.envs.household.readfacts import places
from dreamgym.envs.household.readtext import kind_of
from dreamgym.types import RolloutGroup, Scenario, Task

SENTENCE = "put a mug in shelf."
FACTS = {
    "desk 1": "surface: mug 1, pen 1",
    "drawer 1": "closed: pen 2, mug 2",
    "bed 1": "surface: nothing",
    "shelf 1": "surface: book 1",
    "safe 1": "closed: unknown",
}


def task(name: str) -> Task:
    first = "You are in the middle of a room. Looking quickly around you, you see a desk 1."
    scenario = Scenario(first_observation=first, facts=FACTS, success_criterion=SENTENCE)
    return Task(id=name, suite="household", instruction=SENTENCE, scenario=scenario)


def sampler(share: float = 1.0, inner: UniformSampler | None = None) -> WorldSampler:
    return WorldSampler(
        inner or UniformSampler([task("a"), task("b")], seed=0),
        HouseholdReader(),
        logged=[SENTENCE],
        share=share,
        seed=3,
    )


def test_the_same_things_lie_in_other_places_and_the_task_is_still_open() -> None:
    batch = sampler().next_batch(40)
    worlds = {json.dumps(t.scenario.facts, sort_keys=True) for t in batch if t.scenario}
    assert len(worlds) > 5
    for varied in batch:
        assert varied.scenario is not None
        found = places(varied.scenario.facts)
        items = sorted(item for place in found.values() for item in place.items)
        assert items == ["book 1", "mug 1", "mug 2", "pen 1", "pen 2"]
        assert found["drawer 1"].state == "closed" and len(found["drawer 1"].items) == 2
        assert varied.scenario.facts["safe 1"] == "closed: unknown"
        goal = parse_goal(varied.instruction)
        assert goal is not None
        assert not any(kind_of(item) == goal.thing for item in found["shelf 1"].items)


def test_instances_are_marked_and_have_ids_of_their_own() -> None:
    batch = sampler().next_batch(6)
    assert len({t.id for t in batch}) == 6
    assert all(t.generated and t.parent_id in ("a", "b") for t in batch)


def test_without_a_share_or_a_scenario_tasks_pass_through() -> None:
    assert {t.id for t in sampler(share=0.0).next_batch(4)} == {"a", "b"}
    bare = UniformSampler([Task(id="c", suite="household", instruction=SENTENCE)], seed=0)
    assert [t.id for t in sampler(inner=bare).next_batch(2)] == ["c", "c"]


def test_the_inner_sampler_hears_of_its_own_tasks() -> None:
    class Listening(UniformSampler):
        def observe(self, group: RolloutGroup) -> None:
            heard.append(group.task.id)

    heard: list[str] = []
    outer = sampler(inner=Listening([task("a"), task("b")], seed=0))
    batch = outer.next_batch(4)
    for varied in batch:
        outer.observe(RolloutGroup(task=varied, rollouts=()))
    assert heard == [t.parent_id for t in batch]


def test_after_a_resume_the_next_instances_are_those_due() -> None:
    straight = sampler()
    straight.next_batch(3)
    state = json.loads(json.dumps(straight.state_dict()))
    resumed = sampler()
    resumed.load_state_dict(state)
    assert resumed.next_batch(3) == straight.next_batch(3)
    assert resumed.metrics()["rearranged_share"] == 1.0
