"""The learner: policy updates and supervised steps for any causal language model.

It owns parameters, optimiser and counters, and knows nothing of environments or of how advantages
came about.  Losses are normalised over everything an optimiser step sees, so how the work is cut
into micro-batches does not change the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor, nn

from dreamgym.errors import ConfigError, DataError
from dreamgym.rl.batch import (
    MaskedTokens,
    TokenBatch,
    check_row,
    collate,
    micro_batches,
    padding_share,
    trim,
)
from dreamgym.rl.checkpoint import LearnerState, export_model, read_state, write_state
from dreamgym.rl.forward import Scorer
from dreamgym.rl.inputs import UpdateData, check_samples
from dreamgym.rl.loss import BatchTotals
from dreamgym.rl.metrics import UpdateMetrics
from dreamgym.rl.objective import LossParts, Objective, PolicyObjective
from dreamgym.rl.optim import OptimConfig, Stepper
from dreamgym.rl.trainable import TrainableConfig, prepare, trainable_parameters
from dreamgym.seeds import derive_random
from dreamgym.types import Sample

Rows = list[list[float]]


class LearnerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is trained."""

    trainable: TrainableConfig = TrainableConfig()
    optim: OptimConfig = OptimConfig()
    batch_tokens: int = 4096
    """Padded tokens per micro-batch; memory, not results, depends on it."""
    temperature: float = 1.0
    """Must be the sampling temperature: log-probabilities are of softmax(logits / temperature)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """`bfloat16` runs the forward pass under autocast; parameters keep their type."""
    value_head: bool = False
    """A linear value head on the hidden states (PPO)."""
    value_trunk: Literal["shared", "detached"] = "shared"
    """`detached`: the value loss trains the head only."""
    value_rate_factor: float = 3.0
    """The value head starts at 0 and learns at this multiple of the learning rate."""
    measure_kl_gradient: bool = False
    """Report the norm of the KL term's gradient by itself (costs another backward pass)."""
    seed: int = 0
    """Orders samples where an update makes several steps."""

    def __post_init__(self) -> None:
        """Refuse values that cannot train."""
        if not self.temperature > 0:
            raise ConfigError(
                f"temperature must be positive (greedy samples teach nothing); got "
                f"{self.temperature}"
            )
        if self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least 1; got {self.batch_tokens}")


