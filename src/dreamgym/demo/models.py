"""The models of the demo: from scratch with one shared tokenizer, or pretrained."""

from __future__ import annotations

from typing import Any, Literal

from dreamgym.demo.context import DemoContext
from dreamgym.pipeline.models import MACROS
from dreamgym.seeds import derive_seed

SAMPLED = 4
"""One in this many logged episodes is annotated for the tokenizer: phrases repeat."""


def new_models(ctx: DemoContext, role: Literal["agent", "experience"]) -> tuple[Any, Any]:
    """Return a fresh (model, tokenizer) for a role."""
    config = ctx.config.agent if role == "agent" else ctx.config.experience
    if role == "agent" and config.from_experience:
        return ctx.load_model("experience")
    if config.pretrained:
        from dreamgym.llm.models import load_model, smollm2_folder

        name = str(smollm2_folder()) if config.pretrained == "smollm2" else config.pretrained
        loaded = load_model(name)
        return loaded[0], loaded[1]
    from dreamgym.llm.tiny import build_model

    tokenizer = shared_tokenizer(ctx)
    model = build_model(
        tokenizer,
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        intermediate=config.intermediate,
        max_context=config.max_context,
        seed=derive_seed(ctx.config.seed, role) % 2**31,
    )
    return model, tokenizer


def shared_tokenizer(ctx: DemoContext) -> Any:
    """Return the tokenizer trained on the logged texts; built once per run."""
    path = ctx.run.path / "tokenizer"
    if path.exists():
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(path)
    from dreamgym.llm.tiny import build_tokenizer, entity_names

    texts = _texts(ctx)
    tokenizer = build_tokenizer(
        texts,
        vocab_size=ctx.config.experience.vocab_size,
        words=entity_names(texts),
        macros=MACROS,
    )
    tokenizer.save_pretrained(path)
    return tokenizer


def _texts(ctx: DemoContext) -> list[str]:
    from dreamgym.demo.logged import load_rollouts
    from dreamgym.dream.annotate import AnnotateConfig, Annotator, scenario_tasks
    from dreamgym.pipeline.fitting import tokenizer_texts

    rollouts = [*load_rollouts(ctx, "logs"), *load_rollouts(ctx, "demonstrations")]
    tasks = scenario_tasks(rollouts, ctx.reader)
    annotator = Annotator(
        ctx.reader, tasks, buffer=None, config=AnnotateConfig(negatives=1, relabel=0)
    )
    sample = rollouts[::SAMPLED]
    annotated = [example for rollout in sample for example in annotator.annotate(rollout)]
    return tokenizer_texts(annotated, rollouts)
