"""Losses against numbers worked by hand, and against formulas of TRL and verl; float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dreamgym.errors import ConfigError
from dreamgym.rl.loss import (
    BatchTotals,
    importance_weights,
    kl_penalty,
    log_ratio_by_level,
    policy_loss,
    token_weights,
    value_loss,
)


def tensor(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def ragged(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return random logprobs, old logprobs, advantages [B] and a ragged mask."""
    generator = torch.Generator().manual_seed(seed)
    shape = (5, 9)
    logprobs = -torch.rand(shape, generator=generator, dtype=torch.float64) * 3
    old = logprobs + 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    advantages = torch.randn(5, 1, generator=generator, dtype=torch.float64)
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[:, 3] = True
    return logprobs, old, advantages, mask


def per_token_mean(losses: Tensor, mask: Tensor, aggregate: str, **options: float) -> float:
    """Return what token_weights makes of given token losses."""
    weights = token_weights(mask, aggregate=aggregate, **options)  # type: ignore[arg-type]
    return float((weights * losses).sum())


def test_alg_01_zero_advantages_have_zero_gradient() -> None:
    logprobs = tensor([-1.0, -2.0], [-3.0, -0.1]).requires_grad_()
    result = policy_loss(
        logprobs, torch.zeros(2, 2).double(), torch.zeros(2, 2).double(), torch.ones(2, 2)
    )
    (gradient,) = torch.autograd.grad(result.loss, logprobs)
    assert float(result.loss.detach()) == 0.0
    assert float(gradient.abs().max()) == 0.0


def test_alg_11_three_ways_to_average() -> None:
    mask = torch.tensor([[1, 1] + [0] * 6, [1] * 8]).bool()
    losses = torch.tensor([[1.0] * 8, [3.0] * 8]).double()
    assert per_token_mean(losses, mask, "token_mean") == pytest.approx(2.6, abs=1e-12)
    assert per_token_mean(losses, mask, "sequence_mean") == pytest.approx(2.0, abs=1e-12)
    assert per_token_mean(losses, mask, "fixed", fixed_length=10) == pytest.approx(1.3, abs=1e-12)
    with pytest.raises(ConfigError, match="fixed_length"):
        token_weights(mask, aggregate="fixed")
    with pytest.raises(ConfigError, match="aggregate"):
        token_weights(mask, aggregate="median")  # type: ignore[arg-type]


def test_alg_13_split_trajectories_have_equal_weight_in_the_trajectory_mean() -> None:
    """A success of 2 turns and a failure of 8 turns, one row per turn of one token each."""
    mask = torch.ones(10, 1).bool()
    shares = torch.tensor([0.5] * 2 + [0.125] * 8, dtype=torch.float64)
    weights = token_weights(mask, aggregate="sequence_mean", weights=shares)
    assert float(weights[:2].sum()) == pytest.approx(0.5)
    assert float(weights[2:].sum()) == pytest.approx(0.5)
    fixed = token_weights(mask, aggregate="fixed", fixed_length=1, weights=shares)
    assert float(fixed.sum()) == pytest.approx(10 / 2)


def test_alg_14_observation_tokens_are_in_no_denominator() -> None:
    mask = torch.tensor([[0] * 96 + [1] * 4]).bool()
    losses = torch.ones(1, 100).double()
    for aggregate in ("token_mean", "sequence_mean"):
        assert per_token_mean(losses, mask, aggregate) == pytest.approx(1.0)


def test_alg_02_a_dead_group_moves_the_model_by_its_kl_gradient_and_no_more() -> None:
    generator = torch.Generator().manual_seed(3)
    logprobs = -torch.rand(4, 3, generator=generator, dtype=torch.float64)
    reference = logprobs - 0.5
    mask = torch.ones(4, 3).bool()
    advantages = tensor([1.0] * 3, [-1.0] * 3, [0.0] * 3, [0.0] * 3)

    def gradient(rows: slice, totals: BatchTotals, beta: float, use_policy: bool = True) -> Tensor:
        leaf = logprobs.clone().requires_grad_()
        part = policy_loss(
            leaf[rows], logprobs[rows], advantages[rows], mask[rows], totals=totals
        ).loss
        kl = kl_penalty(leaf[rows], reference[rows], mask[rows], kind="k2", use="loss")
        loss = part * use_policy + beta * (token_weights(mask[rows], totals=totals) * kl).sum()
        return torch.autograd.grad(loss, leaf)[0]

    all_rows = BatchTotals(tokens=12.0, weight=4.0)
    both = gradient(slice(0, 4), all_rows, 0.04)
    live = gradient(slice(0, 2), all_rows, 0.04)
    kl_of_dead = gradient(slice(2, 4), all_rows, 0.04, use_policy=False)
    assert torch.allclose(both - live, kl_of_dead, atol=1e-15)
    assert float(kl_of_dead.norm()) > 0


