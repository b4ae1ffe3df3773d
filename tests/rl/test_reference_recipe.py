"""The library equals the reference recipe: advantages, sequences, losses, one whole step."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from rl_fakes import TASK, make_learner, make_rollout, parameters, random_completions, tiny_llama

from dreamgym.rl.advantage import group_advantages
from dreamgym.rl.grpo import GRPO
from dreamgym.rl.learner import LearnerConfig
from dreamgym.rl.loss import policy_loss
from dreamgym.rl.optim import OptimConfig
from dreamgym.rl.samples import rollout_to_samples
from dreamgym.seeds import derive_random
from dreamgym.types import Completion, RolloutGroup

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "reference_grpo.py"


def load_recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_grpo", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference_grpo"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


recipe = load_recipe()


def random_turns(seed: int) -> list[Completion]:
    rng = derive_random("recipe", seed)
    return [
        Completion(
            text="",
            context_ids=c.context_ids,
            token_ids=c.token_ids,
            logprobs=tuple(-rng.uniform(2.0, 4.0) for _ in c.token_ids),
        )
        for c in random_completions(seed, rng.randint(1, 4))
    ]


def as_recipe(turns: list[Completion]) -> object:
    return recipe.sequence(
        [recipe.Turn(list(c.context_ids), list(c.token_ids), list(c.logprobs)) for c in turns]
    )


@pytest.mark.parametrize("seed", range(20))
def test_advantages_equal_those_of_the_recipe(seed: int) -> None:
    rng = derive_random("rewards", seed)
    rewards = [rng.choice([0.0, 0.25, 1.0]) for _ in range(rng.randint(2, 9))]
    library = group_advantages(rewards).advantages
    assert library == pytest.approx(recipe.advantages(rewards), abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_sequences_and_masks_equal_those_of_the_recipe(seed: int) -> None:
    turns = random_turns(seed)
    (sample,) = rollout_to_samples(make_rollout(turns), 1.0)
    wanted = as_recipe(turns)
    assert list(sample.token_ids) == wanted.ids  # type: ignore[attr-defined]
    assert list(sample.mask) == wanted.mask  # type: ignore[attr-defined]
    assert list(sample.logprobs) == wanted.logprobs  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(5))
def test_losses_and_their_gradients_equal_those_of_the_recipe(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    old = -3 * torch.rand(6, 11, generator=generator, dtype=torch.float64)
    new = old + 0.3 * torch.randn(6, 11, generator=generator, dtype=torch.float64)
    mask = (torch.rand(6, 11, generator=generator) < 0.5).double()
    advantage = torch.randn(6, 1, generator=generator, dtype=torch.float64) * mask
    a, b = new.clone().requires_grad_(), new.clone().requires_grad_()
    library = policy_loss(a, old, advantage, mask).loss
    wanted = recipe.grpo_loss(b, old, advantage, mask)
    assert float(library.detach()) == pytest.approx(float(wanted.detach()), abs=1e-12)
    (ours,) = torch.autograd.grad(library, a)
    (theirs,) = torch.autograd.grad(wanted, b)
    assert torch.allclose(ours, theirs, atol=1e-12)


def test_a_whole_update_on_ragged_groups_equals_that_of_the_recipe() -> None:
    rewards = [[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    turns = [[random_turns(10 * g + i) for i in range(len(r))] for g, r in enumerate(rewards)]
    groups = [
        RolloutGroup(
            task=TASK,
            rollouts=tuple(
                make_rollout(t, reward=r, name=f"{g}-{i}")
                for i, (t, r) in enumerate(zip(turns[g], rewards[g], strict=True))
            ),
        )
        for g in range(3)
    ]
    learner = make_learner(
        LearnerConfig(batch_tokens=20, optim=OptimConfig(learning_rate=3e-4, max_grad_norm=1.0))
    )
    result = GRPO().update(learner, groups)

    model = tiny_llama()
    weights = [recipe.advantages(r) for r in rewards]
    live = [(turns[g][i], w) for g in range(3) for i, w in enumerate(weights[g]) if w != 0.0]
    loss = recipe.batch_loss(model, [as_recipe(t) for t, _ in live], [w for _, w in live])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.99), weight_decay=0.0)
    recipe.take_step(model, optimizer, loss)
    assert result.metrics["policy/loss"] == pytest.approx(float(loss.detach()), abs=1e-12)
    ours = parameters(learner)
    for name, theirs in model.named_parameters():
        # Adam divides by the gradient's size, so entries with gradients of ~1e-13 may differ
        assert torch.allclose(ours[name], theirs.detach(), atol=1e-9), name


def test_the_command_line_has_defaults_that_parse() -> None:
    options = recipe.parser().parse_args([])
    assert options.group >= 2
    assert options.iterations > 0
