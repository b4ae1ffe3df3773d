"""The learner on a two-layer Llama in float64."""

from __future__ import annotations

import math
from pathlib import Path

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

from dreamgym.errors import ConfigError, DataError, TrainingError
from dreamgym.rl.batch import micro_batches, padding_share
from dreamgym.rl.learner import Learner, LearnerConfig
from dreamgym.rl.objective import ObjectiveConfig, PolicyObjective
from dreamgym.rl.optim import OptimConfig, rate_at
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


def test_lora_trains_adapters_only_and_top_layers_only_the_top() -> None:
    for trainable, wanted in ((LORA, "lora"), (TOP, "layers.1.")):
        learner = make_learner(LearnerConfig(trainable=trainable))
        before = parameters(learner)
        for _ in range(2):
            learner.sft_step(random_samples(13, 3))
        after = parameters(learner)
        changed = {n for n in before if not torch.equal(before[n], after[n])}
        assert changed
        assert all(wanted in n or n.endswith("norm.weight") for n in changed)
        assert not any("embed" in n for n in changed)
    with pytest.raises(ConfigError, match=r"1\.\.2"):
        make_learner(LearnerConfig(trainable=TrainableConfig(mode="top_k_layers", top_k_layers=3)))


def poisoned(sample: Sample) -> Sample:
    """Return a sample whose advantage is infinite: gradients become NaN or infinite."""
    return msgspec.structs.replace(
        sample, advantages=tuple(math.inf if m else 0.0 for m in sample.mask)
    )


def test_broken_gradients_are_skipped_counted_and_finally_an_error() -> None:
    learner = make_learner(LearnerConfig(optim=OptimConfig(max_bad_steps=2)))
    samples = random_samples(14, 2)
    before = parameters(learner)
    result = learner.update([poisoned(s) for s in samples])
    assert moved(before, parameters(learner)) == 0.0
    assert result.metrics["update/skipped_steps"] == 1.0
    learner.update(samples)
    assert moved(before, parameters(learner)) > 0
    learner.update([poisoned(s) for s in samples])
    with pytest.raises(TrainingError, match="2 steps in a row"):
        learner.update([poisoned(s) for s in samples])


@pytest.mark.parametrize("trainable", [TrainableConfig(), LORA, TOP])
def test_resuming_equals_going_on(trainable: TrainableConfig, tmp_path: Path) -> None:
    config = LearnerConfig(
        trainable=trainable,
        value_head=True,
        optim=OptimConfig(schedule="cosine", warmup_steps=2, total_steps=9, learning_rate=1e-2),
    )
    samples = random_samples(15, 5)
    straight = make_learner(config)
    straight.freeze_reference()
    for _ in range(3):
        straight.update(samples, epochs=2, minibatches=2)
    straight.save(tmp_path)
    resumed = make_learner(config)
    resumed.load(tmp_path)
    objective = PolicyObjective(ObjectiveConfig(kl_coef=0.1))
    results = [
        learner.update(samples, objective, epochs=2, minibatches=2)
        for learner in (straight, resumed)
    ]
    assert results[0] == results[1]
    assert moved(parameters(straight), parameters(resumed)) == 0.0
    assert straight.step_count == resumed.step_count


def test_saving_twice_keeps_one_state_and_damage_is_one_clear_error(tmp_path: Path) -> None:
    learner = make_learner()
    learner.save(tmp_path)
    learner.update(random_samples(16, 2))
    learner.save(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    assert not list(tmp_path.glob("*.partial"))
    with pytest.raises(DataError, match="no learner state"):
        learner.load(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="trainable='full'"):
        make_learner(LearnerConfig(trainable=TOP)).load(tmp_path)
    with pytest.raises(DataError, match="value head"):
        make_learner(LearnerConfig(value_head=True)).load(tmp_path)
    next(tmp_path.glob("*.safetensors")).write_bytes(b"broken")
    with pytest.raises(DataError, match="damaged"):
        learner.load(tmp_path)


def test_weight_decay_touches_matrices_only() -> None:
    learner = make_learner(
        LearnerConfig(optim=OptimConfig(learning_rate=0.1, weight_decay=0.5, beta1=0.0))
    )
    sample = random_samples(17, 1)[0]
    zero = msgspec.structs.replace(sample, advantages=(0.0,) * len(sample.mask))
    before = parameters(learner)
    learner.update([zero])
    for name, after in parameters(learner).items():
        factor = 0.95 if after.ndim >= 2 else 1.0
        assert torch.allclose(after, before[name] * factor, atol=1e-12), name


def test_the_schedule_warms_up_and_falls_to_its_fraction() -> None:
    config = OptimConfig(
        learning_rate=1.0, schedule="linear", warmup_steps=4, total_steps=14, final_fraction=0.2
    )
    assert [rate_at(config, s) for s in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rate_at(config, 9) == pytest.approx(0.6)
    assert rate_at(config, 14) == rate_at(config, 99) == pytest.approx(0.2)
    with pytest.raises(ConfigError, match="total_steps"):
        OptimConfig(schedule="cosine")


def test_micro_batches_respect_the_budget_and_waste_little() -> None:
    lengths = [40 + (i * 37) % 120 for i in range(64)]
    groups = micro_batches(lengths, 1024)
    assert sorted(i for g in groups for i in g) == list(range(64))
    assert all(max(lengths[i] for i in g) * len(g) <= 1024 for g in groups)
    assert padding_share(lengths, groups) < 0.15
    assert micro_batches([5000], 1024) == [[0]]


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
