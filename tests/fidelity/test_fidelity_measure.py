"""A model that plays the real game in its head is faithful; spoil it, and each number says so."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Sequence

import pytest
from fidelity_worlds import (
    ASK,
    MAX_STEPS,
    POLICIES,
    READER,
    honest,
    kind,
    panel,
    play,
    player,
    subject,
    suite,
)
from msgspec.structs import replace

from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.errors import ConfigError, DataError
from dreamgym.fidelity.free import drift, play_and_replay
from dreamgym.fidelity.measure import Measured, measure
from dreamgym.fidelity.panel import make_panel, make_policies, sample_episodes
from dreamgym.fidelity.repeat import repeat
from dreamgym.fidelity.settings import FidelitySettings
from dreamgym.fidelity.steps import ScoredStep, score_steps
from dreamgym.fidelity.subject import ABLATIONS, Subject, Variant, ablated
from dreamgym.fidelity.summary import UNVERIFIED, bounds, depth_name
from dreamgym.fidelity.tables import confusion, drift_curve, step_rates
from dreamgym.llm.base import Message
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.probe import ActionList
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import run_groups
from dreamgym.types import Origin, Task

SMALL = FidelitySettings(
    run="here",
    questions=150,
    drift_episodes=8,
    free_tasks=4,
    ablation_questions=60,
    ablation_tasks=4,
    copies=4,
)


def scored(one: Subject, *, negatives: int = 2, off: str = "") -> list[ScoredStep]:
    episodes = sample_episodes(panel().episodes, max_steps=120, seed=0)
    return asyncio.run(
        score_steps(Variant(one, off), episodes, tasks=panel().tasks, negatives=negatives, seed=0)
    )


@functools.cache
def measured() -> Measured:
    """Return a whole measurement of a good model; the ablations show what it lives on."""
    return measure(
        subject(), panel(), make_policies(suite(), POLICIES), replace(SMALL, ablate=("history",))
    )


def test_a_perfect_model_is_right_on_every_kind_of_step() -> None:
    steps = scored(subject())
    wrong = [(step.action, step.expected, step.answered) for step in steps if not step.exact]
    assert not wrong
    rates = step_rates(steps)
    assert rates.faults == 0 and rates.exact.value == rates.first_try.value == 1.0
    assert {step.is_negative for step in steps} == {True, False}
    assert any(step.is_valid for step in steps) and any(step.is_success for step in steps)


def test_playing_along_shows_on_impossible_actions_only() -> None:  # EXP-06
    steps = scored(subject(kind, ask=replace(ASK, check_ledger=False)), negatives=12)
    valid = step_rates([step for step in steps if step.is_valid])
    invalid = step_rates([step for step in steps if not step.is_valid])
    assert valid.exact.value == 1.0
    assert invalid.exact.value < 1.0
    claims = confusion((step.says_success, step.is_success) for step in steps)
    verified = confusion((step.verified_success, step.is_success) for step in steps)
    assert claims.false_yes > 0
    assert verified.false_yes < claims.false_yes and verified.missed == 0  # EXP-04


def test_state_right_and_reward_wrong_are_told_apart() -> None:  # EVL-08
    def stingy(action: str, text: str, reward: float, done: bool) -> str:
        return honest(action, text, 0.0, done)

    steps = [step for step in scored(subject(stingy)) if step.is_success]
    rates = step_rates(steps)
    assert rates.state.value == rates.done.value == 1.0
    assert rates.reward.value == rates.exact.value == 0.0
    found = bounds(steps, horizon=MAX_STEPS)[UNVERIFIED]
    assert found.eps_reward.value == 1.0 and found.eps_transition.value == 0.0
    settled = bounds(steps, horizon=MAX_STEPS)["all"]
    assert settled.eps_reward.value == 0.0, "the verifier sees the success in the facts"


def test_an_unusable_answer_is_a_fault_and_counts_as_wrong() -> None:  # EXP-01
    def cut(action: str, text: str, reward: float, done: bool) -> str:
        return (
            '{"next_state":"You'
            if action.startswith("take")
            else honest(action, text, reward, done)
        )

    steps = scored(subject(cut), negatives=0)
    faults = [step for step in steps if step.is_fault]
    assert faults and all(step.kind == "take" for step in faults)
    assert step_rates(faults).state.value == 0.0
    assert bounds(faults, horizon=1)["all"].eps_transition.value == 1.0


def test_errors_are_named_by_the_kind_of_fact() -> None:
    def empty_handed(action: str, text: str, reward: float, done: bool) -> str:
        said = "Nothing happens." if action.startswith("take") else text
        return honest(action, said, reward, done)

    taken = [s for s in scored(subject(empty_handed)) if s.kind == "take" and s.is_valid]
    assert taken
    for step in taken:
        changed, right = step.fields["holding"]
        assert (changed, right) == (1, 0)


@pytest.mark.parametrize("off", ABLATIONS)
def test_every_ablation_changes_what_the_model_is_shown_and_nothing_else(off: str) -> None:
    """All parts are on in this configuration, so that each has something to lose."""
    ask = replace(ASK, prompt=replace(ASK.prompt, neighbours=2))
    changed = ablated(ask, off)
    prompt = changed.prompt
    assert (prompt.history == 0) == (off == "history")
    assert (prompt.neighbours == 0) == (off == "demonstrations")
    assert (prompt.scenario == "off") == (off == "scenario")
    assert (not prompt.ledger) == (off == "ledger")
    assert (not changed.check_ledger) == (off == "ledger")
    assert (not prompt.reasoning) == (off == "reasoning")
    assert ablated(ask, "") == ask


def test_without_its_scenario_a_task_keeps_only_its_first_observation() -> None:
    variant = Variant(subject(), "scenario")
    task = next(iter(panel().tasks.values()))
    bare = variant.task(task)
    assert task.scenario is not None and bare.scenario is not None
    assert task.scenario.facts and not bare.scenario.facts
    assert bare.scenario.first_observation == task.scenario.first_observation
    assert Variant(subject()).task(task) == task


def test_unknown_ablations_and_empty_panels_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'history'"):
        Variant(subject(), "histori")
    with pytest.raises(ConfigError, match="did you mean 'ledger'"):
        FidelitySettings(ablate=("leger",))
    with pytest.raises(ConfigError, match="tasks must be at least 1; got 0"):
        FidelitySettings(tasks=0)
    with pytest.raises(DataError, match="no usable held-out episode"):
        make_panel([], READER)


def test_tasks_the_model_was_fitted_on_are_refused() -> None:
    rollouts = play(["random"])
    seen = rollouts[0].task.id
    with pytest.raises(DataError, match=f"such as {seen!r}"):
        make_panel(rollouts, READER, seen_tasks=[seen])


def test_a_faithful_dream_does_not_drift_and_an_early_end_counts_as_broken() -> None:
    episodes = sample_episodes(panel().episodes, max_steps=60, seed=1)
    rows = asyncio.run(drift(Variant(subject()), episodes, tasks=panel().tasks, seed=0))
    assert all(row.agreed == row.steps and row.dream_success == row.real_success for row in rows)

    def early(action: str, text: str, reward: float, done: bool) -> str:
        ends = action.startswith(("take", "open")) or done
        return json.dumps({"next_state": READER.natural(text), "reward": float(ends), "done": ends})

    spoilt = asyncio.run(
        drift(Variant(subject(early)), episodes, tasks=panel().tasks, seed=0, verify=False)
    )
    curve = drift_curve(spoilt)
    assert [point.unbroken.value for point in curve] == sorted(
        (point.unbroken.value for point in curve), reverse=True
    ) or curve[-1].unbroken.n < curve[0].unbroken.n
    broken = [row for row in spoilt if row.agreed < row.steps]
    assert broken and all(len(row.agrees) <= row.steps for row in broken)


def test_dreamt_successes_are_replayed_for_real_and_false_ones_found() -> None:
    tasks = list(panel().tasks.values())
    noisy = make_policies(suite(), ["noisy:p=0.7", "expert"])
    loose = Variant(subject(kind, ask=replace(ASK, check_ledger=False)))
    free = asyncio.run(play_and_replay(loose, noisy, tasks, seed=0, verify=False))
    assert len(free.rows) == 2 * len(tasks) and free.num_faults == 0
    assert any(row.dream_success for row in free.rows)
    by_expert = [row for row in free.rows if row.policy == "expert"]
    assert all(row.replay_success == row.dream_success for row in by_expert)
    assert free.real_steps == sum(row.real_steps for row in free.rows) > 0


def test_sixteen_copies_of_one_group_get_one_reward() -> None:  # EXP-12
    episodes = [e for e in panel().episodes if e.policy in ("expert", "random")][:4]
    found = asyncio.run(repeat(Variant(subject()), episodes, panel().tasks, copies=16))
    assert (found.groups, found.identical, found.faults) == (4, 4, 0)
    assert found.max_reward_sd == 0.0


def test_a_world_made_up_per_copy_is_found_out() -> None:  # EXP-12
    calls = iter(range(10_000))

    def moody(action: str, text: str, reward: float, done: bool) -> str:
        return json.dumps({"next_state": text, "reward": float(next(calls) % 2), "done": True})

    one = subject(moody, ask=replace(ASK, check_ledger=False))
    blind = replace(one, reader=_Blind())
    episodes = [e for e in panel().episodes if e.policy == "expert"][:2]
    found = asyncio.run(repeat(Variant(blind), episodes, panel().tasks, copies=8))
    assert found.max_reward_sd > 0.3


class _Blind(HouseholdReader):
    """A reader that can read no task sentence, of a world where failing is final."""

    failure_ends = True

    def achieved(self, task: Task, facts: dict[str, str]) -> bool | None:
        return None


def test_the_whole_measurement_of_a_perfect_model_finds_nothing_wrong() -> None:
    result = measured().fidelity
    assert result.steps.overall.exact.value == 1.0
    assert result.drift.whole.value == 1.0
    assert result.free_play.verifier_on.false_success.value == 0.0
    assert result.free_play.verifier_on.ratio.value == pytest.approx(1.0, abs=0.25)
    assert result.repeatability.max_reward_sd == 0.0
    assert result.scenario_known == 1.0
    assert result.calibration.ece is None  # a scripted model reports no probabilities
    counted = result.real_transitions
    assert counted.panel == sum(len(r.transitions) for r in play(POLICIES)) + sum(
        len(r.transitions) for r in play(["survey"], max_steps=60)
    )
    assert counted.replays > 0


def test_policies_are_ranked_as_in_reality() -> None:
    ranks = measured().fidelity.ranks
    assert set(ranks.policies) == set(POLICIES)
    assert ranks.agreement.is_enough and ranks.agreement.pairs_reversed <= 1


def test_a_model_without_its_memory_loses_consistency() -> None:
    rows = measured().fidelity.ablations
    assert set(rows) == {"full", "history"}
    lost = rows["history"].agreement_loss
    assert rows["history"].valid.state.value < rows["full"].valid.state.value == 1.0
    assert lost is not None and lost.value > 0
    assert rows["full"].agreement_loss is None


def test_the_verdict_speaks_of_every_part() -> None:
    said = measured().fidelity.verdict
    for start in ("One step", "Left to itself", "Success", "Order of policies", "Bound", "Speed"):
        assert any(sentence.startswith(start) for sentence in said), start


def test_a_task_only_the_dream_makes_impossible_is_named_and_not_called_hard() -> None:  # CUR-10
    lost = next(e.task for e in panel().episodes if e.policy == "expert" and e.success)
    chat = player(honest)

    def answer(messages: Sequence[Message]) -> str:
        asked = "\n".join(message.content for message in messages)
        if f"task: {lost.instruction}" in asked:
            return json.dumps({"next_state": "Nothing happens.", "reward": 0, "done": False})
        return chat._answer(messages)

    broken = ScriptedChat(answer, name="broken")
    ask = replace(ASK, check_ledger=False)
    one = replace(subject(), chat=broken, direct=broken, ask=ask)
    expert = make_policies(suite(), ["expert"])
    found = measure(one, panel(), expert, replace(SMALL, ablate=(), free_tasks=6)).fidelity
    named = {task.task_id: task.real for task in found.free_play.disagreements}
    assert named == {lost.id: 1.0}


def test_depth_bands_sort_by_depth() -> None:
    names = [depth_name(depth) for depth in (0, 4, 5, 9, 10, 19, 20)]
    assert names == sorted(names)


def test_a_group_of_copies_of_the_scripted_model_has_reward_sd_0_through_the_suite() -> None:
    task = next(iter(panel().tasks.values()))
    actions = [t.action for e in panel().episodes if e.task.id == task.id for t in e.transitions]
    groups = asyncio.run(
        run_groups(
            Variant(subject()).dream([task], verify=True),
            ActionList(actions[:5]),
            [task],
            group_size=16,
            seed=4,
            limits=EpisodeLimits(max_steps=5),
            origin=Origin.DREAM,
        )
    )
    assert len(set(groups[0].rewards)) == 1
    assert player().num_calls == 0  # a fresh one: nothing above shares it
