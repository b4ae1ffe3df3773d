"""Muon: the orthogonal step, and the optimiser pair behind the learner's `Stepper`."""

from __future__ import annotations

import msgspec
import pytest
import torch
from rl_fakes import make_learner, moved, parameters, random_samples
from torch import Tensor, nn

from dreamgym.rl.learner import LearnerConfig
from dreamgym.rl.muon import Muon, orthogonalize
from dreamgym.rl.optim import OptimConfig, Stepper
from dreamgym.rl.trainable import TrainableConfig


def random_matrix(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6), (1, 5), (3, 7, 4)])
def test_orthogonalized_singular_values_are_near_1(shape: tuple[int, ...]) -> None:
    values = torch.linalg.svdvals(orthogonalize(random_matrix(*shape), steps=8))
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3


@pytest.mark.parametrize("shape", [(6, 9), (9, 6)])
def test_orthogonalizing_keeps_the_singular_vectors(shape: tuple[int, int]) -> None:
    matrix = random_matrix(*shape, seed=1)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.mT @ orthogonalize(matrix) @ right.mT
    off_diagonal = inner - torch.diag(torch.diagonal(inner))
    assert float(off_diagonal.abs().max()) < 1e-9
    assert float(torch.diagonal(inner).min()) > 0


def test_the_scale_of_the_gradient_does_not_matter() -> None:
    matrix = random_matrix(5, 7)
    assert torch.allclose(orthogonalize(matrix * 1e3), orthogonalize(matrix), atol=1e-6)
    assert torch.equal(orthogonalize(torch.zeros(3, 4)), torch.zeros(3, 4))


def quintic(value: float, steps: int = 5) -> float:
    for _ in range(steps):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    return value


def test_two_steps_against_a_hand_computation() -> None:
    """A diagonal gradient stays diagonal: each entry goes through the scalar polynomial."""
    parameter = nn.Parameter(torch.diag(torch.tensor([1.0, 2.0], dtype=torch.float64)))
    optimizer = Muon([parameter], lr=0.1, momentum=0.9, weight_decay=0.5)
    weights, momentum = [1.0, 2.0], [0.0, 0.0]
    for gradient in ([3.0, 4.0], [-1.0, 2.0]):
        parameter.grad = torch.diag(torch.tensor(gradient, dtype=torch.float64))
        optimizer.step()
        momentum = [0.9 * m + g for m, g in zip(momentum, gradient, strict=True)]
        nesterov = [g + 0.9 * m for m, g in zip(momentum, gradient, strict=True)]
        norm = sum(n * n for n in nesterov) ** 0.5 + 1e-7
        weights = [
            w * (1 - 0.1 * 0.5) - 0.1 * quintic(n / norm)
            for w, n in zip(weights, nesterov, strict=True)
        ]
    expected = torch.diag(torch.tensor(weights, dtype=torch.float64))
    assert torch.allclose(parameter.detach(), expected, atol=1e-12)


def test_a_tall_matrix_takes_a_larger_step() -> None:
    steps = []
    for shape in ((8, 2), (2, 8)):
        parameter = nn.Parameter(torch.zeros(*shape, dtype=torch.float64))
        optimizer = Muon([parameter], lr=1.0)
        gradient = random_matrix(8, 2)
        parameter.grad = gradient if shape == (8, 2) else gradient.mT.contiguous()
        optimizer.step()
        steps.append(float(torch.linalg.matrix_norm(parameter.detach(), 2)))
    assert steps[0] == pytest.approx(2.0 * steps[1])


def test_matrices_of_one_shape_step_as_they_would_alone() -> None:
    together = [nn.Parameter(random_matrix(4, 4, seed=i)) for i in range(3)]
    alone = [nn.Parameter(p.detach().clone()) for p in together]
    for parameter, twin in zip(together, alone, strict=True):
        parameter.grad = random_matrix(4, 4, seed=9) * parameter.detach()
        twin.grad = parameter.grad.clone()
    Muon(together).step()
    for twin in alone:
        Muon([twin]).step()
    for parameter, twin in zip(together, alone, strict=True):
        assert torch.allclose(parameter, twin, atol=1e-12)


def test_a_parameter_without_a_gradient_stays() -> None:
    parameter = nn.Parameter(random_matrix(3, 3))
    before = parameter.detach().clone()
    Muon([parameter], weight_decay=0.1).step()
    assert torch.equal(parameter.detach(), before)


NAMES = ("model.embed.weight", "model.q_proj.weight", "model.up_proj.weight", "norm.weight")


def named() -> dict[str, nn.Parameter]:
    shapes = ((5, 4), (4, 4), (8, 4), (4,))
    return {
        name: nn.Parameter(random_matrix(*shape, seed=i))
        for i, (name, shape) in enumerate(zip(NAMES, shapes, strict=True))
    }


def take_steps(stepper: Stepper, parameters: dict[str, nn.Parameter], numbers: range) -> None:
    for number in numbers:
        for i, parameter in enumerate(parameters.values()):
            parameter.grad = random_matrix(*parameter.shape, seed=100 * number + i)
        stepper.step()


