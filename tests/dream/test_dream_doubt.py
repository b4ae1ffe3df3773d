"""Doubtful answers are kept, masked, verified or asked of reality; successes can need a vote."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from dream_worlds import (
    READER,
    TASK,
    WINNING,
    answer,
    asked_action,
    from_known,
    logs,
    play,
    play_group,
    real_suite,
)

from dreamgym.dream.annotate import scenario_tasks
from dreamgym.dream.doubt import DoubtConfig
from dreamgym.dream.env import DreamConfig, DreamSuite
from dreamgym.dream.experience import ExperienceConfig, ExperienceModel
from dreamgym.dream.verify import Verifier, VerifyConfig
from dreamgym.envs.base import Suite
from dreamgym.errors import ConfigError
from dreamgym.llm.base import Message, Reply
from dreamgym.types import Task

Say = Callable[[Sequence[Message], float], tuple[str, float | None]]
"""(messages, temperature) -> (text, confidence)."""


class Unsure:
    """A chat model that answers from its prompt and its temperature, with a confidence."""

    name = "unsure"

    def __init__(self, say: Say) -> None:
        self._say = say
        self.temperatures: list[float] = []

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        self.temperatures.append(temperature)
        text, confidence = self._say(messages, temperature)
        from math import log

        return Reply(text=text, logprobs=() if confidence is None else (log(confidence),) * 3)

    def release(self, session: str) -> None:
        """Nothing is kept."""


def doubting(
    say: Say,
    config: DoubtConfig,
    *,
    real: Suite | None = None,
    tasks: Sequence[Task] = (TASK,),
    verify: bool = True,
) -> DreamSuite:
    model = ExperienceModel(Unsure(say), ExperienceConfig(retries=0, max_tokens=500))
    return DreamSuite(
        tasks,
        model=model,
        reader=READER,
        config=DreamConfig(max_steps=20, doubt=config, verify=verify),
        real=real,
    )


def sure_of(*actions: str) -> Say:
    return lambda messages, temperature: (
        from_known(messages),
        0.95 if asked_action(messages) in actions else 0.5,
    )


def test_by_default_every_answer_is_kept_and_its_confidence_reported() -> None:
    suite = doubting(sure_of(), DoubtConfig())
    rollout = play(suite, WINNING)
    assert rollout.success and rollout.reward == 1.0 and not suite.doubt.counters


def test_masking_leaves_the_whole_episode_unscorable_and_never_0() -> None:
    suite = doubting(sure_of(*WINNING[1:]), DoubtConfig(policy="mask"))
    rollout = play(suite, WINNING)
    assert rollout.reward is None and not rollout.success and not rollout.is_fault
    assert "low_confidence" in rollout.transitions[0].flags
    assert suite.doubt.counters["doubt/masked"] == 1
    sure = play(doubting(sure_of(*WINNING), DoubtConfig(policy="mask")), WINNING)
    assert sure.reward == 1.0


def test_a_majority_of_samples_outvotes_a_doubtful_answer() -> None:
    def mistaken(messages: Sequence[Message], temperature: float) -> tuple[str, float]:
        wrong = temperature == 0 and asked_action(messages) == WINNING[0]
        return (answer("Nothing happens.") if wrong else from_known(messages)), 0.5

    suite = doubting(mistaken, DoubtConfig(policy="verify"))
    rollout = play(suite, WINNING)
    assert rollout.success
    assert "outvoted" in rollout.transitions[0].flags
    assert "confirmed" in rollout.transitions[1].flags
    assert suite.doubt.counters["doubt/outvoted"] == 1


def test_without_a_majority_the_step_is_masked() -> None:
    texts = iter(f"Seen {number}." for number in range(100))

    def torn(messages: Sequence[Message], temperature: float) -> tuple[str, float]:
        return answer(next(texts)), 0.1

    model = ExperienceModel(Unsure(torn), ExperienceConfig(retries=0, check_ledger=False))
    suite = DreamSuite(
        [TASK],
        model=model,
        reader=READER,
        config=DreamConfig(doubt=DoubtConfig(policy="verify")),
    )
    rollout = play(suite, WINNING[:1])
    assert rollout.reward is None and suite.doubt.counters["doubt/no_majority"] == 1


def test_where_the_model_reports_no_probabilities_samples_tell_its_confidence() -> None:
    def silent(messages: Sequence[Message], temperature: float) -> tuple[str, None]:
        odd = temperature > 0 and asked_action(messages) == WINNING[0]
        return (answer("Nothing happens.") if odd else from_known(messages)), None

    suite = doubting(silent, DoubtConfig(policy="mask", samples=2))
    rollout = play(suite, WINNING)
    assert "low_confidence" in rollout.transitions[0].flags
    assert [t.flags for t in rollout.transitions[1:3]] == [(), ()]


def test_a_lost_second_vote_takes_a_claimed_success_back() -> None:
    def fickle(messages: Sequence[Message], temperature: float) -> tuple[str, float]:
        claims = temperature == 0 and asked_action(messages).startswith("go")
        text = "You arrive at desk 1. On the desk 1, you see a pen 1, and a pen 2."
        return answer(text, reward=int(claims), done=claims), 0.9

    config = DoubtConfig(second_vote=True)
    suite = doubting(fickle, config, verify=False)
    rollout = play(suite, ["go to desk 1"])
    assert not rollout.success and "vote_lost" in rollout.transitions[0].flags
    assert suite.doubt.counters == {"vote/claims": 1, "vote/lost": 1}
    honest = doubting(lambda m, t: (from_known(m), 0.9), config, verify=False)
    assert play(honest, WINNING).success
    assert honest.doubt.counters == {"vote/claims": 1}


def test_reality_answers_doubtful_steps_within_its_budget() -> None:
    tasks = scenario_tasks(logs(), READER)
    episode = next(r for r in logs() if r.success and len(r.transitions) >= 3)
    actions = [t.action for t in episode.transitions[:3]]

    def lost(messages: Sequence[Message], temperature: float) -> tuple[str, float]:
        return answer("Nothing happens."), 0.1

    model = ExperienceModel(Unsure(lost), ExperienceConfig(retries=0, check_ledger=False))
    suite = DreamSuite(
        list(tasks.values()),
        model=model,
        reader=READER,
        config=DreamConfig(doubt=DoubtConfig(policy="ask_real", real_budget=4)),
        real=real_suite(),
    )
    rollout = play(suite, actions, task=tasks[episode.task.id])
    said = [READER.canonical(t.next_observation.text) for t in rollout.transitions]
    truth = [READER.canonical(t.next_observation.text) for t in episode.transitions[:3]]
    assert said[:2] == truth[:2]  # 1 + 2 real transitions; a third step would need 3 more
    assert suite.doubt.real_transitions == 3 and suite.doubt.counters["doubt/asked_real"] == 2
    assert "low_confidence" in rollout.transitions[2].flags and rollout.reward is None


def test_a_made_up_world_is_never_asked_of_reality() -> None:
    from msgspec.structs import replace

    tasks = scenario_tasks(logs(), READER)
    task = replace(next(iter(tasks.values())), generated=True)
    suite = doubting(
        lambda m, t: (answer("Nothing happens."), 0.1),
        DoubtConfig(policy="ask_real", real_budget=50),
        real=real_suite(),
        tasks=[task],
    )
    play(suite, ["look"], task=task)
    assert suite.doubt.real_transitions == 0
    assert suite.doubt.counters["doubt/real_refused"] == 1


def test_copies_of_a_group_settle_their_doubts_alike() -> None:
    suite = doubting(sure_of(), DoubtConfig(policy="verify", second_vote=True))
    group = play_group(suite, WINNING, size=16)
    assert set(group.rewards) == {1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, r"threshold must be in \[0, 1\]; got 1.5"),
        ({"samples": 0}, "samples must be at least 1; got 0"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"policy": "ask_real"}, "set doubt.real_budget"),
    ],
)
def test_settings_that_could_do_nothing_are_refused(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        DoubtConfig(**options)  # type: ignore[arg-type]  # options under test


def test_asking_reality_needs_a_real_suite() -> None:
    with pytest.raises(ConfigError, match="needs the real suite"):
        doubting(sure_of(), DoubtConfig(policy="ask_real", real_budget=5))


def test_the_model_can_be_believed_while_disagreement_is_counted() -> None:  # EXP-04
    from dreamgym.dream.reply import parse_reply

    reply = parse_reply(answer("You put it down.", reward=1, done=True))
    for claims, success in (("checked", False), ("believed", True)):
        verifier = Verifier(READER, VerifyConfig(claims=claims))  # type: ignore[arg-type]
        verdict = verifier.judge(TASK, READER.initial(TASK), reply)
        assert verdict.success is success and verdict.reward == float(success)
        assert verdict.outcome == "unsupported_success"
        assert verifier.rates()["verify/unsupported_success"] == 1.0
