"""Logged real episodes -> annotated examples for the experience model.

Every example is one transition with the context the model will have in a dream: task, hindsight
scenario, history, known facts, similar transitions.  The rationale (DreamGym, arXiv 2511.03773,
Eq. 5) comes from a teacher where one is configured, else from the suite's reader, which explains
the difference between the facts before and after.

Negatives cost no real step: where a log lists the admissible actions, any other well-formed
action is known to do nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

import msgspec

from dreamgym.dream.prompt import StepContext, Turn
from dreamgym.dream.scenario import make_scenario, scenario_text
from dreamgym.envs.base import Facts, StateReader
from dreamgym.seeds import derive_random
from dreamgym.types import Rollout, Task, Transition

if TYPE_CHECKING:
    from dreamgym.replay.buffer import ReplayBuffer


_ENTITY = re.compile(r"\b[a-z]+ \d+\b")

RELABEL_TRIES = 40
"""Sentences of other tasks tried on a logged transition."""


class WrongAnswer(msgspec.Struct, frozen=True):
    """An answer that contradicts known facts, and the sentence that says so."""

    text: str
    conflict: str


class AnnotatedTransition(msgspec.Struct, frozen=True, kw_only=True):
    """One training example in words; `dream.fit` turns it into tokens."""

    context: StepContext
    rationale: str
    next_text: str
    reward: float
    done: bool
    kind: str
    """Verb class of the action, with the suffix `/none` where nothing happened."""
    is_negative: bool
    episode_id: str
    wrong: WrongAnswer | None = None
    """A plausible wrong answer with the conflict it would be asked again with."""


class AnnotateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How logs become examples."""

    negatives: int = 3
    """Free negatives per logged transition."""
    neighbours: int = 2
    """Similar transitions put into the prompt."""
    history: int = 1
    """Past turns kept for the prompt."""
    relabel: int = 1
    """Other tasks' sentences tried on each logged transition that achieves something: the
    reader decides from the facts whether that task would now be done (reward 1) or not (0)."""
    wrong_share: float = 0.35
    """Share of examples that also get a wrong answer with its conflict, to learn to answer again
    from."""
    seed: int = 0


def logged_successes(
    rollouts: Iterable[Rollout], reader: StateReader
) -> dict[str, tuple[str, str]]:
    """Return one logged (action, answer) that had an effect per action kind."""
    found: dict[str, tuple[str, str]] = {}
    for rollout in rollouts:
        for transition in rollout.transitions:
            text = reader.natural(transition.next_observation.text)
            if not reader.is_no_effect(text):
                found.setdefault(reader.action_kind(transition.action), (transition.action, text))
    return found


def scenario_tasks(rollouts: Iterable[Rollout], reader: StateReader) -> dict[str, Task]:
    """Return each logged task with its hindsight scenario, from all its logged episodes."""
    episodes: dict[str, list[Sequence[Transition]]] = defaultdict(list)
    tasks: dict[str, Task] = {}
    for rollout in rollouts:
        if rollout.transitions:
            episodes[rollout.task.id].append(rollout.transitions)
            tasks[rollout.task.id] = rollout.task
    return {
        task_id: msgspec.structs.replace(
            task, scenario=make_scenario(task, episodes[task_id], reader)
        )
        for task_id, task in tasks.items()
    }