def test_muon_takes_the_hidden_matrices_and_adamw_the_rest() -> None:
    parameters = named()
    stepper = Stepper(parameters, OptimConfig(optimizer="muon"))
    take_steps(stepper, parameters, range(1))
    kinds = {
        name: {key.split("/")[-1] for key in stepper.tensors() if name in key} for name in NAMES
    }
    adam = {"step", "exp_avg", "exp_avg_sq"}
    assert [kinds[name] for name in NAMES] == [adam, {"momentum"}, {"momentum"}, adam]


def test_the_rate_of_muon_is_a_multiple_of_the_learning_rate() -> None:
    sizes = []
    for factor in (10.0, 20.0):
        parameters = named()
        before = {k: p.detach().clone() for k, p in parameters.items()}
        config = OptimConfig(optimizer="muon", muon_factor=factor, learning_rate=1e-3)
        take_steps(Stepper(parameters, config), parameters, range(1))
        sizes.append([float((parameters[k].detach() - before[k]).norm()) for k in NAMES])
    assert sizes[1][1] == pytest.approx(2 * sizes[0][1])
    assert sizes[1][0] == pytest.approx(sizes[0][0])


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_going_on_after_a_restore_is_exact(optimizer: str) -> None:
    config = msgspec.convert({"optimizer": optimizer, "weight_decay": 0.1}, OptimConfig)
    straight = named()
    whole = Stepper(straight, config)
    take_steps(whole, straight, range(3))
    saved = {name: value.clone() for name, value in whole.tensors().items()}
    resumed = {name: nn.Parameter(p.detach().clone()) for name, p in straight.items()}
    other = Stepper(resumed, config)
    other.load_tensors(saved)
    other.load_counters(whole.counters())
    take_steps(whole, straight, range(3, 6))
    take_steps(other, resumed, range(3, 6))
    assert all(torch.equal(straight[name], resumed[name]) for name in NAMES)
    assert other.counters() == whole.counters()


def test_without_the_momentum_the_next_step_would_differ() -> None:
    parameters = named()
    stepper = Stepper(parameters, OptimConfig(optimizer="muon"))
    take_steps(stepper, parameters, range(3))
    fresh = {name: nn.Parameter(p.detach().clone()) for name, p in parameters.items()}
    take_steps(Stepper(fresh, OptimConfig(optimizer="muon")), fresh, range(3, 4))
    take_steps(stepper, parameters, range(3, 4))
    assert not torch.equal(fresh[NAMES[1]], parameters[NAMES[1]])


def test_adamw_is_the_default_and_unchanged() -> None:
    assert OptimConfig().optimizer == "adamw"
    parameters, twins = named(), named()
    take_steps(Stepper(parameters, OptimConfig(weight_decay=0.1)), parameters, range(4))
    matrices = [p for p in twins.values() if p.ndim == 2]
    vectors = [p for p in twins.values() if p.ndim < 2]
    reference = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=3e-4,
        betas=(0.9, 0.99),
    )
    for number in range(4):
        for i, parameter in enumerate(twins.values()):
            parameter.grad = random_matrix(*parameter.shape, seed=100 * number + i)
        nn.utils.clip_grad_norm_(list(twins.values()), 1.0)
        reference.step()
    for name in NAMES:
        assert torch.allclose(parameters[name], twins[name], atol=1e-12)


def test_muon_also_works_where_every_parameter_is_a_matrix() -> None:
    lora = TrainableConfig(mode="lora", lora_rank=2, lora_alpha=4)
    learner = make_learner(
        LearnerConfig(trainable=lora, optim=OptimConfig(optimizer="muon", learning_rate=1e-2))
    )
    before = parameters(learner)
    first = learner.sft_step(random_samples(3, 3))
    for _ in range(5):
        last = learner.sft_step(random_samples(3, 3))
    assert moved(before, parameters(learner)) > 0
    assert last < first


def test_a_learner_with_muon_fits() -> None:
    learner = make_learner(LearnerConfig(optim=OptimConfig(optimizer="muon", learning_rate=5e-3)))
    rows = random_samples(4, 4)
    first = learner.sft_loss(rows)
    for _ in range(10):
        learner.sft_step(rows)
    assert learner.sft_loss(rows) < 0.7 * first


def test_broken_gradients_change_neither_weights_nor_moments() -> None:
    parameters = named()
    stepper = Stepper(parameters, OptimConfig(optimizer="muon"))
    take_steps(stepper, parameters, range(2))
    weights = {name: p.detach().clone() for name, p in parameters.items()}
    moments = {name: value.clone() for name, value in stepper.tensors().items()}
    for parameter in parameters.values():
        parameter.grad = torch.full_like(parameter, torch.nan)
    stepper.step()
    assert stepper.skipped == 1
    assert all(torch.equal(parameters[name], weights[name]) for name in NAMES)
    assert all(torch.equal(value, moments[name]) for name, value in stepper.tensors().items())
