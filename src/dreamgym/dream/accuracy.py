"""Whole-step accuracy of an experience model on held-out real transitions, by action kind.

A step counts only when next state (in canonical form), reward and done are all right: one wrong
step in ten is enough for RL to live on, so token accuracy or text overlap would not do.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from dreamgym.dream.annotate import AnnotatedTransition
from dreamgym.dream.experience import ExperienceModel
from dreamgym.envs.base import StateReader
from dreamgym.errors import ReplyError
from dreamgym.stats import wilson

BAR = 0.98
"""Whole-step accuracy below which reinforcement learning is likely to live on the errors."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many of `n` answers were right, whole and by part."""

    n: int
    exact: int
    state: int
    reward: int
    done: int
    faults: int

    def rates(self) -> dict[str, float | int | list[float]]:
        """Return shares with the 95 % Wilson interval of `exact`."""
        n = max(self.n, 1)
        return {
            "n": self.n,
            "exact": self.exact / n,
            "ci95": list(wilson(self.exact, self.n)),
            "state": self.state / n,
            "reward": self.reward / n,
            "done": self.done / n,
            "faults": self.faults / n,
        }


class Miss(msgspec.Struct, frozen=True, kw_only=True):
    """One wrong answer, kept to be read."""

    action: str
    known: tuple[str, ...]
    expected: str
    answered: str
    reasoning: str


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy overall, by action kind, and some of the misses."""

    overall: Counts
    by_kind: dict[str, Counts]
    misses: tuple[Miss, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the JSON form used in summaries."""
        return {
            "overall": self.overall.rates(),
            "by_kind": {kind: counts.rates() for kind, counts in sorted(self.by_kind.items())},
            "bar": BAR,
        }


async def measure_accuracy(
    model: ExperienceModel,
    examples: Sequence[AnnotatedTransition],
    reader: StateReader,
    *,
    seed: int = 0,
    max_misses: int = 40,
) -> Accuracy:
    """Ask the model every held-out example (first answer, no ledger check) and count.

    Unusable replies count as wrong and are reported as `faults` too.
    """
    # Without retries: the first answer counts, and the dream's counters stay the dream's.
    once = ExperienceModel(model.chat, msgspec.structs.replace(model.config, retries=0))
    outcomes = await asyncio.gather(
        *(_one(once, example, reader, seed, i) for i, example in enumerate(examples))
    )
    kinds: dict[str, list[_Outcome]] = defaultdict(list)
    for example, outcome in zip(examples, outcomes, strict=True):
        kinds[example.kind].append(outcome)
    misses = [outcome.miss for outcome in outcomes if outcome.miss is not None]
    return Accuracy(
        overall=_count(outcomes),
        by_kind={kind: _count(found) for kind, found in kinds.items()},
        misses=tuple(misses[:max_misses]),
    )


class _Outcome(msgspec.Struct, frozen=True):
    state: bool
    reward: bool
    done: bool
    fault: bool
    miss: Miss | None


async def _one(
    model: ExperienceModel, example: AnnotatedTransition, reader: StateReader, seed: int, index: int
) -> _Outcome:
    session = f"accuracy/{index}"
    miss: Miss | None
    try:
        answer = await model.answer(
            example.context, seed=seed, session=session, check=lambda text: []
        )
    except ReplyError as error:
        miss = Miss(
            action=example.context.action,
            known=tuple(example.context.known),
            expected=example.next_text,
            answered=str(error),
            reasoning="",
        )
        return _Outcome(False, False, False, True, miss)
    finally:
        model.chat.release(session)
    reply = answer.reply
    state = reader.canonical(reply.next_state) == reader.canonical(example.next_text)
    reward = reply.reward == example.reward
    done = reply.done == example.done
    miss = None
    if not (state and reward and done):
        miss = Miss(
            action=example.context.action,
            known=tuple(example.context.known),
            expected=f"{example.next_text} reward {example.reward} done {example.done}",
            answered=f"{reply.next_state} reward {reply.reward} done {reply.done}",
            reasoning=reply.reasoning,
        )
    return _Outcome(state, reward, done, False, miss)


def _count(outcomes: Sequence[_Outcome]) -> Counts:
    return Counts(
        n=len(outcomes),
        exact=sum(o.state and o.reward and o.done for o in outcomes),
        state=sum(o.state for o in outcomes),
        reward=sum(o.reward for o in outcomes),
        done=sum(o.done for o in outcomes),
        faults=sum(o.fault for o in outcomes),
    )