class Learner:
    """Trains `model`; `tokenizer` is only kept to export the model with it."""

    def __init__(
        self, model: nn.Module, tokenizer: Any, config: LearnerConfig | None = None
    ) -> None:
        self.config = config or LearnerConfig()
        self.tokenizer = tokenizer
        self.model = prepare(model, self.config.trainable)
        self.model.eval()
        self._scorer = Scorer(
            self.model, temperature=self.config.temperature, precision=self.config.precision
        )
        self.value_head = self._make_value_head() if self.config.value_head else None
        self._parameters = trainable_parameters(self.model)
        self._reference: dict[str, Tensor] = {}
        self.update_count = 0
        self.reset_optimizer(self.config.optim)

    def reset_optimizer(self, optim: OptimConfig) -> None:
        """Start with a fresh optimiser and schedule, such as between cloning and RL."""
        head = dict(self.value_head.named_parameters()) if self.value_head else {}
        named_head = {f"value_head.{name}": p for name, p in head.items()}
        self._stepper = Stepper(
            {**self._parameters, **named_head},
            optim,
            rate_factors=dict.fromkeys(named_head, self.config.value_rate_factor),
        )

    @property
    def step_count(self) -> int:
        """Optimiser steps tried since the optimiser was (re)set."""
        return self._stepper.step_count

    @property
    def skipped_steps(self) -> int:
        """Steps skipped because of NaN or infinite gradients."""
        return self._stepper.skipped

    # -- supervised ---------------------------------------------------------------------------

    def sft_step(
        self, examples: Sequence[MaskedTokens], *, learning_rate: float | None = None
    ) -> float:
        """Take one step on the mean negative log-likelihood of trained tokens; returns it (nats).

        `learning_rate` overrides the schedule.  Without a trained token nothing happens and the
        result is 0.
        """
        rows = _usable(examples)
        if not rows:
            return 0.0
        total = sum(sum(row.mask) for row in rows)
        loss = 0.0
        self.model.train()
        try:
            for batch, _ in self._batches(rows):
                nll = self._scorer.nll_sum(batch) / total
                torch.autograd.backward(nll)
                loss += float(nll.detach())
        finally:
            self.model.eval()
        self._stepper.step(learning_rate=learning_rate)
        return loss

    def sft_loss(self, examples: Sequence[MaskedTokens]) -> float:
        """Return the mean negative log-likelihood of trained tokens (nats) without learning."""
        rows = _usable(examples)
        with torch.no_grad():
            nll = sum(float(self._scorer.nll_sum(batch)) for batch, _ in self._batches(rows))
        return nll / max(sum(sum(row.mask) for row in rows), 1)

    # -- policy updates -----------------------------------------------------------------------

    def update(
        self,
        samples: Sequence[Sample],
        objective: Objective | None = None,
        *,
        epochs: int = 1,
        minibatches: int = 1,
    ) -> UpdateMetrics:
        """Minimise `objective` (default: the clipped policy loss) on `samples`.

        `epochs` passes over the samples, each in `minibatches` optimiser steps.  No samples, or
        none with a sampled token: no step, nothing changes, and the metrics say so.
        """
        objective = objective or PolicyObjective()
        rows = _usable(samples)
        if epochs < 1 or minibatches < 1:
            raise ConfigError(
                f"epochs and minibatches must be at least 1; got {epochs} and {minibatches}"
            )
        if objective.needs_values and self.value_head is None:
            raise ConfigError("this objective needs a value head; set value_head=True")
        check_samples(rows, needs_values=objective.needs_values)
        if not rows:
            return UpdateMetrics(num_samples=0, num_tokens=0, num_steps=0, metrics={})
        data = UpdateData(
            samples=rows,
            old=self.logprobs(rows)
            if objective.needs_trainer_logprobs
            else [row.logprobs for row in rows],
            reference=self.reference_logprobs(rows) if objective.needs_reference else None,
        )
        taken: list[dict[str, float]] = []
        for epoch in range(epochs):
            for chosen in self._minibatches(len(rows), epoch, epochs, minibatches):
                taken.append(self._policy_step(data, chosen, objective))
        self.update_count += 1
        lengths = [trim(row) for row in rows]
        keys = {key for metrics in taken for key in metrics}
        mean = {k: sum(m[k] for m in taken if k in m) / len(taken) for k in sorted(keys)}
        mean["update/padding_share"] = padding_share(
            lengths, micro_batches(lengths, self.config.batch_tokens)
        )
        mean["update/skipped_steps"] = float(self._stepper.skipped)
        return UpdateMetrics(
            num_samples=len(rows),
            num_tokens=sum(sum(row.mask) for row in rows),
            num_steps=len(taken),
            metrics=mean,
        )

    def logprobs(self, samples: Sequence[MaskedTokens]) -> Rows:
        """Return log-probabilities (nats, at the temperature) of trained tokens, 0.0 elsewhere."""
        return self._score_rows(samples, values=False)

    def values(self, samples: Sequence[MaskedTokens]) -> Rows:
        """Return the value before each trained token, 0.0 elsewhere; needs the value head."""
        return self._score_rows(samples, values=True)

    # -- frozen reference ---------------------------------------------------------------------

    @property
    def has_reference(self) -> bool:
        """Whether `freeze_reference` was called (or a checkpoint had one)."""
        return bool(self._reference)

    def freeze_reference(self) -> None:
        """Keep a copy of the trained parameters as the reference of the KL term."""
        self._reference = {name: p.detach().clone() for name, p in self._parameters.items()}

    def reference_logprobs(self, samples: Sequence[MaskedTokens]) -> Rows:
        """Return `logprobs` under the frozen reference."""
        if not self._reference:
            raise ConfigError("there is no frozen reference; call freeze_reference() first")
        with self._swapped(self._reference):
            return self.logprobs(samples)

    # -- persistence --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors of the learner: parameters, value head, moments, reference."""
        head = self.value_head.state_dict() if self.value_head else {}
        return {
            **{f"model/{k}": p.detach() for k, p in self._parameters.items()},
            **{f"value_head/{k}": v for k, v in head.items()},
            **{f"optim/{k}": v for k, v in self._stepper.tensors().items()},
            **{f"reference/{k}": v for k, v in self._reference.items()},
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned, in place; raises `DataError` if it does not fit."""
        parts: dict[str, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = value
        _copy_into(dict(self._parameters), parts.get("model", {}), "model")
        head = dict(self.value_head.named_parameters()) if self.value_head else {}
        _copy_into(head, parts.get("value_head", {}), "value head")
        self._stepper.load_tensors(parts.get("optim", {}))
        device = self._scorer.device
        self._reference = {k: v.to(device) for k, v in parts.get("reference", {}).items()}

    def save(self, folder: Path) -> None:
        """Write the complete training state; a crash midway leaves the previous one valid."""
        state = LearnerState(
            tensors_file=f"learner-{self.update_count}-{self.step_count}.safetensors",
            mode=self.config.trainable.mode,
            counters=self._stepper.counters(),
            update_count=self.update_count,
        )
        write_state(Path(folder), self.state_dict(), state)

    def load(self, folder: Path) -> None:
        """Continue exactly where `save` was called."""
        tensors, state = read_state(Path(folder))
        if state.mode != self.config.trainable.mode:
            raise DataError(
                f"{folder} was trained with trainable={state.mode!r}, this learner with "
                f"{self.config.trainable.mode!r}"
            )
        self.load_state_dict(tensors)
        self._stepper.load_counters(state.counters)
        self.update_count = state.update_count

    def export(self, folder: Path) -> None:
        """Write model and tokenizer for use elsewhere (Hugging Face layout, adapters merged)."""
        export_model(self.model, self.tokenizer, Path(folder))

    # -- inside -------------------------------------------------------------------------------

    def _make_value_head(self) -> nn.Linear:
        head = nn.Linear(
            self._scorer.hidden_size, 1, device=self._scorer.device, dtype=self._scorer.dtype
        )
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head

    def _batches(self, rows: Sequence[MaskedTokens]) -> Iterator[tuple[TokenBatch, list[int]]]:
        lengths = [trim(row) for row in rows]
        for group in micro_batches(lengths, self.config.batch_tokens):
            yield collate([rows[i] for i in group], self._scorer.device), group

    def _score_rows(self, samples: Sequence[MaskedTokens], *, values: bool) -> Rows:
        if values and self.value_head is None:
            raise ConfigError("values need a value head; set value_head=True in the learner")
        out: Rows = [[0.0] * len(sample.mask) for sample in samples]
        places = [i for i, sample in enumerate(samples) if trim(sample)]
        rows = [samples[i] for i in places]
        with torch.no_grad():
            for batch, group in self._batches(rows):
                scores = self._scorer.score(batch, self.value_head if values else None, False)
                found = scores.values if values else scores.logprobs
                assert found is not None
                for i, numbers in zip(group, found.tolist(), strict=True):
                    length = trim(rows[i])
                    out[places[i]][:length] = numbers[:length]
        return out

    def _minibatches(
        self, count: int, epoch: int, epochs: int, minibatches: int
    ) -> list[list[int]]:
        order = list(range(count))
        if minibatches > 1 or epochs > 1:
            derive_random(self.config.seed, "minibatch", self.update_count, epoch).shuffle(order)
        parts = min(minibatches, count)
        return [order[k::parts] for k in range(parts)]

    def _policy_step(
        self, data: UpdateData, chosen: Sequence[int], objective: Objective
    ) -> dict[str, float]:
        mine = [data.samples[i] for i in chosen]
        totals = BatchTotals.of(mine)
        head = self.value_head if objective.needs_values else None
        metrics: dict[str, float] = {}
        kl_gradient: list[Tensor] = []
        for batch, group in self._batches(mine):
            scores = self._scorer.score(batch, head, self.config.value_trunk == "detached")
            parts = objective(data.inputs([chosen[i] for i in group], batch, scores, totals))
            kl_gradient = self._backward(parts, kl_gradient)
            for key, value in parts.metrics.items():
                metrics[key] = metrics.get(key, 0.0) + float(value)
        if kl_gradient:
            metrics |= _separate_norms(self._parameters.values(), kl_gradient)
        metrics["update/gradient_norm"] = self._stepper.step()
        return metrics

    def _backward(self, parts: LossParts, kl_gradient: list[Tensor]) -> list[Tensor]:
        """Accumulate gradients; returns the KL term's own gradient where it is measured."""
        if parts.kl is None:
            torch.autograd.backward(parts.main)
            return kl_gradient
        if not self.config.measure_kl_gradient:
            torch.autograd.backward(parts.main + parts.kl)
            return kl_gradient
        parameters = list(self._parameters.values())
        mine = torch.autograd.grad(parts.kl, parameters, retain_graph=True, allow_unused=True)
        torch.autograd.backward(parts.main + parts.kl)
        filled = [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, mine, strict=True)
        ]
        if not kl_gradient:
            return filled
        return [a + b for a, b in zip(kl_gradient, filled, strict=True)]

    @contextlib.contextmanager
    def _swapped(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        kept = {name: p.data for name, p in self._parameters.items()}
        for name, parameter in self._parameters.items():
            parameter.data = tensors[name]
        try:
            yield
        finally:
            for name, parameter in self._parameters.items():
                parameter.data = kept[name]


def _usable(rows: Sequence[Any]) -> list[Any]:
    """Return the rows with a trained token, checked. Any: samples or SFT examples alike."""
    for row in rows:
        check_row(row)
    return [row for row in rows if any(row.mask)]


def _separate_norms(
    parameters: Iterable[nn.Parameter], kl_gradient: Sequence[Tensor]
) -> dict[str, float]:
    """Return the gradient norms of the KL term and of everything else."""
    kl, rest = 0.0, 0.0
    for parameter, mine in zip(parameters, kl_gradient, strict=True):
        whole = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        kl += float(mine.square().sum())
        rest += float((whole - mine).square().sum())
    return {"kl/gradient_norm": kl**0.5, "policy/gradient_norm": rest**0.5}


def _copy_into(targets: Mapping[str, nn.Parameter], found: Mapping[str, Tensor], what: str) -> None:
    if targets.keys() != found.keys():
        odd = sorted(targets.keys() ^ found.keys())
        raise DataError(f"the saved {what} does not fit: {len(odd)} names differ, e.g. {odd[:3]}")
    for name, parameter in targets.items():
        if parameter.shape != found[name].shape:
            raise DataError(
                f"the saved {what} does not fit: {name} has shape {tuple(found[name].shape)}, "
                f"expected {tuple(parameter.shape)}"
            )
    with torch.no_grad():
        for name, parameter in targets.items():
            parameter.copy_(found[name])
