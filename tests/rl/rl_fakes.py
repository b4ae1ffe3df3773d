"""A two-layer Llama in float64 and rollouts made of token ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from dreamgym.rl.learner import Learner, LearnerConfig
from dreamgym.seeds import derive_random
from dreamgym.types import Completion, Rollout, RolloutGroup, Sample, StopReason, Task

VOCABULARY = 23
TASK = Task(id="t", suite="fake", instruction="do it")


def tiny_llama(seed: int = 0, *, layers: int = 2, tied: bool = True) -> nn.Module:
    """Return a small Llama with float64 weights; the global generator is left alone."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=24,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = LlamaForCausalLM(config).double()
    return model.eval()


def make_learner(config: LearnerConfig | None = None, *, seed: int = 0) -> Learner:
    """Return a learner of a tiny Llama."""
    return Learner(tiny_llama(seed), None, config)


def parameters(learner: Learner) -> dict[str, torch.Tensor]:
    """Return copies of all parameters."""
    return {name: p.detach().clone() for name, p in learner.model.named_parameters()}


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> float:
    """Return the largest change of any parameter."""
    return max(float((before[k] - after[k]).abs().max()) for k in before)


def turn(
    context: Sequence[int],
    sampled: Sequence[int],
    *,
    logprob: float = -1.0,
    restart: bool = False,
) -> Completion:
    """Return a completion in which every token has the same log-probability."""
    return Completion(
        text="",
        context_ids=tuple(context),
        token_ids=tuple(sampled),
        logprobs=(logprob,) * len(sampled),
        restart=restart,
    )


def make_rollout(
    completions: Sequence[Completion],
    *,
    reward: float | None = 1.0,
    stop: StopReason = StopReason.TERMINATED,
    name: str = "r",
) -> Rollout:
    """Return a rollout without transitions."""
    return Rollout(
        id=name,
        task=TASK,
        attempt=0,
        transitions=(),
        completions=tuple(completions),
        stop=stop,
        reward=reward,
        success=bool(reward),
    )


def random_completions(seed: int, num_turns: int, *, size: int = 4) -> list[Completion]:
    """Return turns of random ids and lengths."""
    rng = derive_random("turns", seed)
    out = []
    for _ in range(num_turns):
        context = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, size))]
        sampled = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, size))]
        out.append(turn(context, sampled))
    return out


def make_group(rewards: Sequence[float | None], *, seed: int = 0, turns: int = 2) -> RolloutGroup:
    """Return a group of random rollouts with these rewards; None is a fault."""
    rollouts = [
        make_rollout(
            random_completions(seed * 100 + i, turns),
            reward=reward,
            stop=StopReason.FAULT if reward is None else StopReason.TERMINATED,
            name=f"r{seed}-{i}",
        )
        for i, reward in enumerate(rewards)
    ]
    return RolloutGroup(task=TASK, rollouts=tuple(rollouts))


def sampled_by(learner: Learner, samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples with the log-probabilities the learner gives them now."""
    rows = learner.logprobs(samples)
    return [
        Sample(
            token_ids=s.token_ids,
            mask=s.mask,
            logprobs=tuple(row),
            advantages=s.advantages,
            weight=s.weight,
            rollout_id=s.rollout_id,
            values=s.values,
            returns=s.returns,
        )
        for s, row in zip(samples, rows, strict=True)
    ]


def random_samples(seed: int, count: int, *, turns: int = 2, size: int = 4) -> list[Sample]:
    """Return ragged samples with random advantages and log-probabilities."""
    rng = derive_random("samples", seed)
    out = []
    for i in range(count):
        ids: list[int] = []
        mask: list[int] = []
        for completion in random_completions(seed * 1000 + i, turns, size=size):
            ids += [*completion.context_ids, *completion.token_ids]
            mask += [0] * len(completion.context_ids) + [1] * len(completion.token_ids)
        out.append(
            Sample(
                token_ids=tuple(ids),
                mask=tuple(mask),
                logprobs=tuple(-rng.uniform(1, 5) if m else 0.0 for m in mask),
                advantages=tuple(rng.gauss(0, 1) if m else 0.0 for m in mask),
                rollout_id=str(i),
            )
        )
    return out