def test_is_02_the_temperature_belongs_to_both_sides() -> None:
    logits = torch.tensor([2.0, 0.0], dtype=torch.float64)
    sampled = math.log(0.982014)
    trainer = float(torch.log_softmax(logits / 0.5, -1)[0])
    assert trainer == pytest.approx(sampled, abs=1e-6)
    forgotten = float(torch.log_softmax(logits, -1)[0])
    assert math.exp(forgotten - sampled) == pytest.approx(0.8969, abs=1e-4)


def test_is_04_a_sequence_weight_explodes_with_length_and_is_masked() -> None:
    trainer, sampler = torch.zeros(1, 100).double(), torch.full((1, 100), -0.012).double()
    mask = torch.ones(1, 100).bool()
    raw, _ = importance_weights(trainer, sampler, mask, level="sequence", cap=10)
    assert float(raw[0, 0]) == pytest.approx(3.3201, abs=1e-4)
    masked, share = importance_weights(trainer, sampler, mask, level="sequence", mode="mask", cap=3)
    assert float(masked.abs().max()) == 0.0
    assert float(share.mean()) == 1.0
    token, share = importance_weights(trainer, sampler, mask, mode="mask", cap=3)
    assert torch.allclose(token, torch.full_like(token, math.exp(0.012)))
    assert float(share.sum()) == 0.0


def test_is_05_weights_are_truncated_without_gradient_at_sampled_tokens_only() -> None:
    trainer = tensor([0.1, 1.0, -0.5, 50.0]).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 0]]).bool()
    weights, limited = importance_weights(trainer, torch.zeros(1, 4).double(), mask, cap=2)
    assert torch.allclose(weights, tensor([1.105171, 2.0, 0.606531, 0.0]), atol=1e-6)
    assert limited.tolist() == [[0, 1, 0, 0]]
    assert not weights.requires_grad
    with pytest.raises(ConfigError, match="mode"):
        importance_weights(trainer, trainer, mask, mode="clip")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective"),
    [(1.5, 1, 1.2), (1.5, -1, -1.5), (0.5, 1, 0.5), (0.5, -1, -0.8)],
)
def test_is_08_clip_direction(ratio: float, advantage: float, objective: float) -> None:
    result = policy_loss(
        tensor([math.log(ratio)]), tensor([0.0]), tensor([float(advantage)]), torch.ones(1, 1)
    )
    assert float(-result.loss.detach()) == pytest.approx(objective, abs=1e-12)
    is_clipped = abs(objective - ratio * advantage) > 1e-9
    assert float(result.metrics["policy/clip_fraction"]) == float(is_clipped)


def test_kl_01_values() -> None:
    new, reference, mask = tensor([-1.0, -2.0]), tensor([-2.0, -1.0]), torch.ones(1, 2)
    wanted = {"k1": [1.0, -1.0], "k2": [0.5, 0.5], "k3": [0.367879, 0.718282]}
    for kind, numbers in wanted.items():
        found = kl_penalty(new, reference, mask, kind=kind, use="metric")  # type: ignore[arg-type]
        assert torch.allclose(found, tensor(numbers), atol=1e-6)


def expected_gradient(kind: str, *, as_reward: bool = False) -> float:
    """Return d/d logit of token 1 of the on-policy expectation, p = (0.7, 0.3), q = (0.5, 0.5)."""
    logits = torch.tensor([math.log(0.7), math.log(0.3)], dtype=torch.float64).requires_grad_()
    logprobs = torch.log_softmax(logits, -1)[:, None]
    probability = logprobs.detach().exp()
    reference = torch.full((2, 1), math.log(0.5), dtype=torch.float64)
    use = "reward" if as_reward else "metric"
    penalty = kl_penalty(logprobs, reference, torch.ones(2, 1), kind=kind, use=use)  # type: ignore[arg-type]
    term = penalty.detach() * logprobs if as_reward else penalty
    (gradient,) = torch.autograd.grad((probability * term).sum(), logits)
    return float(gradient[0])


def test_kl_02_gradients_differ_from_values() -> None:
    assert expected_gradient("k1") == pytest.approx(0.0, abs=1e-12)
    assert expected_gradient("k2") == pytest.approx(0.177933, abs=1e-6)
    assert expected_gradient("k3") == pytest.approx(0.2, abs=1e-6)
    assert expected_gradient("k1", as_reward=True) == pytest.approx(0.177933, abs=1e-6)
    with pytest.raises(ConfigError, match="k1"):
        kl_penalty(tensor([0.0]), tensor([0.0]), torch.ones(1, 1), kind="k1", use="loss")


def test_kl_04_observation_tokens_have_no_kl() -> None:
    new = torch.zeros(1, 10).double()
    reference = torch.tensor([[0.0] * 2 + [5.0] * 8]).double()
    mask = torch.tensor([[1] * 2 + [0] * 8]).bool()
    for kind, use in (("k2", "loss"), ("k1", "reward"), ("k3", "metric")):
        found = kl_penalty(new, reference, mask, kind=kind, use=use)  # type: ignore[arg-type]
        assert float(found.abs().max()) == 0.0


