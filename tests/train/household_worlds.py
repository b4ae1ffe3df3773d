"""Real household episodes, their annotated examples, and a tokenizer trained on their texts."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from dreamgym.clone import action_text
from dreamgym.dream.annotate import AnnotateConfig, AnnotatedTransition, Annotator, scenario_tasks
from dreamgym.dream.prompt import PromptConfig, step_messages, step_target
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.envs.household.suite import HouseholdSuite
from dreamgym.llm.tiny import build_tokenizer
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import run_groups
from dreamgym.types import Origin, Rollout

COMPACT = PromptConfig(style="compact", neighbours=0)


@functools.cache
def suite() -> HouseholdSuite:
    return HouseholdSuite(size="small", num_tasks=6, max_steps=40)


@functools.cache
def episodes(policy: str = "expert") -> tuple[Rollout, ...]:
    """Return one real episode per training game."""
    groups = asyncio.run(
        run_groups(
            suite(),
            suite().policy(policy),
            suite().tasks("train"),
            group_size=1,
            seed=2,
            limits=EpisodeLimits(max_steps=40),
            origin=Origin.REAL,
        )
    )
    return tuple(rollout for group in groups for rollout in group.rollouts)


@functools.cache
def annotated() -> tuple[AnnotatedTransition, ...]:
    reader = HouseholdReader()
    config = AnnotateConfig(negatives=1, neighbours=0)
    annotator = Annotator(reader, scenario_tasks(episodes(), reader), buffer=None, config=config)
    return tuple(example for rollout in episodes() for example in annotator.annotate(rollout))


@functools.cache
def tokenizer() -> Any:
    texts = [rollout.transitions[0].observation.text for rollout in episodes()]
    for example in annotated():
        texts += [message.content for message in step_messages(COMPACT, example.context)]
        texts.append(action_text(example.context.action))
        texts.append(
            step_target(
                COMPACT,
                rationale=example.rationale,
                next_text=example.next_text,
                reward=example.reward,
                done=example.done,
            )
        )
    return build_tokenizer(texts, vocab_size=900)
