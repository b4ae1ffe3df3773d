"""The learner on a two-layer Llama in float64."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch
from rl_fakes import (
    VOCABULARY,
    make_learner,
    moved,
    parameters,
    random_samples,
    sampled_by,
    tiny_llama,
)
from torch import Tensor, nn

from dreamgym.errors import ConfigError, DataError
from dreamgym.rl.batch import micro_batches, padding_share
from dreamgym.rl.learner import Learner, LearnerConfig
from dreamgym.rl.objective import ObjectiveConfig, PolicyObjective
from dreamgym.rl.optim import OptimConfig
from dreamgym.rl.sft import SftExample
from dreamgym.rl.trainable import TrainableConfig
from dreamgym.types import Sample

LORA = TrainableConfig(mode="lora", lora_rank=2, lora_alpha=4, lora_dropout=0.1)
TOP = TrainableConfig(mode="top_k_layers", top_k_layers=1)


def plain_logprobs(model: nn.Module, sample: Sample, temperature: float = 1.0) -> Tensor:
    """Return log-probabilities of every token but the first, one sequence, no padding."""
    ids = torch.tensor([sample.token_ids])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, :-1] / temperature
    return torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]


def test_log_probabilities_are_those_of_a_plain_forward_pass_per_sequence() -> None:
    learner = make_learner(LearnerConfig(batch_tokens=40, temperature=0.7))
    samples = random_samples(1, 7)
    for sample, row in zip(samples, learner.logprobs(samples), strict=True):
        plain = plain_logprobs(learner.model, sample, 0.7)
        for t, m in enumerate(sample.mask):
            assert row[t] == pytest.approx(float(plain[t - 1]) if m else 0.0, abs=1e-12)


def test_entropy_is_that_of_the_token_distributions() -> None:
    learner = make_learner()
    (sample,) = random_samples(20, 1)
    with torch.no_grad():
        logits = learner.model(input_ids=torch.tensor([sample.token_ids])).logits[0, :-1]
    p = torch.softmax(logits, -1)
    entropy = -(p * torch.log(p)).sum(-1)
    places = [t - 1 for t, m in enumerate(sample.mask) if m]
    found = learner.update([sample]).metrics["policy/entropy"]
    assert found == pytest.approx(float(entropy[places].mean()), abs=1e-12)


def test_right_padding_without_a_mask_equals_an_attention_mask() -> None:
    model = tiny_llama()
    ids = torch.arange(16).reshape(2, 8) % VOCABULARY
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    with torch.no_grad():
        fast = model(input_ids=ids).logits
        masked = model(input_ids=ids, attention_mask=mask).logits
    assert torch.allclose(fast[mask.bool()], masked[mask.bool()], atol=1e-12)


@pytest.mark.parametrize("trainable", [TrainableConfig(), LORA, TOP])
def test_is_01_the_ratio_is_one_before_any_update(trainable: TrainableConfig) -> None:
    learner = make_learner(LearnerConfig(trainable=trainable, batch_tokens=30))
    samples = [
        msgspec.structs.replace(s, advantages=(0.0,) * len(s.advantages))
        for s in sampled_by(learner, random_samples(2, 6))
    ]
    result = learner.update(samples)
    assert result.metrics["policy/ratio"] == pytest.approx(1.0, abs=1e-5)
    assert result.metrics["policy/approx_kl"] == pytest.approx(0.0, abs=1e-9)
    assert result.metrics["policy/loss"] == 0.0
    assert result.metrics["update/gradient_norm"] == 0.0


def test_is_02_the_learner_divides_by_the_sampling_temperature() -> None:
    learner = make_learner(LearnerConfig(temperature=0.5))
    samples = random_samples(3, 2)
    recorded = [
        msgspec.structs.replace(
            s,
            logprobs=tuple(
                float(p) if m else 0.0
                for p, m in zip(
                    [0.0, *plain_logprobs(learner.model, s, 0.5).tolist()], s.mask, strict=True
                )
            ),
        )
        for s in samples
    ]
    assert learner.update(recorded).metrics["policy/ratio"] == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ConfigError, match="greedy"):
        LearnerConfig(temperature=0.0)


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean", "fixed"])
def test_one_batch_of_eight_equals_eight_batches_of_one(aggregate: str) -> None:
    objective = PolicyObjective(
        ObjectiveConfig(aggregate=aggregate, fixed_length=6, kl_coef=0.1)  # type: ignore[arg-type]
    )
    found = []
    for batch_tokens in (1, 10_000):
        learner = make_learner(LearnerConfig(batch_tokens=batch_tokens))
        learner.freeze_reference()
        result = learner.update(random_samples(4, 8), objective)
        found.append((parameters(learner), result.metrics))
    assert moved(found[0][0], found[1][0]) < 1e-10
    for key in ("policy/loss", "policy/ratio", "policy/entropy", "update/gradient_norm"):
        assert found[0][1][key] == pytest.approx(found[1][1][key], abs=1e-10)


def test_sft_does_not_depend_on_micro_batches_either() -> None:
    examples = [SftExample(token_ids=s.token_ids, mask=s.mask) for s in random_samples(5, 8)]
    one, many = (
        make_learner(LearnerConfig(batch_tokens=10_000)),
        make_learner(LearnerConfig(batch_tokens=1)),
    )
    losses = [learner.sft_step(examples) for learner in (one, many)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-12)
    assert moved(parameters(one), parameters(many)) < 1e-10


def test_the_sft_loss_is_the_token_mean_over_the_mask() -> None:
    learner = make_learner()
    samples = random_samples(6, 4)
    terms = [
        -float(plain_logprobs(learner.model, s)[t - 1])
        for s in samples
        for t, m in enumerate(s.mask)
        if m
    ]
    wanted = sum(terms) / len(terms)
    assert learner.sft_loss(samples) == pytest.approx(wanted, abs=1e-12)
    assert learner.sft_step(samples) == pytest.approx(wanted, abs=1e-12)
    assert learner.sft_loss(samples) < wanted


def gradient_of_update(learner: Learner, samples: list[Sample]) -> dict[str, Tensor]:
    """Return the step taken with plain gradient descent in mind: parameter differences."""
    before = parameters(learner)
    learner.update(samples)
    after = parameters(learner)
    return {name: after[name] - before[name] for name in before}


def test_tok_01_logits_that_predict_observation_tokens_get_no_gradient() -> None:
    """Other ids may stand in untrained places at the end; a trained place is shifted by one."""
    learner = make_learner()
    sample = Sample(
        token_ids=(1, 2, 3, 4, 5, 6, 7),
        mask=(0, 0, 1, 1, 0, 1, 1),
        logprobs=(0, 0, -2.0, -2.0, 0, -2.0, -2.0),
        advantages=(0, 0, 1.0, 1.0, 0, 1.0, 1.0),
    )
    seen: list[Tensor] = []
    head = learner.model.get_output_embeddings()  # type: ignore[operator]
    hook = head.register_forward_hook(lambda module, args, out: seen.append(args[0].detach()))
    learner.logprobs([sample])
    hook.remove()
    with torch.no_grad():
        trunk = learner.model.base_model(input_ids=torch.tensor([sample.token_ids]))  # type: ignore[operator]
    hidden = trunk.last_hidden_state[0]
    # trained tokens stand at 2, 3, 5, 6 (first token after an observation and end token included)
    assert torch.allclose(seen[0], hidden[[1, 2, 4, 5]], atol=1e-12)


def test_tok_01_an_observation_token_that_predicts_nothing_trained_is_never_learned() -> None:
    samples = [
        Sample(
            token_ids=(1, 2, last, 9),
            mask=(0, 1, 0, 0),
            logprobs=(0, -2.0, 0, 0),
            advantages=(0, 1.0, 0, 0),
        )
        for last in (3, 4)
    ]
    a, b = [gradient_of_update(make_learner(), [sample]) for sample in samples]
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_tok_02_numbers_under_the_mask_never_reach_the_update() -> None:
    samples = random_samples(7, 5)
    dirty = [
        msgspec.structs.replace(
            s,
            logprobs=tuple(p if m else 1.0 for p, m in zip(s.logprobs, s.mask, strict=True)),
            advantages=tuple(
                a if m else math.nan for a, m in zip(s.advantages, s.mask, strict=True)
            ),
        )
        for s in samples
    ]
    clean_learner, dirty_learner = make_learner(), make_learner()
    a, b = clean_learner.update(samples), dirty_learner.update(dirty)
    assert moved(parameters(clean_learner), parameters(dirty_learner)) == 0.0
    assert a.metrics == b.metrics


def test_an_empty_batch_is_a_clean_step_that_changes_nothing() -> None:
    learner = make_learner()
    before = parameters(learner)
    untrained = Sample(token_ids=(1, 2), mask=(0, 0), logprobs=(0, 0), advantages=(0, 0))
    for samples in ([], [untrained]):
        result = learner.update(samples)
        assert (result.num_samples, result.num_steps, result.metrics) == (0, 0, {})
    assert learner.sft_step([]) == 0.0
    assert moved(before, parameters(learner)) == 0.0
    assert learner.step_count == 0


def test_a_positive_advantage_makes_the_sampled_tokens_likelier() -> None:
    learner = make_learner(LearnerConfig(optim=OptimConfig(learning_rate=1e-2)))
    samples = sampled_by(learner, random_samples(8, 4))
    good = [
        msgspec.structs.replace(s, advantages=tuple((1.0 if i < 2 else -1.0) * m for m in s.mask))
        for i, s in enumerate(samples)
    ]
    before = [sum(row) for row in learner.logprobs(good)]
    for _ in range(3):
        learner.update(good)
    after = [sum(row) for row in learner.logprobs(good)]
    assert sum(after[:2]) > sum(before[:2])
    assert sum(after[2:]) < sum(before[2:])


def test_epochs_and_minibatches_take_that_many_steps_and_clip() -> None:
    learner = make_learner(LearnerConfig(optim=OptimConfig(learning_rate=0.05)))
    samples = sampled_by(learner, random_samples(9, 8))
    result = learner.update(samples, epochs=2, minibatches=3)
    assert result.num_steps == 6
    assert learner.step_count == 6
    assert result.metrics["policy/clip_fraction"] > 0
    assert result.metrics["policy/ratio"] != pytest.approx(1.0, abs=1e-6)


def test_alg_02_both_gradient_norms_are_reported() -> None:
    config = LearnerConfig(measure_kl_gradient=True)
    learner = make_learner(config)
    learner.freeze_reference()
    samples = sampled_by(learner, random_samples(10, 4))
    learner.update(samples)  # away from the reference
    dead = [msgspec.structs.replace(s, advantages=(0.0,) * len(s.mask)) for s in samples]
    objective = PolicyObjective(ObjectiveConfig(kl_coef=0.04))
    metrics = learner.update(dead, objective).metrics
    assert metrics["policy/gradient_norm"] == pytest.approx(0.0, abs=1e-12)
    assert metrics["kl/gradient_norm"] > 0
    assert metrics["update/gradient_norm"] == pytest.approx(metrics["kl/gradient_norm"])


@pytest.mark.parametrize("trainable", [TrainableConfig(), LORA])
def test_the_reference_stays_where_it_was_frozen(trainable: TrainableConfig) -> None:
    learner = make_learner(LearnerConfig(trainable=trainable))
    samples = random_samples(11, 4)
    learner.sft_step(samples)
    frozen = learner.logprobs(samples)
    learner.freeze_reference()
    learner.update(samples)
    assert learner.reference_logprobs(samples) == frozen
    assert learner.logprobs(samples) != frozen


def test_importance_correction_compares_trainer_with_sampler() -> None:
    learner = make_learner()
    exact = sampled_by(learner, random_samples(12, 3))
    # an engine whose numbers are all lower by 1: weight e, truncated to 2; ratio still 1
    shifted = [
        msgspec.structs.replace(
            s, logprobs=tuple(p - m for p, m in zip(s.logprobs, s.mask, strict=True))
        )
        for s in exact
    ]
    objective = PolicyObjective(ObjectiveConfig(correction="token", correction_cap=2.0))
    metrics = learner.update(shifted, objective).metrics
    assert metrics["policy/ratio"] == pytest.approx(1.0, abs=1e-12)
    assert metrics["correction/weight"] == pytest.approx(2.0)
    assert metrics["correction/truncated_fraction"] == pytest.approx(1.0)


def test_micro_batches_respect_the_budget_and_waste_little() -> None:
    lengths = [40 + (i * 37) % 120 for i in range(64)]
    groups = micro_batches(lengths, 1024)
    assert sorted(i for g in groups for i in g) == list(range(64))
    assert all(max(lengths[i] for i in g) * len(g) <= 1024 for g in groups)
    assert padding_share(lengths, groups) < 0.15
    assert micro_batches([5000], 1024) == [[0]]
    few = [80 + (i * 53) % 320 for i in range(32)]
    assert padding_share(few, micro_batches(few, 4096)) < 0.15


def test_samples_that_do_not_line_up_are_refused() -> None:
    learner = make_learner()
    bad_mask = Sample(token_ids=(1, 2), mask=(1, 1), logprobs=(0, 0), advantages=(0, 0))
    with pytest.raises(DataError, match="first token"):
        learner.update([bad_mask])
    no_logprobs = Sample(token_ids=(1, 2), mask=(0, 1), logprobs=(), advantages=(0, 1))
    with pytest.raises(DataError, match="0 log-probabilities"):
        learner.update([no_logprobs])


def test_large_vocabularies_are_scored_in_chunks_with_the_same_result() -> None:
    from dreamgym.rl import forward

    whole, chunked = make_learner(), make_learner()
    samples = random_samples(18, 6)
    whole.update(samples)
    whole.sft_step(samples)
    before = forward.MAX_LOGITS
    try:
        forward.MAX_LOGITS = 3 * VOCABULARY
        chunked.update(samples)
        chunked.sft_step(samples)
    finally:
        forward.MAX_LOGITS = before
    assert moved(parameters(whole), parameters(chunked)) < 1e-12