@pytest.mark.parametrize("filler", [1.0, math.nan, math.inf, -1e9])
def test_tok_02_filler_under_the_mask_changes_nothing(filler: float) -> None:
    mask = torch.tensor([[0, 1, 1, 0], [1, 0, 1, 0]]).bool()
    clean = torch.full((2, 4), -0.7).double()
    old = torch.where(mask, clean, torch.tensor(filler).double())
    advantages = torch.where(mask, torch.ones(2, 4).double(), torch.tensor(filler).double())
    leaf = torch.where(mask, clean, torch.tensor(filler).double()).requires_grad_()
    result = policy_loss(leaf, old, advantages, mask, correction=torch.where(mask, 1.0, filler))
    assert float(result.loss.detach()) == pytest.approx(-1.0)
    assert float(result.metrics["policy/ratio"]) == pytest.approx(1.0)
    assert float(result.metrics["policy/clip_fraction"]) == 0.0
    (gradient,) = torch.autograd.grad(result.loss, leaf)
    assert torch.isfinite(gradient).all()
    assert float(gradient[~mask].abs().max()) == 0.0
    value = value_loss(leaf.detach(), old, advantages, mask)
    assert torch.isfinite(value.loss)
    kl = kl_penalty(leaf.detach(), torch.zeros(2, 4).double(), mask, kind="k3", use="loss")
    assert torch.isfinite(kl).all()


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean", "fixed"])
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_is_that_of_trl(aggregate: str, seed: int) -> None:
    """TRL's loss types dapo/bnpo, grpo and dr_grpo, as their formulas are published."""
    logprobs, old, advantages, mask = ragged(seed)
    ratio = torch.exp(logprobs - old)
    clipped = torch.clamp(ratio, 1 - 0.2, 1 + 0.28)
    token = -torch.min(ratio * advantages, clipped * advantages)
    wanted = {
        "token_mean": (token * mask).sum() / mask.sum(),
        "sequence_mean": ((token * mask).sum(-1) / mask.sum(-1)).mean(),
        "fixed": (token * mask).sum() / (5 * 7),
    }[aggregate]
    found = policy_loss(
        logprobs,
        old,
        advantages.expand_as(mask),
        mask,
        clip_high=0.28,
        aggregate=aggregate,  # type: ignore[arg-type]
        fixed_length=7,
    )
    assert float(found.loss) == pytest.approx(float(wanted), abs=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_the_sequence_ratio_is_that_of_trl(seed: int) -> None:
    logprobs, old, advantages, mask = ragged(seed)
    log_ratio = (logprobs - old) * mask
    wanted = torch.exp(log_ratio.sum(-1) / mask.sum(-1))
    found = torch.exp(log_ratio_by_level(log_ratio, mask, "sequence"))
    for row in range(5):
        assert torch.allclose(found[row][mask[row]], wanted[row])
    loss = policy_loss(
        logprobs,
        old,
        advantages.expand_as(mask),
        mask,
        ratio_level="sequence",
        aggregate="sequence_mean",
    ).loss
    clipped = torch.clamp(wanted, 0.8, 1.2)
    per_row = -torch.min(wanted * advantages[:, 0], clipped * advantages[:, 0])
    assert float(loss) == pytest.approx(float(per_row.mean()), abs=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_the_value_loss_is_that_of_verl(seed: int) -> None:
    """verl: half of the masked mean of max((v - R)^2, (clip(v, old - c, old + c) - R)^2)."""
    values, old, _, mask = ragged(seed)
    returns = torch.flip(values, (1,)) + 0.4
    near = torch.clamp(values, old - 0.2, old + 0.2)
    worst = torch.max((values - returns) ** 2, (near - returns) ** 2)
    wanted = 0.5 * (worst * mask).sum() / mask.sum()
    found = value_loss(values, old, returns, mask, clip=0.2)
    assert float(found.loss) == pytest.approx(float(wanted), abs=1e-14)
    plain = value_loss(values, old, returns, mask, clip=None)
    unclipped = 0.5 * (((values - returns) ** 2) * mask).sum() / mask.sum()
    assert float(plain.loss) == pytest.approx(float(unclipped), abs=1e-14)


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean", "fixed"])
def test_losses_of_micro_batches_add_up_to_the_loss_of_the_batch(aggregate: str) -> None:
    logprobs, old, advantages, mask = ragged(11)
    totals = BatchTotals(tokens=float(mask.sum()), weight=5.0)
    options = {"aggregate": aggregate, "fixed_length": 9, "totals": totals}
    whole = policy_loss(logprobs, old, advantages.expand_as(mask), mask, **options)  # type: ignore[arg-type]
    parts = [
        policy_loss(
            logprobs[i : i + 1],
            old[i : i + 1],
            advantages.expand_as(mask)[i : i + 1],
            mask[i : i + 1],
            **options,  # type: ignore[arg-type]
        )
        for i in range(5)
    ]
    assert sum(float(p.loss) for p in parts) == pytest.approx(float(whole.loss), abs=1e-14)
    for key, value in whole.metrics.items():
        assert sum(float(p.metrics[key]) for p in parts) == pytest.approx(float(value), abs=1e-14)
