"""The learner's optimiser, trained parts, checkpoints and exports."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
import torch
from rl_fakes import (
    make_learner,
    moved,
    parameters,
    random_samples,
)
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from dreamgym.errors import ConfigError, DataError, TrainingError
from dreamgym.rl.learner import LearnerConfig
from dreamgym.rl.objective import ObjectiveConfig, PolicyObjective
from dreamgym.rl.optim import OptimConfig, rate_at
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


@pytest.mark.parametrize("trainable", [TrainableConfig(), LORA])
def test_an_exported_model_scores_like_the_learner(
    trainable: TrainableConfig, tmp_path: Path
) -> None:
    learner = make_learner(LearnerConfig(trainable=trainable))
    samples = random_samples(21, 3)
    learner.sft_step(samples)
    learner.export(tmp_path)
    loaded = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    for sample, row in zip(samples, learner.logprobs(samples), strict=True):
        plain = plain_logprobs(loaded, sample)
        assert sum(row) == pytest.approx(
            sum(float(plain[t - 1]) for t, m in enumerate(sample.mask) if m), abs=1e-6
        )
    before = parameters(learner)
    learner.sft_step(samples)
    assert moved(before, parameters(learner)) > 0


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
