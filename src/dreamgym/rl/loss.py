"""Losses and penalties as pure functions of tensors; sampled positions only, ever.

Shapes: `[B, T]` is B sequences of T tokens padded on the right.  Position t belongs to the token
*at* t (its log-probability was predicted at t - 1), so masks, log-probabilities, advantages and
values align without another shift.  `mask` is true at tokens the policy sampled.  Whatever stands
at other positions (0, 1.0, NaN) is replaced before any arithmetic and gets gradient 0.

Normalisation is over the whole update, not over the micro-batch at hand: pass its `BatchTotals`
and the losses of micro-batches add up to the loss of the batch exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from dreamgym.errors import ConfigError

Aggregate = Literal["token_mean", "sequence_mean", "fixed"]
"""How per-token losses become one number; see `token_weights`."""
Level = Literal["token", "sequence"]
KlKind = Literal["k1", "k2", "k3"]
KlUse = Literal["loss", "reward", "metric"]
Metrics = dict[str, Tensor]


class _MaskedRow(Protocol):
    @property
    def mask(self) -> Sequence[int]: ...
    @property
    def weight(self) -> float: ...


@dataclass(frozen=True)
class BatchTotals:
    """What the mean is taken over: the sampled tokens and trajectories of one optimiser step."""

    tokens: float
    weight: float
    """Number of trajectories: a split trajectory's samples have weights that add up to 1."""

    @classmethod
    def of(cls, rows: Sequence[_MaskedRow]) -> BatchTotals:
        """Count the sampled tokens and trajectories of samples."""
        return cls(
            tokens=float(sum(sum(row.mask) for row in rows)),
            weight=sum(row.weight for row in rows),
        )


@dataclass(frozen=True)
class Loss:
    """A scalar to differentiate and metrics that add up over micro-batches."""

    loss: Tensor
    metrics: Metrics