class Annotator:
    """Builds examples from logged rollouts, tracking facts in the text as a dream would."""

    def __init__(
        self,
        reader: StateReader,
        tasks: Mapping[str, Task],
        *,
        buffer: ReplayBuffer | None,
        config: AnnotateConfig,
        rationales: Mapping[tuple[str, int], str] | None = None,
        successes: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """`rationales` are a teacher's, by (episode id, step); the reader explains the others.

        `successes` (see `logged_successes`) word the kind answers that actions without effect
        are asked again after.
        """
        self._reader = reader
        self._rationales = rationales or {}
        self._tasks = tasks
        self._buffer = buffer
        self._config = config
        self._sentences = sorted({task.instruction for task in tasks.values()})
        self._successes = dict(successes or {})

    def annotate(self, rollout: Rollout) -> list[AnnotatedTransition]:
        """Return the examples of one logged episode: each transition, plus its negatives."""
        task = self._tasks[rollout.task.id]
        facts = self._reader.initial(task)
        turns: list[Turn] = []
        examples: list[AnnotatedTransition] = []
        rng = derive_random(self._config.seed, "annotate", rollout.id)
        for transition in rollout.transitions:
            examples.append(self._logged(task, facts, turns, transition))
            after = self._reader.update(facts, transition.action, transition.next_observation.text)
            examples.extend(self._relabelled(task, facts, after, turns, transition, rng))
            pool = self._reader.negatives(transition)
            chosen = rng.sample(pool, min(self._config.negatives, len(pool)))
            examples.extend(self._negative(task, facts, turns, transition, a) for a in chosen)
            facts = after
            # Worded as the answers are, because in a dream the past is made of answers.
            seen = self._reader.natural(transition.next_observation.text)
            turns = [*turns, Turn(transition.action, seen)]
        return examples

    def _logged(
        self, task: Task, facts: Facts, turns: Sequence[Turn], transition: Transition
    ) -> AnnotatedTransition:
        example = self._example(
            task,
            facts,
            turns,
            transition,
            action=transition.action,
            text=transition.next_observation.text,
            success=transition.success,
            negative=False,
        )
        taught = self._rationales.get((transition.episode_id, transition.step))
        return example if taught is None else msgspec.structs.replace(example, rationale=taught)

    def _relabelled(
        self,
        task: Task,
        before: Facts,
        after: Facts,
        turns: Sequence[Turn],
        transition: Transition,
        rng: Random,
    ) -> list[AnnotatedTransition]:
        """Ask what the same logged transition means under another task of the logs.

        The text is the logged text; only reward and done are the other task's, and only where
        the reader can tell from the facts.  A task already achieved before is left out.
        """
        changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        if not self._config.relabel or changed <= {"at"}:
            return []  # walking about achieves nothing
        wins: list[Task] = []
        others: list[Task] = []
        tried = rng.sample(self._sentences, min(len(self._sentences), RELABEL_TRIES))
        for sentence in tried:
            if sentence == task.instruction:
                continue
            other = msgspec.structs.replace(task, instruction=sentence)
            if self._reader.achieved(other, before):
                continue
            verdict = self._reader.achieved(other, after)
            if verdict is not None:
                (wins if verdict else others).append(other)
        chosen = rng.sample(wins, min(len(wins), self._config.relabel))
        if not transition.success and chosen and others:
            chosen += rng.sample(others, 1)
        return [
            self._example(
                other,
                before,
                turns,
                transition,
                action=transition.action,
                text=transition.next_observation.text,
                success=bool(self._reader.achieved(other, after)),
                negative=False,
            )
            for other in chosen
        ]

    def _negative(
        self, task: Task, facts: Facts, turns: Sequence[Turn], transition: Transition, action: str
    ) -> AnnotatedTransition:
        return self._example(
            task,
            facts,
            turns,
            transition,
            action=action,
            text="Nothing happens.",
            success=False,
            negative=True,
        )

    def _example(
        self,
        task: Task,
        facts: Facts,
        turns: Sequence[Turn],
        transition: Transition,
        *,
        action: str,
        text: str,
        success: bool,
        negative: bool,
    ) -> AnnotatedTransition:
        reader, config = self._reader, self._config
        text = reader.natural(text)
        context = StepContext(
            task=task,
            scenario=scenario_text(task.scenario) if task.scenario else "",
            history=list(turns[-config.history :]) if config.history else [],
            known=reader.relevant(facts, action),
            neighbours=self._similar(transition, action),
            action=action,
        )
        kind = reader.action_kind(action)
        return AnnotatedTransition(
            context=context,
            rationale=reader.explain(task, facts, action, text, success),
            next_text=text,
            reward=1.0 if success else 0.0,
            done=success,
            kind=f"{kind}/none" if reader.is_no_effect(text) else kind,
            is_negative=negative,
            episode_id=transition.episode_id,
            wrong=self._wrong(facts, action, text, transition.episode_id),
        )

    def _wrong(self, facts: Facts, action: str, text: str, salt: str) -> WrongAnswer | None:
        """Return the mistake a small model makes most, if a known fact speaks against it.

        A right answer with one entity exchanged; for an action without effect, the kind answer
        that the same verb got elsewhere in the logs.
        """
        rng = derive_random(self._config.seed, "wrong", salt, action)
        if rng.random() >= self._config.wrong_share:
            return None
        if self._reader.is_no_effect(text):
            bad = self._kind_answer(action)
        else:
            bad = _exchanged(text, facts, rng)
        conflicts = self._reader.conflicts(facts, action, bad) if bad else []
        return WrongAnswer(bad, conflicts[0]) if conflicts else None

    def _kind_answer(self, action: str) -> str:
        """Return a logged success of this verb, told of the entities of this action."""
        sample = self._successes.get(self._reader.action_kind(action))
        if sample is None:
            return ""
        logged, text = sample
        names = dict(zip(_ENTITY.findall(logged), _ENTITY.findall(action), strict=False))
        return _ENTITY.sub(lambda found: names.get(found[0], found[0]), text)

    def _similar(self, transition: Transition, action: str) -> list[Transition]:
        if self._buffer is None or not self._config.neighbours:
            return []
        found = self._buffer.query(
            transition.observation.text,
            action,
            k=self._config.neighbours,
            suite=transition.suite,
            exclude_task=transition.task_id,
        )
        return [neighbour.transition for neighbour in found]


def _exchanged(text: str, facts: Facts, rng: Random) -> str:
    """Return the text with one entity replaced by another known one, "" if it names none."""
    found = list(_ENTITY.finditer(text))
    if not found:
        return ""
    spot = rng.choice(found)
    others = sorted({m[0] for line in facts.values() for m in _ENTITY.finditer(line)})
    other = rng.choice([name for name in others if name != spot[0]] or [spot[0]])
    return text[: spot.start()] + other + text[spot.end() :]
