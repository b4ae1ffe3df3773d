"""Fit an experience model by SFT on annotated transitions (DreamGym, arXiv 2511.03773, Eq. 5).

The loss covers the whole answer: rationale, next state, reward and done.  The prompt, retrieved
demonstrations included, is what the model will read in a dream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dreamgym.dream.annotate import AnnotatedTransition
from dreamgym.dream.examples import ChatExample, ExampleConfig, ExampleStream
from dreamgym.dream.prompt import PromptConfig
from dreamgym.llm.render import Renderer
from dreamgym.rl.learner import Learner
from dreamgym.rl.sft import SftExample
from dreamgym.seeds import derive_random


class FitConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and on what an experience model is trained."""

    steps: int = 1200
    """Optimiser steps."""
    examples_per_step: int = 32
    mixture: ExampleConfig = ExampleConfig()
    extra_share: float = 0.06
    """Share of examples from the other modes: writing scenarios and varying tasks."""
    seed: int = 0


class TokenStream:
    """Training examples as token ids; the n-th batch depends only on the seed and n."""

    def __init__(
        self,
        annotated: Sequence[AnnotatedTransition],
        extra: Sequence[ChatExample],
        renderer: Renderer,
        prompt: PromptConfig,
        config: FitConfig,
    ) -> None:
        self._steps = ExampleStream(annotated, prompt, config.mixture, seed=config.seed)
        self._extra = list(extra)
        self._renderer = renderer
        self._config = config

    def batch(self, index: int) -> list[SftExample]:
        """Return the batch with this index."""
        size = self._config.examples_per_step
        return [self._one(index * size + i) for i in range(size)]

    def _one(self, index: int) -> SftExample:
        rng = derive_random(self._config.seed, "mode", index)
        if self._extra and rng.random() < self._config.extra_share:
            return encode_example(self._renderer, rng.choice(self._extra))
        return encode_example(self._renderer, self._steps.draw(index))


def encode_example(renderer: Renderer, example: ChatExample) -> SftExample:
    """Return ids and mask: the answer and its end token are trained, the prompt is not."""
    prompt = renderer.first(list(example.messages))
    answer = renderer.completion(example.target)
    return SftExample(
        token_ids=(*prompt, *answer), mask=(*(0 for _ in prompt), *(1 for _ in answer))
    )


def train_on_stream(
    learner: Learner,
    stream: Callable[[int], list[SftExample]],
    *,
    config: FitConfig,
    start: int = 0,
    steps: int | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> float:
    """Take SFT steps from batch `start` on; returns the mean loss of the last steps (nats/token).

    The learning rate warms up, stays, and falls linearly to zero over the last part of the run.
    """
    total = config.steps if steps is None else steps
    peak = learner.config.optim.learning_rate
    recent: list[float] = []
    for index in range(start, total):
        loss = learner.sft_step(stream(index), learning_rate=peak * _shape(index, total))
        recent = [*recent[-19:], loss]
        on_step(index, loss)
    return sum(recent) / max(len(recent), 1)


def _shape(index: int, total: int) -> float:
    """Return the share of the peak rate: 20 steps of warm-up, then linear to 2 %."""
    warm = min(1.0, (index + 1) / 20)
    return warm * (1.0 - 0.98 * index / max(total, 1))