def only(values: Tensor, mask: Tensor) -> Tensor:
    """Return `values` with 0 at unsampled positions (NaN there does not survive)."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def token_weights(
    mask: Tensor,
    *,
    aggregate: Aggregate = "token_mean",
    fixed_length: float | None = None,
    weights: Tensor | None = None,
    totals: BatchTotals | None = None,
) -> Tensor:
    """Return coefficients c [B, T] such that the loss is sum(c * loss per token).

    With sampled tokens t of trajectory i, n_i of them, N trajectories in the update:
    `token_mean`: sum over all t / sum of n_i (long trajectories weigh more);
    `sequence_mean`: mean over i of (sum over t / n_i) (every trajectory weighs the same);
    `fixed`: sum over all t / (N * fixed_length) (no length bias; Dr. GRPO, arXiv 2503.20783).
    Context tokens are in no denominator.  `weights` [B] are shares of split trajectories.  The
    result is float64.
    """
    # float64 whatever the model's type: 1/n must not be rounded before it meets the losses.
    floats = mask.to(torch.float64)
    share = floats.new_ones(mask.shape[0]) if weights is None else weights.to(torch.float64)
    counts = floats.sum(-1)
    if totals is None:
        totals = BatchTotals(tokens=float(counts.sum()), weight=float(share[counts > 0].sum()))
    if aggregate == "token_mean":
        return floats / max(totals.tokens, 1.0)
    if aggregate == "sequence_mean":
        # A part of a split trajectory has share n_part / n, so this is 1 / n for each token.
        per_token = share / counts.clamp(min=1.0) / max(totals.weight, 1e-12)
        return floats * per_token[:, None]
    if aggregate == "fixed":
        if fixed_length is None or fixed_length <= 0:
            raise ConfigError(
                "aggregate 'fixed' needs fixed_length > 0, the number of tokens to divide by; "
                f"got {fixed_length}"
            )
        return floats / (fixed_length * max(totals.weight, 1e-12))
    raise ConfigError(f"aggregate must be token_mean, sequence_mean or fixed; got {aggregate!r}")


def log_ratio_by_level(log_ratio: Tensor, mask: Tensor, level: Level) -> Tensor:
    """Return [B, T] log-ratios: per token, or the sequence's mean log-ratio at each token.

    `sequence` is GSPO (arXiv 2507.18071): the length-normalised ratio of the whole sequence.
    """
    if level == "token":
        return log_ratio
    if level == "sequence":
        mean = log_ratio.sum(-1) / mask.sum(-1).clamp(min=1)
        return only(mean[:, None].expand_as(log_ratio), mask)
    raise ConfigError(f"ratio level must be token or sequence; got {level!r}")


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    aggregate: Aggregate = "token_mean",
    fixed_length: float | None = None,
    ratio_level: Level = "token",
    weights: Tensor | None = None,
    totals: BatchTotals | None = None,
    correction: Tensor | None = None,
) -> Loss:
    """Return the clipped surrogate loss, -min(ratio * A, clip(ratio) * A), and its metrics.

    ratio = exp(logprobs - old_logprobs), clipped to [1 - clip_low, 1 + clip_high]
    (PPO, arXiv 1707.06347, Eq. 7).  With one optimiser step per batch the ratio is 1 and nothing
    is clipped: that is expected.  `correction` [B, T] multiplies the token losses, without
    gradient (see `importance_weights`).
    """
    mask = mask.bool()
    advantages = only(advantages, mask)
    log_ratio = only(logprobs, mask) - only(old_logprobs, mask)
    ratio = torch.exp(log_ratio_by_level(log_ratio, mask, ratio_level))
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    if correction is not None:
        surrogate = surrogate * only(correction, mask).detach()
    coefficients = token_weights(
        mask, aggregate=aggregate, fixed_length=fixed_length, weights=weights, totals=totals
    ).to(surrogate.dtype)
    loss = -(coefficients * surrogate).sum()
    with torch.no_grad():
        mean = token_weights(mask, totals=totals).to(ratio.dtype)
        is_clipped = (clipped * advantages < ratio * advantages).to(ratio.dtype)
        metrics = {
            "policy/loss": loss.detach(),
            "policy/ratio": (mean * ratio).sum(),
            "policy/clip_fraction": (mean * is_clipped).sum(),
            # k3 of new against old: never negative, unlike the mean log-difference
            "policy/approx_kl": (mean * (torch.exp(log_ratio) - 1.0 - log_ratio)).sum(),
        }
    return Loss(loss, metrics)


def importance_weights(
    trainer_logprobs: Tensor,
    sampler_logprobs: Tensor,
    mask: Tensor,
    *,
    level: Level = "token",
    mode: Literal["truncate", "mask"] = "truncate",
    cap: float = 2.0,
) -> tuple[Tensor, Tensor]:
    """Return weights [B, T] for sampling with another implementation, and the share limited [B, T].

    weight = exp(trainer - sampler), per token or of the whole sequence (sum of log-differences,
    which explodes with length).  `truncate` limits it to `cap`; `mask` sets what is above `cap`
    to 0.  No gradient; 0 at unsampled positions.  The second tensor is 1 where a weight was
    limited.
    """
    mask = mask.bool()
    with torch.no_grad():
        difference = only(trainer_logprobs, mask) - only(sampler_logprobs, mask)
        if level == "sequence":
            difference = difference.sum(-1, keepdim=True).expand_as(difference)
        elif level != "token":
            raise ConfigError(f"correction level must be token or sequence; got {level!r}")
        raw = torch.exp(difference)
        above = raw > cap
        if mode == "truncate":
            limited = raw.clamp(max=cap)
        elif mode == "mask":
            limited = raw.masked_fill(above, 0.0)
        else:
            raise ConfigError(f"correction mode must be truncate or mask; got {mode!r}")
        return only(limited, mask), only(above.to(raw.dtype), mask)


def kl_penalty(
    logprobs: Tensor,
    reference_logprobs: Tensor,
    mask: Tensor,
    *,
    kind: KlKind,
    use: KlUse,
) -> Tensor:
    """Return estimates [B, T] of KL(policy || reference) at sampled tokens, 0 elsewhere.

    With d = logprobs - reference: k1 = d; k2 = d^2 / 2; k3 = exp(-d) - 1 + d.
    As a *loss* the gradients differ from what the values suggest: k2 has that of the reverse KL,
    k3 that of the forward KL, and k1 has expected gradient 0, so `k1` with `use="loss"` is
    refused.  As a reward k1 is the right one.
    """
    if kind == "k1" and use == "loss":
        raise ConfigError(
            "kl kind 'k1' in the loss has an expected gradient of 0 and would do nothing; use "
            "'k2' in the loss, or 'k1' in the reward"
        )
    mask = mask.bool()
    difference = only(logprobs, mask) - only(reference_logprobs, mask)
    if kind == "k1":
        return difference
    if kind == "k2":
        return 0.5 * difference.square()
    if kind == "k3":
        return torch.exp(-difference) - 1.0 + difference
    raise ConfigError(f"kl kind must be k1, k2 or k3; got {kind!r}")


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float | None = 0.2,
    totals: BatchTotals | None = None,
) -> Loss:
    """Return half the squared error to the returns, mean over sampled tokens.

    With `clip` the larger of two errors counts: of the value, and of the value kept within `clip`
    of the one at rollout time, so that a value that jumped too far gets no further push.
    """
    mask = mask.bool()
    values, old, returns = only(values, mask), only(old_values, mask), only(returns, mask)
    error = (values - returns).square()
    is_clipped = torch.zeros_like(error)
    if clip is not None:
        near = old + (values - old).clamp(-clip, clip)
        clipped_error = (near - returns).square()
        is_clipped = (clipped_error > error).to(error.dtype)
        error = torch.maximum(error, clipped_error)
    mean = token_weights(mask, totals=totals).to(error.dtype)
    loss = 0.5 * (mean * error).sum()
    metrics = {
        "value/loss": loss.detach(),
        "value/mean": (mean * values.detach()).sum(),
        "value/return_mean": (mean * returns).sum(),
        "value/clip_fraction": (mean * is_clipped).sum(),
    }
    return Loss(loss, metrics)
