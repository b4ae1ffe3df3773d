"""Advantages, losses and gradients equal TRL's own code on random ragged batches.

TRL's `GRPOTrainer` runs for real; its forward pass is replaced by the batch's numbers, its
generation and its reward functions by given ones.

Where the definitions differ, and how they are made to agree here:

- TRL adds 1e-4 to a group's standard deviation, the library 1e-6: `eps` is passed.
- TRL computes rewards in float32; the given ones are float64.
- TRL keeps groups without contrast in the batch with advantage 0 (rounding can leave a tiny one),
  the library drops them by default: compared are the advantages.
- TRL averages `sequence_mean` over micro-batches and then over accumulation steps; the library
  normalises over the whole optimiser step.  Compared is one batch.
- TRL's KL is k3 only; k2, the library's default, has no counterpart.
- TRL's importance weights come with a lower limit as well; none is set here.
"""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rl_batches import NUM_BATCHES, TOLERANCE, gradient, loss_inputs, random_batch, worst
from rl_fakes import VOCABULARY, tiny_llama
from torch import Tensor

from dreamgym.rl.advantage import group_advantages
from dreamgym.rl.loss import importance_weights
from dreamgym.rl.objective import ObjectiveConfig, PolicyObjective

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # TRL's use of transformers
trl = pytest.importorskip("trl", reason="needs TRL: pip install 'dreamgym[dev]'")

GROUP = 4
LOSS_TYPES = {"token_mean": "dapo", "sequence_mean": "grpo", "fixed": "dr_grpo"}


def make_trainer(folder: str) -> Any:
    """Return TRL's trainer with canned model outputs, completions and rewards."""
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    class Canned(trl.GRPOTrainer):  # type: ignore[misc, name-defined]
        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            return self.canned_logps, torch.zeros_like(self.canned_logps), None

        def _generate(self, prompts: list[Any]) -> Any:
            count = len(prompts)
            text = ["t4 t5"] * count
            return [[3]] * count, [[4, 5]] * count, None, text, None, {}, None, [[]] * count

        def _calculate_rewards(self, *args: Any) -> Any:
            return self.canned_rewards

    words = Tokenizer(WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="t0", pad_token="t1", eos_token="t2"
    )
    options = trl.GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        report_to=[],
        per_device_train_batch_size=GROUP,
        num_generations=GROUP,
        gradient_checkpointing=False,
    )
    return Canned(
        model=tiny_llama(),
        args=options,
        reward_funcs=[lambda **kwargs: [0.0]],
        train_dataset=Dataset.from_dict({"prompt": ["t3"]}),
        processing_class=tokenizer,
    )


@pytest.fixture(scope="module")
def trainer() -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield make_trainer(folder)


def trl_loss(trainer: Any, batch: Any, logprobs: Tensor, weights: Tensor | None) -> Tensor:
    trainer.canned_logps = logprobs
    rows, width = batch.mask.shape
    inputs = {
        "prompt_ids": torch.zeros(rows, 1, dtype=torch.long),
        "prompt_mask": torch.ones(rows, 1, dtype=torch.long),
        "completion_ids": torch.zeros(rows, width, dtype=torch.long),
        "completion_mask": torch.ones(rows, width, dtype=torch.long),
        "tool_mask": batch.mask.long(),
        "advantages": batch.advantages,
        "old_per_token_logps": batch.old,
        "ref_per_token_logps": batch.reference,
        "num_items_in_batch": batch.mask.sum(),
        "importance_sampling_ratio": weights,
    }
    loss: Tensor = trainer._compute_loss(trainer.model, inputs)
    return loss


def test_losses_and_gradients_are_those_of_trl(trainer: Any) -> None:
    """All ways to average, both ratios, with and without KL and importance weights, in turn."""
    options = itertools.cycle(
        itertools.product(LOSS_TYPES, ("token", "sequence"), (0.0, 0.04), (False, True))
    )
    for seed, (aggregate, level, kl_coef, is_corrected) in zip(
        range(NUM_BATCHES), options, strict=False
    ):
        batch = random_batch(seed)
        trainer.loss_type = LOSS_TYPES[aggregate]
        trainer.importance_sampling_level = level
        trainer.beta = kl_coef
        trainer.epsilon_low, trainer.epsilon_high = 0.2, 0.28
        trainer.max_completion_length = 9
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = is_corrected
        sampler = batch.reference
        weights = importance_weights(batch.old, sampler, batch.mask, cap=2.0)[0]
        theirs = batch.logprobs.clone().requires_grad_()
        wanted = trl_loss(trainer, batch, theirs, weights)

        objective = PolicyObjective(
            ObjectiveConfig(
                clip_high=0.28,
                aggregate=aggregate,  # type: ignore[arg-type]
                fixed_length=9,
                ratio_level=level,  # type: ignore[arg-type]
                kl_coef=kl_coef,
                kl_kind="k3",
                correction="token" if is_corrected else "none",
            )
        )
        ours = batch.logprobs.clone().requires_grad_()
        inputs = loss_inputs(batch, ours)
        object.__setattr__(inputs, "sampler_logprobs", sampler)
        parts = objective(inputs)
        found = parts.main if parts.kl is None else parts.main + parts.kl
        case = (seed, aggregate, level, kl_coef, is_corrected)
        assert worst(found, wanted) < TOLERANCE, case
        assert worst(gradient(found, ours), gradient(wanted, theirs)) < TOLERANCE, case


def test_advantages_are_those_of_trl(trainer: Any) -> None:
    trainer.beta, trainer.use_vllm = 0.0, False
    trainer.num_generations_eval = GROUP
    for seed in range(NUM_BATCHES // 4):
        batch = random_batch(seed, group_size=GROUP)
        rewards = torch.tensor(batch.rewards, dtype=torch.float64).flatten()
        if seed % 3 == 0:  # an unscorable attempt in each group
            rewards[::GROUP] = torch.nan
        trainer.canned_rewards = rewards[:, None]
        for scale, name in (("std", "group"), ("mean", "none")):
            trainer.scale_rewards = name
            inputs = [{"prompt": "t3"} for _ in rewards]
            wanted = trainer._generate_and_score_completions(inputs)["advantages"]
            groups = rewards.view(-1, GROUP).tolist()
            found = [group_advantages(g, scale=scale, eps=1e-4).advantages for g in groups]  # type: ignore[arg-type]
            ours = torch.tensor(found, dtype=torch.float64).flatten()
            assert worst(ours, wanted) < TOLERANCE, seed
