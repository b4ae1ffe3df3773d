"""Measure the engine against transformers `generate` on the same multi-turn prompts.

    python -m benchmarks.engine --json [--model tiny|smollm2] [--threads 2]

Each episode starts with a 300-token prompt; every turn adds 30 tokens of observation and 12 new
tokens. Both sides must produce exactly the same number of tokens, greedily. `generate` reads the
whole context again each turn, as its interface does; the engine keeps its cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from dreamgym.llm.base import GenerateRequest, Generation
from dreamgym.llm.engine import KVEngine
from dreamgym.seeds import derive_random

FIRST_TOKENS, OBSERVATION_TOKENS, NEW_TOKENS = 300, 30, 12
Answer = Callable[[list[list[int]]], list[list[int]]]


class Timing(NamedTuple):
    """One side's result: seconds for all turns, and the ids of each episode."""

    seconds: float
    contexts: list[list[int]]


def tiny_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=1,
        intermediate_size=512,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


def smollm2_model() -> Any:
    from dreamgym.llm.models import load_model, smollm2_folder

    return load_model(smollm2_folder()).model


def random_ids(vocab_size: int, length: int, *name: object) -> list[int]:
    random = derive_random("benchmark", *name)
    return [random.randrange(5, vocab_size) for _ in range(length)]


def play(answer: Answer, *, batch: int, turns: int, vocab_size: int) -> Timing:
    """Run the episodes; both sides see the same prompts and observations."""
    contexts = [random_ids(vocab_size, FIRST_TOKENS, "first", i) for i in range(batch)]
    begin = time.perf_counter()
    for turn in range(turns):
        replies = answer(contexts)
        contexts = [
            [*context, *reply, *random_ids(vocab_size, OBSERVATION_TOKENS, turn, index)]
            for index, (context, reply) in enumerate(zip(contexts, replies, strict=True))
        ]
    return Timing(time.perf_counter() - begin, contexts)


def with_engine(engine: KVEngine) -> Answer:
    async def turn(contexts: Sequence[Sequence[int]]) -> list[Generation]:
        requests = [
            GenerateRequest(
                session=str(index),
                token_ids=context,
                max_new_tokens=NEW_TOKENS,
                temperature=0.0,
                seed=0,
                stop_ids=frozenset(),
            )
            for index, context in enumerate(contexts)
        ]
        return list(await asyncio.gather(*(engine.generate(item) for item in requests)))

    return lambda contexts: [list(item.token_ids) for item in asyncio.run(turn(contexts))]


def with_transformers(model: Any) -> Answer:
    model.generation_config.eos_token_id = None  # equal token counts on both sides
    model.generation_config.pad_token_id = 0

    def answer(contexts: list[list[int]]) -> list[list[int]]:
        ids = torch.tensor(contexts)
        with torch.inference_mode():
            output = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=NEW_TOKENS,
                max_new_tokens=NEW_TOKENS,
            )
        replies: list[list[int]] = output[:, ids.shape[1] :].tolist()
        return replies

    return answer


def compare(model: Any, *, batch: int, turns: int) -> dict[str, float | int]:
    """Return tokens per second of both sides and how often their greedy ids agree."""
    vocab_size = model.config.vocab_size
    engine = KVEngine(model)
    theirs, ours = with_transformers(model), with_engine(engine)
    for warm_up in (theirs, ours):
        warm_up([random_ids(vocab_size, 8, "warm", 0)])
    engine.set_version(1)
    their_timing = play(theirs, batch=batch, turns=turns, vocab_size=vocab_size)
    our_timing = play(ours, batch=batch, turns=turns, vocab_size=vocab_size)
    new_tokens = batch * turns * NEW_TOKENS
    same = sum(
        left == right
        for left, right in zip(their_timing.contexts, our_timing.contexts, strict=True)
    )
    return {
        "batch": batch,
        "turns": turns,
        "new_tokens": new_tokens,
        "engine_tokens_per_second": round(new_tokens / our_timing.seconds, 1),
        "transformers_tokens_per_second": round(new_tokens / their_timing.seconds, 1),
        "ratio": round(their_timing.seconds / our_timing.seconds, 2),
        "identical_episodes": same,
    }


def decode_step_ms(model: Any, *, batch: int, steps: int = 40) -> float:
    """Return milliseconds per decoding step on 100-token contexts, sampling included."""
    engine = KVEngine(model)
    vocab_size = model.config.vocab_size

    def seconds(count: int) -> float:
        engine.set_version(engine.version + 1)
        requests = [
            GenerateRequest(
                session=str(index),
                token_ids=random_ids(vocab_size, 100, "step", index),
                max_new_tokens=count,
                temperature=1.0,
                seed=index,
                stop_ids=frozenset(),
            )
            for index in range(batch)
        ]
        begin = time.perf_counter()
        engine.run_batch(requests)
        return time.perf_counter() - begin

    seconds(2)
    return round(1000 * (min(seconds(steps + 1), seconds(steps + 1)) - seconds(1)) / steps, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="tiny")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    is_tiny = arguments.model == "tiny"
    model = tiny_model() if is_tiny else smollm2_model()
    # SmolLM2 is two orders of magnitude slower: fewer episodes and turns, same shape.
    sizes = ((1, 6), (8, 6), (32, 6)) if is_tiny else ((1, 3), (4, 3))
    result: dict[str, object] = {
        "model": arguments.model,
        "threads": arguments.threads,
        "runs": [compare(model, batch=batch, turns=turns) for batch, turns in sizes],
    }
    if is_tiny:
        result["decode_step_ms_batch_64"] = decode_step_ms(model, batch=64)
    if arguments.json:
        print(json.dumps(result))
        return
    for key, value in result.items():
        for line in value if isinstance(value, list) else [value]:
            print(f"{key}: {line}")


if __name__ == "__main__":
    main()
