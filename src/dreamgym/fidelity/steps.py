"""Held-out real steps answered by the experience model, one by one: teacher-forced accuracy.

Each question has the real past: the ledger is filled from the logged answers, so that an error at
one step does not spread to the next (`drift` measures that).  The model is asked as in a dream,
asked again after a contradiction included; `first_try` tells those answers apart.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from dreamgym.dream.prompt import StepContext, Turn
from dreamgym.dream.scenario import scenario_text
from dreamgym.dream.verify import Verifier
from dreamgym.envs.base import Facts
from dreamgym.errors import ReplyError
from dreamgym.fidelity.subject import Variant
from dreamgym.llm.budget import finish_all
from dreamgym.seeds import derive_random, derive_seed
from dreamgym.types import Rollout, Task, Transition

MAX_CONCURRENT = 128


class ScoredStep(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the experience model beside what really happened."""

    episode_id: str
    policy: str
    depth: int
    """0-based index of the step in its episode."""
    action: str
    kind: str
    is_negative: bool
    """A free negative: known to do nothing, never executed."""
    is_valid: bool
    """In reality the action had an effect."""
    is_rare: bool = False
    is_fault: bool = False
    """No usable answer came; everything below counts as wrong."""
    text: bool = False
    """Next state equal word for word (listings in one order)."""
    state: bool = False
    """Next state equal in canonical form."""
    reward_error: float = 1.0
    """|predicted - real reward|, at most 1."""
    is_paid: bool
    is_done: bool
    is_success: bool
    says_paid: bool = False
    says_done: bool = False
    says_success: bool = False
    verified_success: bool = False
    verified_done: bool = False
    verified_reward_error: float = 1.0
    """The verifier's verdict on the same answer: what the dream goes on with when it is on."""
    fields: dict[str, tuple[int, int]] = {}
    """Kind of fact -> (facts of it that changed, in truth or by the answer; of these right)."""
    confidence: float | None = None
    first_try: bool = False
    expected: str = ""
    answered: str = ""

    @property
    def exact(self) -> bool:
        """Next state, reward and end are all right."""
        return self.state and self.reward_error == 0.0 and self.says_done == self.is_done

    @property
    def verified_exact(self) -> bool:
        """The same after the verifier."""
        settled = self.verified_reward_error == 0.0 and self.verified_done == self.is_done
        return self.state and settled and not self.is_fault


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    task: Task
    facts: Facts
    turns: tuple[Turn, ...]
    transition: Transition
    action: str
    is_negative: bool
    policy: str


async def score_steps(
    variant: Variant,
    episodes: Sequence[Rollout],
    *,
    tasks: dict[str, Task],
    negatives: int,
    seed: int,
    rare_share: float = 0.02,
    on_answer: Callable[[], object] = lambda: None,
) -> list[ScoredStep]:
    """Ask every step of the episodes and `negatives` impossible actions beside each.

    `tasks` are the episodes' tasks with their scenarios.  An action kind that makes up less than
    `rare_share` of the logged steps is rare.
    """
    questions = [
        question
        for episode in episodes
        for question in _questions(variant, tasks[episode.task.id], episode, negatives, seed)
    ]
    gate = asyncio.Semaphore(MAX_CONCURRENT)

    async def one(index: int, question: _Question) -> ScoredStep:
        async with gate:
            step = await _score(variant, question, seed=derive_seed(seed, index), index=index)
        on_answer()
        return step

    steps = await finish_all(one(i, question) for i, question in enumerate(questions))
    return _mark_rare(steps, rare_share)


def _questions(
    variant: Variant, task: Task, episode: Rollout, negatives: int, seed: int
) -> list[_Question]:
    reader = variant.subject.reader
    task = variant.task(task)
    facts = reader.initial(task)
    turns: tuple[Turn, ...] = ()
    rng = derive_random(seed, "fidelity negatives", episode.id)
    found = []
    for transition in episode.transitions:
        base = _Question(
            task=task,
            facts=facts,
            turns=turns,
            transition=transition,
            action=transition.action,
            is_negative=False,
            policy=episode.policy,
        )
        found.append(base)
        pool = reader.negatives(transition)
        for action in rng.sample(pool, min(negatives, len(pool))):
            found.append(replace(base, action=action, is_negative=True))
        text = transition.next_observation.text
        facts = reader.update(facts, transition.action, text)
        # Worded as the answers are, because in a dream the past is made of answers.
        turns = (*turns, Turn(transition.action, reader.natural(text)))
    return found


