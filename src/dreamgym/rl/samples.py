"""Rollouts to training sequences: exactly the sampled ids, masks and log-probabilities.

Nothing is decoded or tokenised here.  The sequence of a rollout is `context_ids + token_ids` of
its completions, one after the other; a sampled end-of-turn token is an action like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from dreamgym.errors import DataError
from dreamgym.rl.advantage import gae, is_unscorable
from dreamgym.types import Completion, Rollout, Sample, StopReason

CUT_STOPS = frozenset({StopReason.CONTEXT, StopReason.BUDGET})
"""Stops that cut an episode for reasons outside the task.

The turn limit is not among them: it is part of the task (the prompt shows the step count), and
where failing means running out of turns, leaving those episodes out would leave no failures."""


def is_cut(rollout: Rollout) -> bool:
    """Return whether the rollout was cut off: by window, budget or the token limit of a turn."""
    cut_turn = bool(rollout.completions) and rollout.completions[-1].finish == "length"
    return rollout.stop in CUT_STOPS or cut_turn


def rollout_to_samples(
    rollout: Rollout, advantage: float | Sequence[float], *, mask_truncated: bool = False
) -> list[Sample]:
    """Return the training sequences of a rollout, each sampled token with `advantage`.

    A sequence of advantages has one per completion, for all tokens sampled in it.
    One sample, or several where a completion says `restart`; their weights are their shares of
    the sampled tokens and add up to 1, so that a split trajectory counts once.  Faults and
    unscorable rollouts give no sample, nor does a rollout that failed before any generation.
    With `mask_truncated` a cut-off rollout gives none either, while its reward stays in its
    group's baseline.  Raises `DataError` if log-probabilities of sampled tokens were not
    recorded: pretending the current policy sampled them would be wrong silently.
    """
    if rollout.is_fault or is_unscorable(rollout.reward) or not rollout.completions:
        return []
    if mask_truncated and is_cut(rollout):
        return []
    if not any(c.token_ids for c in rollout.completions):
        raise DataError(
            f"rollout {rollout.id!r} has no recorded token ids (policy {rollout.policy!r}), so it "
            "cannot train a policy; use it for the experience model or for behaviour cloning"
        )
    turns = _per_turn(rollout, advantage)
    parts = []
    for part in _split(rollout.completions):
        parts.append(_sample(rollout, part, turns[: len(part)]))
        turns = turns[len(part) :]
    parts = [part for part in parts if any(part.mask)]
    total = sum(sum(part.mask) for part in parts)
    return [msgspec.structs.replace(part, weight=sum(part.mask) / total) for part in parts]


def _per_turn(rollout: Rollout, advantage: float | Sequence[float]) -> list[float]:
    count = len(rollout.completions)
    if isinstance(advantage, (int, float)):
        return [float(advantage)] * count
    if len(advantage) != count:
        raise DataError(
            f"rollout {rollout.id!r} has {count} completions; got {len(advantage)} advantages"
        )
    return list(advantage)


def _split(completions: Sequence[Completion]) -> list[list[Completion]]:
    parts: list[list[Completion]] = []
    for completion in completions:
        if not parts or completion.restart:
            parts.append([])
        parts[-1].append(completion)
    return parts


def _sample(
    rollout: Rollout, completions: Sequence[Completion], advantages: Sequence[float]
) -> Sample:
    token_ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    spread: list[float] = []
    for completion, advantage in zip(completions, advantages, strict=True):
        _check(rollout, completion, has_context=bool(token_ids))
        context, sampled = len(completion.context_ids), len(completion.token_ids)
        token_ids += (*completion.context_ids, *completion.token_ids)
        mask += [0] * context + [1] * sampled
        logprobs += [0.0] * context + list(completion.logprobs)
        spread += [0.0] * context + [advantage] * sampled
    return Sample(
        token_ids=tuple(token_ids),
        mask=tuple(mask),
        logprobs=tuple(logprobs),
        advantages=tuple(spread),
        policy_version=min(c.policy_version for c in completions),
        rollout_id=rollout.id,
    )


def _check(rollout: Rollout, completion: Completion, *, has_context: bool) -> None:
    sampled, recorded = len(completion.token_ids), len(completion.logprobs)
    if sampled != recorded:
        raise DataError(
            f"rollout {rollout.id!r}: {sampled} tokens were sampled but {recorded} "
            "log-probabilities recorded; PPO and GRPO need those of the sampling policy"
        )
    if not all(math.isfinite(p) and p <= 1e-6 for p in completion.logprobs):
        bad = next(p for p in completion.logprobs if not (math.isfinite(p) and p <= 1e-6))
        raise DataError(f"rollout {rollout.id!r}: {bad} is not the logarithm of a probability")
    if sampled and not has_context and not completion.context_ids:
        raise DataError(
            f"rollout {rollout.id!r}: the first sampled token has no context; "
            "context_ids must hold the prompt"
        )


def attach_gae(
    samples: Sequence[Sample],
    values: Sequence[Sequence[float]],
    *,
    reward: float,
    gamma: float,
    lam: float,
    terminated: bool,
    penalties: Sequence[Sequence[float]] | None = None,
) -> list[Sample]:
    """Return the samples of *one* rollout with advantages, returns and values by GAE.

    `values[i][t]` estimates the return before token t of sample i was sampled; entries at
    context tokens are ignored.  The outcome `reward` is paid on the last sampled token of the
    rollout.  `penalties` (such as a KL penalty per token) are subtracted from the reward of their
    token.  A rollout split into several samples is one chain.  A cut-off rollout
    (`terminated` False) is bootstrapped with the value before its last token: the position after
    it is never trained, and its value would be noise.
    """
    if not samples:
        return []
    kept = [[t for t, m in enumerate(sample.mask) if m] for sample in samples]
    flat_values = [values[i][t] for i, places in enumerate(kept) for t in places]
    flat_rewards = [
        -penalties[i][t] if penalties is not None else 0.0
        for i, places in enumerate(kept)
        for t in places
    ]
    flat_rewards[-1] += reward
    result = gae(
        flat_rewards,
        flat_values,
        [1] * len(flat_values),
        gamma=gamma,
        lam=lam,
        terminated=terminated,
        bootstrap=flat_values[-1],
    )
    out: list[Sample] = []
    start = 0
    for sample, places in zip(samples, kept, strict=True):
        end = start + len(places)
        out.append(
            msgspec.structs.replace(
                sample,
                advantages=_spread(sample, places, result.advantages[start:end]),
                returns=_spread(sample, places, result.returns[start:end]),
                values=_spread(sample, places, flat_values[start:end]),
            )
        )
        start = end
    return out


def _spread(sample: Sample, places: Sequence[int], numbers: Sequence[float]) -> tuple[float, ...]:
    row = [0.0] * len(sample.mask)
    for t, number in zip(places, numbers, strict=True):
        row[t] = number
    return tuple(row)
