"""GiGPO: turns matched to transitions, states matched across attempts, advantages by hand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rl_fakes import TASK, make_learner, moved, parameters, turn

from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.errors import ConfigError, DataError
from dreamgym.rl.algorithm import make_algorithm
from dreamgym.rl.anchors import group_states
from dreamgym.rl.gigpo import GiGPO, GiGPOConfig
from dreamgym.rl.grpo import GRPO, GRPOConfig
from dreamgym.rl.turns import acting_turns, episode_return, returns_to_go, turn_rewards
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import run_group
from dreamgym.types import (
    Completion,
    Observation,
    Origin,
    Rollout,
    RolloutGroup,
    Scenario,
    Step,
    StopReason,
    Task,
    Transition,
)


def walk(
    states: Sequence[str],
    *,
    reward: float | None = 0.0,
    paid: Sequence[float | None] = (),
    turns: Sequence[int] = (),
    num_turns: int | None = None,
    name: str = "w",
    actions: Sequence[str] = (),
    task: Task = TASK,
) -> Rollout:
    """Return a rollout through the states; the episode is paid at its end."""
    count = len(states) - 1
    transitions = tuple(
        Transition(
            task_id=task.id,
            suite=task.suite,
            episode_id=name,
            step=i,
            instruction=task.instruction,
            observation=Observation(text=states[i]),
            action=actions[i] if actions else f"to {states[i + 1]}",
            next_observation=Observation(text=states[i + 1]),
            reward=paid[i] if paid else (reward if i == count - 1 else 0.0),
            terminated=i == count - 1,
            truncated=False,
            success=False,
            origin=Origin.REAL,
        )
        for i in range(count)
    )
    completions = tuple(turn([1, 2], [3 + i, 4]) for i in range(num_turns or count))
    return Rollout(
        id=name,
        task=task,
        attempt=0,
        transitions=transitions,
        completions=completions,
        turns=tuple(turns),
        stop=StopReason.FAULT if reward is None else StopReason.TERMINATED,
        reward=reward,
        success=bool(reward),
    )


def group_of(*rollouts: Rollout) -> RolloutGroup:
    return RolloutGroup(task=rollouts[0].task, rollouts=rollouts)


def test_step_advantages_by_hand() -> None:
    # From A one attempt goes to B and wins, the other to C and loses; at B both were once.
    won = walk(["A", "B", "end"], reward=1.0, name="won")
    lost = walk(["A", "C", "B", "end"], reward=0.0, name="lost")
    config = GiGPOConfig(gamma=0.5, step_scale="mean", scale="mean", omega=2.0)
    steps = GiGPO(config).step_advantages(group_of(won, lost))
    # returns: won 0.5, 1.0; lost 0, 0, 0; A: mean 0.25, B: mean 0.5, C: alone
    assert steps.advantages == ((0.25, 0.5), (-0.25, 0.0, -0.5))
    assert (steps.num_anchors, steps.num_turns, steps.num_informative) == (2, 5, 4)
    samples, metrics = GiGPO(config).samples([group_of(won, lost)])
    # the episode's advantage is +-0.5
    assert samples[0].advantages == (0, 0, 1.0, 1.0, 0, 0, 1.5, 1.5)
    assert samples[1].advantages == (0, 0, -1.0, -1.0, 0, 0, -0.5, -0.5, 0, 0, -1.5, -1.5)
    assert metrics["gigpo/informative_turns"] == pytest.approx(4 / 5)


def test_the_standard_deviation_is_taken_within_the_state() -> None:
    won, lost = walk(["A", "e"], reward=1.0), walk(["A", "e"], reward=0.0, name="l")
    third = walk(["A", "e"], reward=0.0, name="m")
    steps = GiGPO().step_advantages(group_of(won, lost, third))
    # ddof 1: mean 1/3, deviation 0.57735
    assert [a[0] for a in steps.advantages] == pytest.approx([1.1547, -0.57735, -0.57735], 1e-4)


def test_a_group_of_successes_still_teaches_which_way_was_shorter() -> None:
    short = walk(["A", "end"], reward=1.0, name="short")
    long = walk(["A", "B", "A", "end"], reward=1.0, name="long")
    group = group_of(short, long)
    assert GRPO().samples([group])[0] == []
    samples, metrics = GiGPO().samples([group])
    assert metrics["groups/all_pass"] == 1
    assert metrics["groups/dead_in_steps_too"] == 0
    first = {s.rollout_id: s.advantages[2] for s in samples}
    assert first["short"] > 0 > first["long"]


def test_alg_01_groups_dead_in_steps_too_give_no_sample() -> None:
    failed = group_of(walk(["A", "B", "e"]), walk(["A", "B", "e"], name="x"))
    learner = make_learner()
    before = parameters(learner)
    result = GiGPO().update(learner, [failed])
    assert (result.num_samples, result.metrics["groups/dead_in_steps_too"]) == (0, 1)
    assert moved(before, parameters(learner)) == 0.0


def test_alg_09_faults_are_in_no_state_and_get_no_sample() -> None:
    fault = walk(["A", "B", "e"], reward=None, name="fault")
    won, lost = walk(["A", "B", "e"], reward=1.0), walk(["A", "B", "e"], name="lost")
    steps = GiGPO().step_advantages(group_of(won, fault, lost))
    assert steps.advantages[1] == (0.0, 0.0)
    without = GiGPO().step_advantages(group_of(won, lost))
    assert (steps.advantages[0], steps.advantages[2]) == without.advantages
    samples, metrics = GiGPO().samples([group_of(won, fault, lost)])
    assert {s.rollout_id for s in samples} == {"w", "lost"}
    assert metrics["groups/unscorable_rollouts"] == 1


def test_omega_zero_is_grpo_and_gamma_one_leaves_only_outcomes() -> None:
    group = group_of(walk(["A", "B", "e"], reward=1.0), walk(["A", "C", "e"], name="l"))
    plain, _ = GRPO(GRPOConfig()).samples([group])
    assert GiGPO(GiGPOConfig(omega=0.0)).samples([group])[0] == plain
    steps = GiGPO(GiGPOConfig(gamma=1.0, step_scale="mean")).step_advantages(group)
    assert steps.advantages == ((0.5, 0.0), (-0.5, 0.0))


def test_a_turn_without_a_transition_faces_the_state_of_the_next() -> None:
    # turn 0 had no readable action, turn 1 moved; turn 2 was unreadable and ended the episode
    rollout = walk(["A", "B"], turns=[1], num_turns=3)
    other = walk(["A", "B", "e"], reward=1.0, name="o")
    states = group_states(group_of(rollout, other), None)
    assert states == [["A", "A", "B"], ["A", "B"]]
    assert acting_turns(rollout) == (1,)
    # lost turns are discounted: from A the attempt that wasted a turn has the smaller return
    wasteful = walk(["A", "e"], reward=1.0, turns=[1], num_turns=2)
    steps = GiGPO(GiGPOConfig(gamma=0.5, step_scale="mean")).step_advantages(
        group_of(wasteful, walk(["A", "e"], reward=1.0, name="o"))
    )
    assert steps.advantages[0] == pytest.approx((-1 / 3, 1 / 6))
    assert steps.advantages[1] == pytest.approx((1 / 6,))


def test_a_rollout_that_never_acted_meets_the_start_of_the_others() -> None:
    silent = walk(["A"], num_turns=2, name="silent")
    assert silent.transitions == ()
    other = walk(["A", "e"], reward=1.0)
    assert group_states(group_of(silent, other), None) == [["A", "A"], ["A"]]
    assert group_states(group_of(silent, silent), None) == [[None, None]] * 2
    start = Task(id="s", suite="fake", instruction="", scenario=Scenario(first_observation="A"))
    alone = RolloutGroup(task=start, rollouts=(silent,))
    assert group_states(alone, None) == [["A", "A"]]


def test_turns_that_do_not_fit_the_transitions_are_refused() -> None:
    for turns in ([0], [1, 0], [0, 5], [-1, 0]):
        with pytest.raises(DataError, match="rollout 'w'"):
            acting_turns(walk(["A", "B", "e"], turns=turns))


def test_step_rewards_reach_the_turns_that_earned_them() -> None:
    rollout = walk(
        ["A", "B", "C", "e"], paid=[0.25, 0.0, 0.5], turns=[0, 2, 3], num_turns=4, reward=0.5
    )
    assert turn_rewards(rollout, "steps") == [0.25, 0.0, 0.0, 0.5]
    assert turn_rewards(rollout, "outcome") == [0.0, 0.0, 0.0, 0.5]
    assert episode_return(rollout, "steps") == 0.75
    assert episode_return(rollout, "outcome") == 0.5
    unknown = walk(["A", "B", "e"], paid=[None, 1.0], reward=1.0)
    assert turn_rewards(unknown, "steps") is None
    assert episode_return(unknown, "steps") is None
    # and so to GRPO's and GiGPO's advantages
    other = walk(["A", "e"], reward=0.5, name="o")
    config = GiGPOConfig(rewards="steps", scale="mean", step_scale="mean", gamma=1.0)
    algorithm = GiGPO(config)
    assert algorithm.advantages(group_of(rollout, other)).advantages == (0.125, -0.125)
    assert algorithm.step_advantages(group_of(rollout, other)).advantages[0][0] == 0.125


@given(
    st.lists(st.floats(-2, 2), min_size=1, max_size=8),
    st.floats(0, 1),
)
def test_returns_to_go_are_discounted_sums(rewards: list[float], gamma: float) -> None:
    found = returns_to_go(rewards, gamma)
    for t in range(len(rewards)):
        wanted = math.fsum(r * gamma**k for k, r in enumerate(rewards[t:]))
        assert found[t] == pytest.approx(wanted, abs=1e-9)


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("ABCD"), min_size=1, max_size=6), st.integers(0, 1)),
        min_size=2,
        max_size=6,
    )
)
def test_step_advantages_sum_to_zero_in_every_state(
    walks: list[tuple[list[str], int]],
) -> None:
    rollouts = [
        walk(["A", *states, "e"], reward=float(won), name=str(i))
        for i, (states, won) in enumerate(walks)
    ]
    group = group_of(*rollouts)
    sums: dict[str | None, float] = {}
    steps = GiGPO().step_advantages(group)
    for keys, advantages in zip(group_states(group, None), steps.advantages, strict=True):
        for key, advantage in zip(keys, advantages, strict=True):
            sums[key] = sums.get(key, 0.0) + advantage
    assert all(abs(total) < 1e-6 for total in sums.values())


FIRST = (
    "You are in the middle of a room. Looking quickly around you, you see a desk 1, "
    "a drawer 1, and a shelf 1. Your task is to: put a pen in shelf."
)
ROOM = Task(id="pens", suite="household", instruction="put a pen in shelf.")
DREAMT = msgspec.structs.replace(
    ROOM,
    scenario=Scenario(
        first_observation=FIRST,
        facts={
            "desk 1": "surface: pen 1, pen 2",
            "drawer 1": "closed: cd 1",
            "shelf 1": "surface: nothing",
        },
    ),
)
AT_DESK = "On the desk 1, you see a pen 2, and a pen 1."
AT_DRAWER = "The drawer 1 is closed."


def in_room(actions: Sequence[str], texts: Sequence[str], task: Task, name: str) -> Rollout:
    return walk([FIRST, *texts], actions=actions, task=task, name=name)


def test_canonical_text_makes_one_state_of_two_listing_orders() -> None:
    a = in_room(["go to desk 1", "x"], [AT_DESK, "end"], ROOM, "a")
    b = in_room(
        ["go to desk 1", "x"], ["On the desk 1, you see a pen 1, and a pen 2.", "end"], ROOM, "b"
    )
    states = group_states(group_of(a, b), HouseholdReader(), anchor="observation")
    assert states[0][1] == states[1][1]
    assert group_states(group_of(a, b), None)[0][1] != group_states(group_of(a, b), None)[1][1]


@pytest.mark.parametrize("task", [ROOM, DREAMT], ids=["without scenario", "with scenario"])
def test_facts_tell_full_from_empty_hands_where_the_text_does_not(task: Task) -> None:
    full = in_room(
        ["go to desk 1", "take pen 1 from desk 1", "go to drawer 1", "x"],
        [AT_DESK, "You pick up the pen 1 from the desk 1.", AT_DRAWER, "end"],
        task,
        "full",
    )
    empty = in_room(
        ["go to desk 1", "go to drawer 1", "x"], [AT_DESK, AT_DRAWER, "end"], task, "empty"
    )
    roundabout = in_room(
        ["go to drawer 1", "go to desk 1", "take pen 1 from desk 1", "go to drawer 1", "x"],
        [AT_DRAWER, AT_DESK, "You pick up the pen 1 from the desk 1.", AT_DRAWER, "end"],
        task,
        "roundabout",
    )
    group = group_of(full, empty, roundabout)
    text = group_states(group, HouseholdReader(), anchor="observation")
    facts = group_states(group, HouseholdReader(), anchor="facts")
    assert text[0][3] == text[1][2]
    assert facts[0][3] != facts[1][2]
    assert facts[0][3] == facts[2][4]
    # an earlier state helps a suite without a reader
    before = group_states(group, None, previous=1)
    assert before[0][3] != before[1][2]


def test_the_reader_of_a_suite_is_found_by_its_name() -> None:
    a = in_room(["go to desk 1", "x"], [AT_DESK, "end"], ROOM, "a")
    b = in_room(
        ["go to desk 1", "x"], ["On the desk 1, you see a pen 1, and a pen 2.", "end"], ROOM, "b"
    )
    won = msgspec.structs.replace(a, reward=1.0)
    assert GiGPO().step_advantages(group_of(won, b)).num_anchors == 2
    blind = GiGPO(reader_of=lambda suite: None)
    assert blind.step_advantages(group_of(won, b)).num_anchors == 1


def test_options_that_cannot_work_are_refused() -> None:
    for options, message in (
        ({"gamma": 1.5}, "gamma must be in"),
        ({"omega": -1.0}, "omega must not be negative"),
        ({"group_size": 1}, "group size >= 2"),
        ({"gama": 0.9}, "did you mean 'gamma'"),
        ({"clip_low": 2.0}, "clip_low"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_algorithm("gigpo", **options)


class Corridor:
    """Three steps to the right; every state names its place."""

    name = "corridor"

    def __init__(self) -> None:
        self.place = 0

    def tasks(self, split: str) -> Sequence[Task]:
        return [TASK]

    def open(self, task: Task, *, seed: int) -> Corridor:
        return Corridor()

    async def start(self) -> Observation:
        return Observation(text=f"place {self.place}")

    async def step(self, action: str) -> Step:
        self.place += action == "right"
        done = self.place == 3
        return Step(
            observation=Observation(text=f"place {self.place}"),
            reward=float(done),
            terminated=done,
            success=done,
        )

    async def close(self) -> None:
        pass


class Rambler:
    """Walks right, but every second reply of odd seeds holds no action."""

    name = "rambler"

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.turn = seed, 0

    def start(self, task: Task, *, seed: int) -> Rambler:
        return Rambler(seed)

    async def act(self, observation: Observation) -> Completion:
        self.turn += 1
        is_mute = self.seed % 2 and self.turn % 2
        text = "" if is_mute else "<action>right</action>"
        return Completion(text=text, context_ids=(1,), token_ids=(2,), logprobs=(-1.0,))

    async def close(self) -> None:
        pass


def test_episodes_record_which_turn_led_to_which_transition() -> None:
    group = asyncio.run(
        run_group(
            Corridor(),
            Rambler(),
            TASK,
            group_size=8,
            seed=0,
            limits=EpisodeLimits(max_steps=9),
            origin=Origin.REAL,
        )
    )
    turns = {len(r.completions): r.turns for r in group.rollouts}
    assert turns == {3: (), 6: (1, 3, 5)}
    states = {len(s): s for s in group_states(group, None)}
    assert states[3] == ["place 0", "place 1", "place 2"]
    assert states[6] == ["place 0", "place 0", "place 1", "place 1", "place 2", "place 2"]
    samples, metrics = GiGPO().samples([group])
    assert metrics["groups/all_pass"] == 1
    assert {s.rollout_id for s in samples} == {r.id for r in group.rollouts}