async def _score(variant: Variant, question: _Question, *, seed: int, index: int) -> ScoredStep:
    reader, transition = variant.subject.reader, question.transition
    expected = "" if question.is_negative else transition.next_observation.text
    blank = _blank(variant, question, expected)
    session = f"fidelity/{variant.name}/{index}"
    try:
        answer = await variant.experience.answer(
            _context(variant, question),
            seed=seed,
            session=session,
            check=lambda text: reader.conflicts(question.facts, question.action, text),
        )
    except ReplyError as error:
        return replace(blank, is_fault=True, answered=str(error))
    finally:
        variant.meter.release(session)
    reply = answer.reply
    after = reader.update(question.facts, question.action, reply.next_state)
    verdict = Verifier(reader).judge(question.task, after, reply)
    real, truth = 0.0, question.facts
    # How a suite says that nothing happened is its own business; that it says so is what counts.
    same_text = same_state = reader.is_no_effect(reply.next_state)
    if not question.is_negative:
        real = transition.reward or 0.0
        truth = reader.update(question.facts, question.action, expected)
        same_text = reader.natural(reply.next_state) == reader.natural(expected)
        same_state = reader.canonical(reply.next_state) == reader.canonical(expected)
    return replace(
        blank,
        text=same_text,
        state=same_state,
        reward_error=_reward_error(reply.reward, real),
        says_paid=bool(reply.reward),
        says_done=reply.done,
        says_success=reply.success,
        verified_success=verdict.success,
        verified_done=verdict.done,
        verified_reward_error=_reward_error(verdict.reward, real),
        fields=_fields(question.facts, truth, after),
        confidence=answer.confidence,
        first_try=answer.attempts == 1,
        answered=reply.next_state,
    )


def _context(variant: Variant, question: _Question) -> StepContext:
    prompt, task = variant.experience.config.prompt, question.task
    found = []
    if variant.buffer is not None and prompt.neighbours:
        found = variant.buffer.query(
            question.transition.observation.text,
            question.action,
            k=prompt.neighbours,
            suite=task.suite,
            exclude_task=task.id,
        )
    return StepContext(
        task=task,
        scenario=scenario_text(task.scenario) if task.scenario else "",
        history=question.turns,
        known=variant.subject.reader.relevant(question.facts, question.action),
        neighbours=[neighbour.transition for neighbour in found],
        action=question.action,
    )


def _blank(variant: Variant, question: _Question, expected: str) -> ScoredStep:
    reader, transition, real = variant.subject.reader, question.transition, not question.is_negative
    return ScoredStep(
        episode_id=transition.episode_id,
        policy=question.policy,
        depth=transition.step,
        action=question.action,
        kind=reader.action_kind(question.action),
        is_negative=question.is_negative,
        is_valid=real and not reader.is_no_effect(expected),
        is_paid=real and bool(transition.reward),
        is_done=real and transition.terminated,
        is_success=real and transition.success,
        expected=expected,
    )


def _reward_error(said: float | None, real: float) -> float:
    # A reward of null is unscorable: nothing was predicted, which is as wrong as can be.
    return 1.0 if said is None else min(abs(said - real), 1.0)


def _fields(before: Facts, truth: Facts, answered: Facts) -> dict[str, tuple[int, int]]:
    """Return per kind of fact how many changed in either world, and how many of them agree."""
    total: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for key in {*before, *truth, *answered}:
        if before.get(key) == truth.get(key) == answered.get(key):
            continue
        kind = key.rstrip("0123456789 ") or key
        total[kind] += 1
        right[kind] += truth.get(key) == answered.get(key)
    return {kind: (total[kind], right[kind]) for kind in sorted(total)}


def _mark_rare(steps: Sequence[ScoredStep], share: float) -> list[ScoredStep]:
    counts = Counter(step.kind for step in steps if not step.is_negative)
    limit = share * sum(counts.values())
    return [replace(step, is_rare=counts[step.kind] < limit) for step in steps]
