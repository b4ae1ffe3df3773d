"""`dreamgym clone`: a warm start from logged successes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dreamgym.clone import augmented, demonstrations
from dreamgym.errors import DataError
from dreamgym.llm.render import Renderer
from dreamgym.pipeline.logs import Logs
from dreamgym.pipeline.models import (
    agent_prompt,
    log_texts,
    make_learner,
    save_trained,
    start_model,
)
from dreamgym.pipeline.settings import ModelSettings, Settings
from dreamgym.progress import progress
from dreamgym.rl.sft import Provider, SFTConfig, SftExample, fit_sft
from dreamgym.runs import RunFolder
from dreamgym.seeds import derive_random, derive_seed
from dreamgym.types import Rollout


class CloneSettings(Settings, frozen=True, kw_only=True):
    """What to clone into what."""

    logs: tuple[str, ...] = ()
    """Record files; only successful episodes are imitated."""
    model: ModelSettings = ModelSettings()
    out: str = "runs/agent"
    seed: int = 0
    episodes: int | None = None
    """At most so many demonstrations, drawn at random; None takes all."""
    policy: str = ""
    """Imitate only episodes of this policy; empty: of any."""
    steps: int = 120
    """Optimiser steps."""
    batch_tokens: int = 4096
    """Tokens per optimiser step."""
    renumber: float = 0.0
    """Chance that the numbers of entities in an episode are permuted (anew in each epoch)."""
    rename: float = 0.0
    """Chance that the names of things in an episode are exchanged."""


def chosen_demonstrations(settings: CloneSettings, logs: Logs) -> list[Rollout]:
    """Return the successes to imitate; raises `DataError` when there are none."""
    wanted = [r for r in logs.rollouts if r.success and settings.policy in ("", r.policy)]
    if not wanted:
        names = ", ".join(sorted({r.policy for r in logs.rollouts}))
        raise DataError(
            f"no successful episode to imitate among {len(logs.rollouts)} (policies: {names}); "
            "log an expert, e.g. `dreamgym collect --policy searcher`"
        )
    derive_random(settings.seed, "demonstrations").shuffle(wanted)
    return wanted[: settings.episodes]


def clone_policy(settings: CloneSettings, logs: Logs, run: RunFolder) -> dict[str, Any]:
    """Train the model on the demonstrations and save it in the run folder's `model/`."""
    chosen = chosen_demonstrations(settings, logs)
    model, tokenizer = start_model(
        settings.model, lambda: log_texts(logs.rollouts), seed=derive_seed(settings.seed, "agent")
    )
    learner = make_learner(model, tokenizer, settings.model.learning)
    config = SFTConfig(
        steps=settings.steps,
        batch_tokens=settings.batch_tokens,
        learning_rate=settings.model.learning.learning_rate,
        warmup_steps=min(10, settings.steps // 4),
        seed=derive_seed(settings.seed, "clone"),
    )
    with progress("cloning demonstrations", settings.steps) as bar:
        result = fit_sft(
            learner,
            _examples(settings, chosen, tokenizer),
            config,
            progress=lambda step, loss: bar.advance(1, f"loss {loss:.3f}"),
        )
    save_trained(learner, run.path / "model")
    return {
        "loss": result.losses[-1] if result.losses else None,
        "episodes": len(chosen),
        "transitions": logs.num_transitions,
        "tokens": result.tokens,
    }


def _examples(settings: CloneSettings, chosen: Sequence[Rollout], tokenizer: Any) -> Provider:
    """Return the examples of an epoch: the same ones, or freshly renamed ones."""
    prompt, renderer = agent_prompt(tokenizer), Renderer(tokenizer)
    if not settings.renumber and not settings.rename:
        fixed = demonstrations(chosen, prompt, renderer)
        return lambda epoch: fixed

    def epoch_examples(epoch: int) -> list[SftExample]:
        changed = [
            augmented(
                rollout,
                derive_random(settings.seed, "augment", epoch, rollout.id),
                renumber=settings.renumber,
                rename=settings.rename,
            )
            for rollout in chosen
        ]
        return demonstrations(changed, prompt, renderer)

    return epoch_examples
