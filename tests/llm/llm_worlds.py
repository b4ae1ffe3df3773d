"""A small text world, tokenizer and models that the tests of this folder share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dreamgym.llm.base import GenerateRequest
from dreamgym.llm.tiny import build_model, build_tokenizer
from dreamgym.seeds import derive_random

CHATML = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content']"
    " + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
"""A template that, like ChatML, writes a newline after the end of a turn."""
DROPS_THINKING = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if loop.last %}{{ message['content'] }}"
    "{% else %}{{ message['content'].split('</think>')[-1] }}{% endif %}"
    "{{ '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""A template that removes the thinking of earlier turns."""


@functools.cache
def texts() -> tuple[str, ...]:
    random = derive_random("llm test texts")
    return tuple(
        f"You arrive at drawer {random.randint(1, 20)}. On the drawer {random.randint(1, 20)}, "
        f"you see a mug {random.randint(1, 3)}, and a cabinet {random.randint(1, 12)}.\n"
        f"<think>it is not here</think><action>go to cabinet {random.randint(1, 12)}</action>"
        for _ in range(200)
    )


@functools.cache
def tokenizer() -> Any:
    return build_tokenizer(texts(), vocab_size=640)


def templated(template: str) -> Any:
    own = build_tokenizer(texts(), vocab_size=640)
    own.chat_template = template
    return own


def small_model(kv_heads: int = 1, seed: int = 3) -> Any:
    """Return a model with weights large enough for its predictions to depend on the context."""
    model = build_model(
        tokenizer(), hidden=64, layers=2, intermediate=96, kv_heads=kv_heads, seed=seed
    )
    return roughened(model)


def roughened(model: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.08)
    return model.eval()


def random_context(name: object, length: int, vocab_size: int = 300) -> list[int]:
    random = derive_random("context", name)
    return [random.randrange(5, vocab_size) for _ in range(length)]


def request(
    context: Sequence[int],
    *,
    session: str = "s",
    count: int = 8,
    temperature: float = 1.0,
    seed: int = 0,
    stop_ids: frozenset[int] = frozenset(),
) -> GenerateRequest:
    return GenerateRequest(
        session=session,
        token_ids=context,
        max_new_tokens=count,
        temperature=temperature,
        seed=seed,
        stop_ids=stop_ids,
    )


def reference_logprobs(
    model: Any, context: Sequence[int], ids: Sequence[int], temperature: float
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return what the Hugging Face forward pass says of the sampled ids."""
    with torch.no_grad():
        logits = model(torch.tensor([[*context, *ids]])).logits[0, len(context) - 1 : -1]
    logprobs = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    picked: np.ndarray[Any, np.dtype[np.float32]] = logprobs.gather(
        1, torch.tensor(list(ids))[:, None]
    )[:, 0].numpy()
    return picked
