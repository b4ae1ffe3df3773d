"""Annotated transitions -> chat examples (what the model reads, what it should answer).

The same prompt builder as at inference.  Three further kinds of example teach what a dream also
needs: answering again after a stated conflict, writing a scenario, varying a task.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from dreamgym.dream.annotate import AnnotatedTransition
from dreamgym.dream.prompt import (
    PromptConfig,
    conflict_message,
    step_messages,
    step_target,
)
from dreamgym.llm.base import Message

_ENTITY = re.compile(r"(?:(?<=\\[nt])|(?<!\\)\b)([a-z]+) (\d+)\b")
"""An entity; the `n` of a line break escaped in JSON is not part of its name."""


class ChatExample(msgspec.Struct, frozen=True, kw_only=True):
    """A chat and the answer to learn."""

    messages: tuple[Message, ...]
    target: str
    kind: str


class ExampleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mixture the experience model is trained on."""

    negative_share: float = 0.35
    """Share of step examples that are free negatives."""
    success_share: float = 0.06
    """Share of step examples whose transition completes a task (rare in logs)."""
    long_share: float = 0.0
    """Share of logged steps drawn by the square of the number of entities in the answer: short
    listings are common and soon learned, long ones are rare and where items get lost."""
    conflict_share: float = 0.3
    """Share of examples that have a wrong answer which are shown asked again after it, with the
    conflict stated."""
    kind_weights: dict[str, float] = {}
    """How often negatives of an action kind (`take/none`) are drawn, relative to 1 for the rest:
    the near misses an agent really tries are worth more than absurd actions."""
    renumber: float = 0.5
    """Probability of renaming the numbers of entities consistently inside one example: the world
    is the same whichever drawer is called 3, and the model has to look names up, not know them."""


class ExampleStream:
    """Draws training examples; the n-th draw depends only on the seed and n."""

    def __init__(
        self,
        annotated: Sequence[AnnotatedTransition],
        prompt: PromptConfig,
        config: ExampleConfig,
        *,
        seed: int,
    ) -> None:
        self._prompt = prompt
        self._config = config
        self._seed = seed
        self._groups: dict[str, list[AnnotatedTransition]] = defaultdict(list)
        for example in annotated:
            self._groups[_group(example)].append(example)
        if not annotated:
            raise ValueError("no annotated transitions to train on; log some episodes first")
        steps = self._groups["step"]
        self._lengths = list(accumulate(len(_ENTITY.findall(e.next_text)) ** 2 for e in steps))
        self._negatives: dict[str, list[AnnotatedTransition]] = defaultdict(list)
        for example in self._groups["negative"]:
            self._negatives[example.kind].append(example)

    def draw(self, index: int) -> ChatExample:
        """Return the example with this index."""
        from dreamgym.seeds import derive_random

        rng = derive_random(self._seed, "example", index)
        example = self._pick(rng)
        messages = step_messages(self._prompt, example.context)
        target = step_target(
            self._prompt,
            rationale=example.rationale,
            next_text=example.next_text,
            reward=example.reward,
            done=example.done,
        )
        if rng.random() < self._config.conflict_share:
            messages = self._asked_again(messages, example)
        if rng.random() < self._config.renumber:
            messages, target = renumber(messages, target, rng)
        return ChatExample(messages=tuple(messages), target=target, kind=example.kind)

    def _pick(self, rng: random.Random) -> AnnotatedTransition:
        group = self._pick_group(rng)
        if group is self._groups["step"] and rng.random() < self._config.long_share:
            return rng.choices(group, cum_weights=self._lengths)[0]
        return rng.choice(group)

    def _pick_group(self, rng: random.Random) -> list[AnnotatedTransition]:
        config, groups = self._config, self._groups
        draw = rng.random()
        if draw < config.success_share and groups.get("success"):
            return groups["success"]
        if draw < config.success_share + config.negative_share and groups.get("negative"):
            kinds = list(self._negatives)
            weights = [config.kind_weights.get(kind, 1.0) for kind in kinds]
            return self._negatives[rng.choices(kinds, weights)[0]]
        return groups.get("step") or groups.get("success") or groups["negative"]

    def _asked_again(self, messages: list[Message], example: AnnotatedTransition) -> list[Message]:
        wrong = example.wrong
        if wrong is None:
            return messages
        bad = step_target(
            self._prompt, rationale=example.rationale, next_text=wrong.text, reward=0.0, done=False
        )
        return [*messages, Message("assistant", bad), conflict_message([wrong.conflict])]


def renumber(
    messages: Sequence[Message], target: str, rng: random.Random
) -> tuple[list[Message], str]:
    """Rename entity numbers by one random permutation per word, the same everywhere.

    >>> import random
    >>> asked = [Message("user", "go to desk 1")]
    >>> said, target = renumber(asked, "You arrive at desk 1.", random.Random(1))
    >>> said[0].content[6:] == target[14:-1]
    True
    """
    numbers: dict[str, set[int]] = defaultdict(set)
    for text in [*(m.content for m in messages), target]:
        for word, number in _ENTITY.findall(text):
            numbers[word].add(int(number))
    table: dict[tuple[str, int], int] = {}
    for word, found in sorted(numbers.items()):
        pool = list(range(1, max(max(found), 3) + 1))
        chosen = rng.sample(pool, len(pool))
        table |= {(word, n): chosen[n - 1] for n in found if n >= 1}

    def rename(match: re.Match[str]) -> str:
        word, number = match.group(1), int(match.group(2))
        return f"{word} {table.get((word, number), number)}"

    renamed = [Message(m.role, _ENTITY.sub(rename, m.content)) for m in messages]
    return renamed, _ENTITY.sub(rename, target)


def _group(example: AnnotatedTransition) -> str:
    if example.is_negative:
        return "negative"
    return "success" if example.done else "step"
