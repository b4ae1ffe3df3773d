"""The verifier settles what a dreamt step counts as."""

from __future__ import annotations

import pytest

from dreamgym.dream.ledger import Ledger
from dreamgym.dream.reply import DreamReply, parse_reply
from dreamgym.dream.verify import Verdict, Verifier, VerifyConfig
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.types import Scenario, Task

FIRST = (
    "You are in the middle of a room. Looking quickly around you, you see a sinkbasin 1, "
    "and a shelf 1. Your task is to: put a clean cup in shelf."
)
TASK = Task(
    id="t",
    suite="household",
    instruction="put a clean cup in shelf.",
    scenario=Scenario(
        first_observation=FIRST,
        facts={"sinkbasin 1": "surface: cup 1", "shelf 1": "surface: nothing"},
    ),
)
UNREADABLE = Task(id="u", suite="x", instruction="be nice", scenario=TASK.scenario)
CLEAN = ("clean cup 1 with sinkbasin 1", "You clean the cup 1 using the sinkbasin 1.")


def facts(*, cleaned: bool, placed: bool = True) -> dict[str, str]:
    ledger = Ledger(HouseholdReader(), TASK)
    ledger.apply(
        "go to sinkbasin 1", "You arrive at sinkbasin 1. On the sinkbasin 1, you see a cup 1."
    )
    ledger.apply("take cup 1 from sinkbasin 1", "You pick up the cup 1 from the sinkbasin 1.")
    if cleaned:
        ledger.apply(*CLEAN)
    ledger.apply("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see nothing.")
    if placed:
        ledger.apply("move cup 1 to shelf 1", "You move the cup 1 to the shelf 1.")
    assert not any(entry.conflicts for entry in ledger.history)
    return ledger.facts


def reply(reward: float | None, *, done: bool) -> DreamReply:
    value = "null" if reward is None else reward
    body = f'{{"next_state":"You move it.","reward":{value},"done":{str(done).lower()}}}'
    return parse_reply(body)


def judge(known: dict[str, str], answer: DreamReply, **options: object) -> Verdict:
    config = VerifyConfig(**options)  # type: ignore[arg-type]  # options of the config under test
    return Verifier(HouseholdReader(), config).judge(TASK, known, answer)


def test_a_success_that_the_facts_show_is_agreed() -> None:
    verdict = judge(facts(cleaned=True), reply(1, done=True))
    assert verdict == Verdict(outcome="agreed", reward=1.0, done=True, success=True)


def test_exp_04_success_without_the_work_is_refused_flagged_and_counted() -> None:
    verifier = Verifier(HouseholdReader())
    verdict = verifier.judge(TASK, facts(cleaned=False), reply(1, done=True))
    assert (verdict.reward, verdict.done, verdict.success) == (0.0, False, False)
    assert verdict.flags == ("unsupported_success",)
    verifier.judge(TASK, facts(cleaned=True), reply(1, done=True))
    assert verifier.rates()["verify/unsupported_success"] == 0.5


def test_exp_08_an_early_reward_is_ignored_and_flagged_in_outcome_mode() -> None:
    known = facts(cleaned=True, placed=False)
    verdict = judge(known, reply(1, done=False))
    assert (verdict.reward, verdict.done, verdict.success) == (0.0, False, False)
    assert verdict.flags == ("early_reward",)


def test_exp_08_sum_mode_keeps_the_early_reward() -> None:
    verdict = judge(facts(cleaned=True, placed=False), reply(0.5, done=False), mode="sum")
    assert (verdict.reward, verdict.flags) == (0.5, ())


def test_exp_09_done_without_the_state_change_is_an_early_stop_and_goes_on() -> None:
    verdict = judge(facts(cleaned=False), reply(0, done=True))
    assert (verdict.done, verdict.success, verdict.reward) == (False, False, 0.0)
    assert (verdict.outcome, verdict.flags) == ("early_stop", ("early_stop",))


def test_exp_09_where_failing_is_final_the_end_is_believed_but_not_the_success() -> None:
    verifier = Verifier(HouseholdReader(), failure_ends=True)
    known = facts(cleaned=False)
    lost = verifier.judge(TASK, known, reply(0.4, done=True))
    assert (lost.reward, lost.done, lost.success, lost.flags) == (0.4, True, False, ())
    claimed = verifier.judge(TASK, known, reply(1, done=True))
    assert (claimed.reward, claimed.done, claimed.success) == (0.0, True, False)


@pytest.mark.parametrize("trust", [True, False])
def test_a_missed_success_counts_only_if_the_verifier_is_trusted(trust: bool) -> None:
    verdict = judge(facts(cleaned=True), reply(0, done=False), trust_verifier=trust)
    assert verdict.flags == ("missed_success",)
    assert (verdict.reward, verdict.done, verdict.success) == (float(trust), trust, trust)


def test_null_reward_is_unscorable_even_when_the_facts_show_success() -> None:
    verdict = judge(facts(cleaned=True), reply(None, done=True))
    assert (verdict.reward, verdict.success, verdict.flags) == (None, False, ("unscorable",))


def test_a_goal_that_cannot_be_read_leaves_the_claim_and_flags_it() -> None:
    verifier = Verifier(HouseholdReader())
    verdict = verifier.judge(UNREADABLE, facts(cleaned=False), reply(1, done=True))
    assert (verdict.reward, verdict.success, verdict.flags) == (1.0, True, ("unverified",))
    ended = verifier.judge(UNREADABLE, facts(cleaned=False), reply(0, done=True))
    assert (ended.done, ended.flags) == (True, ())


def test_an_ordinary_step_passes_unchanged() -> None:
    verdict = judge(facts(cleaned=True, placed=False), reply(0, done=False))
    assert verdict == Verdict(outcome="agreed", reward=0.0, done=False, success=False)
