"""Supervised fine-tuning on token sequences: behaviour cloning, and fitting experience models.

Which examples step n sees depends only on the examples, the seed and n, so a run can stop and go
on anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from dreamgym.errors import ConfigError, DataError
from dreamgym.rl.schedule import Schedule, decay
from dreamgym.seeds import derive_random

if TYPE_CHECKING:
    from dreamgym.rl.learner import Learner

WINDOW_BATCHES = 16
"""Batches' worth of shuffled examples that are sorted by length together: little padding, yet
every batch is still a mixture."""


class SftExample(msgspec.Struct, frozen=True, kw_only=True):
    """A token sequence; `mask[t]` is 1 where token t is to be learned."""

    token_ids: tuple[int, ...]
    mask: tuple[int, ...]


Provider = Callable[[int], Sequence[SftExample]]
"""Epoch (0-based) -> its examples; the same list each time, or freshly drawn ones."""


class SFTConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Length, batches and learning rate of a supervised run; the limit met first ends it."""

    steps: int | None = None
    seconds: float | None = None
    """Wall-clock limit; the learning rate then follows the clock, which is not reproducible."""
    batch_tokens: int = 8192
    """Tokens (context included) per optimiser step."""
    learning_rate: float = 1e-3
    warmup_steps: int = 20
    schedule: Schedule = "cosine"
    final_fraction: float = 0.1
    seed: int = 0
    eval_every: int = 0
    """Steps between evaluations; 0 evaluates only at the end."""

    def __post_init__(self) -> None:
        """Refuse a run without an end."""
        if self.steps is None and self.seconds is None:
            raise ConfigError("supervised fine-tuning needs a limit: set steps or seconds")
        if self.steps is not None and self.steps < 0:
            raise ConfigError(f"steps must not be negative; got {self.steps}")
        if self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least 1; got {self.batch_tokens}")


class SftState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands; save it next to the learner to go on later."""

    step: int = 0
    seconds: float = 0.0


class SftResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did."""

    state: SftState
    losses: tuple[float, ...]
    """Mean loss per step of this call (nats per trained token)."""
    evaluations: tuple[tuple[int, dict[str, float]], ...]
    """(step, metrics) of each evaluation."""
    tokens: int
    """Tokens seen in this call, context included."""


def fit_sft(
    learner: Learner,
    examples: Provider | Sequence[SftExample],
    config: SFTConfig,
    *,
    state: SftState | None = None,
    stop_after: int | None = None,
    progress: Callable[[int, float], None] = lambda step, loss: None,
    evaluate: Callable[[int], dict[str, float]] | None = None,
) -> SftResult:
    """Train until a limit is reached; `progress` gets every step's loss.

    `state` continues an earlier call, and `stop_after` ends this one after so many steps without
    changing the schedule, so that a checkpoint can be written between two calls.
    """
    provider: Provider = examples if callable(examples) else (lambda epoch: examples)
    begun = state or SftState()
    started = time.monotonic() - begun.seconds
    step, tokens = begun.step, 0
    losses: list[float] = []
    evaluations: list[tuple[int, dict[str, float]]] = []
    for batch in batches(provider, config.batch_tokens, seed=config.seed, start=begun.step):
        elapsed = time.monotonic() - started
        if _is_over(config, step, elapsed) or len(losses) == stop_after:
            break
        loss = learner.sft_step(batch, learning_rate=_rate(config, step, elapsed))
        step += 1
        tokens += sum(len(example.token_ids) for example in batch)
        losses.append(loss)
        progress(step, loss)
        if evaluate is not None and config.eval_every and step % config.eval_every == 0:
            evaluations.append((step, evaluate(step)))
    is_evaluated = bool(evaluations) and evaluations[-1][0] == step
    if evaluate is not None and losses and not is_evaluated:
        evaluations.append((step, evaluate(step)))
    return SftResult(
        state=SftState(step=step, seconds=time.monotonic() - started),
        losses=tuple(losses),
        evaluations=tuple(evaluations),
        tokens=tokens,
    )


def batches(
    provider: Provider, batch_tokens: int, *, seed: int, start: int = 0
) -> Iterator[list[SftExample]]:
    """Yield batches from step `start` on, for ever; each epoch contains every example once."""
    passed, epoch = 0, 0
    while True:
        examples = provider(epoch)
        if not any(any(example.mask) for example in examples):
            raise DataError(f"epoch {epoch} has no example with a token to learn")
        plan = plan_epoch([len(e.token_ids) for e in examples], batch_tokens, seed, epoch)
        for chosen in plan[max(start - passed, 0) :]:
            yield [examples[i] for i in chosen]
        passed += len(plan)
        epoch += 1


def plan_epoch(lengths: Sequence[int], batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the batches of an epoch as indices: shuffled, of similar length, within the budget."""
    rng = derive_random(seed, "sft", epoch)
    order = list(range(len(lengths)))
    rng.shuffle(order)
    mean = max(sum(lengths) / max(len(lengths), 1), 1.0)
    window = max(1, int(batch_tokens / mean)) * WINDOW_BATCHES
    plan: list[list[int]] = []
    for begin in range(0, len(order), window):
        part = sorted(order[begin : begin + window], key=lambda i: (lengths[i], i))
        batch: list[int] = []
        total = 0
        for index in part:
            if batch and total + lengths[index] > batch_tokens:
                plan.append(batch)
                batch, total = [], 0
            batch.append(index)
            total += lengths[index]
        plan.append(batch)
    rng.shuffle(plan)
    return plan


def _is_over(config: SFTConfig, step: int, elapsed: float) -> bool:
    if config.steps is not None and step >= config.steps:
        return True
    return config.seconds is not None and elapsed >= config.seconds


def _rate(config: SFTConfig, step: int, elapsed: float) -> float:
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    done = 0.0
    if config.steps is not None:
        span = max(config.steps - config.warmup_steps, 1)
        done = (step - config.warmup_steps) / span
    if config.seconds is not None:
        done = max(done, elapsed / config.seconds)
    return config.learning_rate * decay(config.schedule, done, config.final_fraction)
