from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from llm_worlds import random_context, reference_logprobs, request, roughened, small_model
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from dreamgym.errors import ConfigError, ModelError
from dreamgym.llm.base import GenerateRequest, Generation, TokenEngine
from dreamgym.llm.engine import KVEngine, make_engine
from dreamgym.llm.hf_engine import HFEngine


def generate(engine: TokenEngine, *requests: GenerateRequest) -> list[Generation]:
    async def together() -> list[Generation]:
        return list(await asyncio.gather(*(engine.generate(item) for item in requests)))

    return asyncio.run(together())


def assert_matches(model: Any, item: GenerateRequest, generation: Generation) -> None:
    expected = reference_logprobs(model, item.token_ids, generation.token_ids, item.temperature)
    np.testing.assert_allclose(generation.logprobs, expected, atol=1e-4)


def play(model: Any, engine: TokenEngine, *, sessions: int, turns: int) -> None:
    """Play ragged multi-turn chats, one of them rewritten each turn, against the forward pass."""
    contexts = {f"s{i}": random_context(i, 3 + 17 * i) for i in range(sessions)}
    for turn in range(turns):
        items = [
            request(
                context,
                session=session,
                count=3 + index % 4,
                temperature=(0.0, 1.0, 0.7)[index % 3],
                seed=turn * 100 + index,
                stop_ids=frozenset(range(20, 120)),
            )
            for index, (session, context) in enumerate(contexts.items())
        ]
        for item, generation in zip(items, generate(engine, *items), strict=True):
            assert_matches(model, item, generation)
            suffix = random_context((item.session, turn), 5 + turn)
            contexts[item.session] = [*item.token_ids, *generation.token_ids, *suffix]
        rewritten = f"s{turn}"
        contexts[rewritten] = contexts[rewritten][:3] + random_context(("new", turn), 9)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_logprobs_match_the_forward_pass_over_ragged_turns(kv_heads: int) -> None:
    model = small_model(kv_heads)
    play(model, KVEngine(model, max_batch=4), sessions=7, turns=3)


def other_models() -> list[Any]:
    shape: dict[str, Any] = {
        "vocab_size": 500,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 256,
    }
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    return [
        LlamaForCausalLM(LlamaConfig(**shape, attention_bias=True, mlp_bias=True)),
        LlamaForCausalLM(LlamaConfig(**shape, rope_parameters=llama3, head_dim=16)),
        LlamaForCausalLM(LlamaConfig(**shape, rope_parameters=linear, tie_word_embeddings=True)),
        Qwen2ForCausalLM(Qwen2Config(**shape)),
    ]


@pytest.mark.parametrize("index", range(4))
def test_other_llama_like_models_match_their_forward_pass(index: int) -> None:
    model = roughened(other_models()[index])
    play(model, KVEngine(model), sessions=4, turns=2)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_engine_reads_lora_adapters_with_the_weights() -> None:
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    model = get_peft_model(small_model(), adapter).eval()
    play(model, KVEngine(model), sessions=3, turns=2)


def test_a_prompt_longer_than_one_prefill_pass_matches_the_forward_pass() -> None:
    model = small_model()
    item = request(random_context("long", 2040), count=6)
    (generation,) = generate(KVEngine(model, max_context=4096), item)
    assert_matches(model, item, generation)


def test_a_continued_session_reads_only_what_is_new() -> None:
    engine = KVEngine(small_model())
    context = random_context("a", 100)
    (first,) = generate(engine, request(context))
    assert engine.prefilled_tokens == 100
    longer = [*context, *first.token_ids, *random_context("b", 30)]
    (second,) = generate(engine, request(longer))
    assert engine.prefilled_tokens == 100 + 30 + 1  # the last sampled token was never read
    generate(engine, request([*longer, *second.token_ids[:4], 7], count=1))
    assert engine.prefilled_tokens == 100 + 31 + 1


def test_one_session_with_a_static_prefix_and_changing_suffix_reuses_the_prefix() -> None:
    engine = KVEngine(small_model())
    prefix = random_context("prefix", 80)
    for turn in range(3):
        generate(engine, request([*prefix, *random_context(turn, 10)]))
    assert engine.prefilled_tokens == 80 + 3 * 10


def test_a_group_with_the_same_prompt_reads_it_once() -> None:
    model = small_model()
    engine = KVEngine(model)
    prompt = random_context("group", 90)
    items = [request(prompt, session=f"g{i}", seed=i) for i in range(8)]
    items.append(request([*prompt[:60], *random_context("x", 20)], session="x"))
    results = generate(engine, *items)
    assert engine.prefilled_tokens == 90 + 7 + 20
    for item, generation in zip(items, results, strict=True):
        assert_matches(model, item, generation)
    assert len({generation.token_ids for generation in results}) > 5


def test_concurrent_requests_of_one_session_do_not_disturb_each_other() -> None:
    model = small_model()
    engine = KVEngine(model)
    prefix = random_context("shared", 50)
    items = [request([*prefix, *random_context(i, 5 + i)], seed=i) for i in range(5)]
    for _ in range(2):
        for item, generation in zip(items, generate(engine, *items), strict=True):
            assert_matches(model, item, generation)
    engine.release("s")
    assert not engine.pool.lengths.any()


def test_sampled_ids_depend_on_the_seed_only() -> None:
    engine = KVEngine(small_model())
    context = random_context("a", 40)
    first, again, other = (
        generate(engine, request(context, session=str(i), seed=seed, count=20))[0]
        for i, seed in enumerate((5, 5, 6))
    )
    assert first.token_ids == again.token_ids
    assert first.token_ids != other.token_ids


def test_det_06_batch_composition_changes_no_sampled_id_and_logprobs_within_tolerance() -> None:
    model = small_model(2)
    items = [
        request(random_context(i, 5 + 9 * i), session=str(i), seed=i, count=6 + i)
        for i in range(12)
    ]
    together = generate(KVEngine(model), *items)
    alone = [generate(KVEngine(model), item)[0] for item in items]
    small = generate(KVEngine(model, max_batch=5), *items)
    for left, right, third in zip(together, alone, small, strict=True):
        assert left.token_ids == right.token_ids == third.token_ids
        np.testing.assert_allclose(left.logprobs, right.logprobs, atol=1e-5)


def test_temperature_zero_is_greedy_with_logprobs_of_the_plain_distribution() -> None:
    model = small_model()
    item = request(random_context("g", 30), temperature=0.0, count=5)
    (generation,) = generate(KVEngine(model), item)
    ids = list(item.token_ids)
    with torch.no_grad():
        for _ in range(5):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert list(generation.token_ids) == ids[30:]
    assert_matches(model, item, generation)


def test_a_stop_id_ends_the_sequence_and_is_part_of_it() -> None:
    engine = KVEngine(small_model())
    context = random_context("a", 20)
    (free,) = generate(engine, request(context, count=10))
    stop = free.token_ids[4]
    first = free.token_ids.index(stop)
    (stopped,) = generate(engine, request(context, count=10, stop_ids=frozenset({stop})))
    assert stopped.token_ids == free.token_ids[: first + 1]
    assert (stopped.finish, free.finish) == ("stop", "length")


def test_ctx_01_new_tokens_are_capped_at_the_window_and_siblings_continue() -> None:
    engine = KVEngine(small_model(), max_context=64)
    nearly, full, over, short = generate(
        engine,
        request(random_context(0, 60), session="0", count=20),
        request(random_context(1, 64), session="1", count=20),
        request(random_context(2, 99), session="2", count=20),
        request(random_context(3, 10), session="3", count=20),
    )
    assert (len(nearly.token_ids), nearly.finish) == (4, "length")
    assert (full.token_ids, full.finish) == ((), "length")
    assert (over.token_ids, over.finish) == ((), "length")
    assert len(short.token_ids) == 20


def test_sync_takes_over_new_weights_and_drops_stale_caches() -> None:
    model = small_model()
    engine = KVEngine(model)
    item = request(random_context("a", 50))
    (old,) = generate(engine, item)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    (unsynced,) = generate(engine, item)
    # A snapshot: half-finished updates never leak in.
    assert unsynced.token_ids == old.token_ids
    np.testing.assert_allclose(unsynced.logprobs, old.logprobs, atol=1e-5)
    engine.sync()
    (new,) = generate(engine, item)
    assert (old.version, new.version) == (0, 1)
    assert_matches(model, item, new)
    assert new.logprobs != old.logprobs


def test_set_version_drops_all_caches() -> None:
    engine = KVEngine(small_model())
    item = request(random_context("a", 50))
    generate(engine, item)
    engine.set_version(7)
    (generation,) = generate(engine, item)
    assert generation.version == 7
    assert engine.prefilled_tokens == 100


def test_least_recently_used_sessions_give_way() -> None:
    model = small_model()
    engine = KVEngine(model, max_batch=2, max_sessions=2)
    contexts = {name: random_context(name, 40) for name in "abc"}
    for name in "abac":
        generate(engine, request(contexts[name], session=name, count=1))
    assert engine.prefilled_tokens == 40 + 40 + 1 + 40
    generate(engine, request(contexts["a"], session="a", count=1))
    assert engine.prefilled_tokens == 121 + 1
    item = request(contexts["b"], session="b", count=1)
    assert_matches(model, item, generate(engine, item)[0])
    assert engine.prefilled_tokens == 122 + 40


def test_the_cache_stays_within_its_memory_bound() -> None:
    model = small_model()
    bound = 3 * 300 * 2 * 2 * 16 * 4  # three rows of 300 tokens
    engine = KVEngine(model, max_batch=8, cache_bytes=bound)
    items = [request(random_context(i, 200), session=str(i), seed=i) for i in range(8)]
    for item, generation in zip(items, generate(engine, *items), strict=True):
        assert_matches(model, item, generation)
    assert 0 < engine.pool.num_bytes <= bound


def test_a_released_session_is_read_again() -> None:
    engine = KVEngine(small_model())
    item = request(random_context("a", 30))
    generate(engine, item)
    engine.release("s")
    engine.release("never seen")
    generate(engine, item)
    assert engine.prefilled_tokens == 60


def test_a_diverged_model_is_a_fault_and_leaves_no_trace() -> None:
    model = small_model()
    engine = KVEngine(model)
    weight = model.model.layers[0].mlp.up_proj.weight
    healthy = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(float("nan"))
    engine.sync()
    item = request(random_context("a", 30))
    with pytest.raises(ModelError, match="diverged"):
        generate(engine, item)
    with torch.no_grad():
        weight.copy_(healthy)
    engine.sync()
    assert_matches(model, item, generate(engine, item)[0])


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (request([]), "token_ids is empty"),
        (request([5, 10**6]), r"token ids must be in \[0, \d+\); got 5..1000000"),
        (request([-1]), "token ids must be in"),
        (request([5], count=0), "max_new_tokens must be at least 1; got 0"),
        (request([5], temperature=-1.0), "temperature must be 0 or more; got -1.0"),
        (request([5], temperature=float("nan")), "temperature must be 0 or more; got nan"),
    ],
)
def test_senseless_requests_are_refused_in_one_sentence(
    item: GenerateRequest, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        generate(KVEngine(small_model()), item)


def test_other_architectures_fall_back_to_their_own_forward_pass() -> None:
    config = GPT2Config(vocab_size=500, n_embd=32, n_layer=2, n_head=2, n_positions=128)
    model = roughened(GPT2LMHeadModel(config))
    engine = make_engine(model)
    assert isinstance(engine, HFEngine)
    assert engine.max_context == 128
    play(model, engine, sessions=4, turns=2)
    with pytest.raises(ConfigError, match="model type 'gpt2'"):
        KVEngine(model)


def test_both_engines_sample_the_same_ids() -> None:
    model = small_model()
    assert isinstance(make_engine(model), KVEngine)
    items = [request(random_context(i, 6 + 5 * i), session=str(i), seed=i) for i in range(6)]
    pairs: Sequence[tuple[Generation, Generation]] = list(
        zip(generate(KVEngine(model), *items), generate(HFEngine(model), *items), strict=True)
    )
    for ours, theirs in pairs:
        assert ours.token_ids == theirs.token_ids
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU has no bfloat16 kernels"
)
def test_prepacked_bfloat16_linears_stay_close_to_float32() -> None:
    model = small_model()
    item = request(random_context("a", 30), temperature=0.0, count=1)
    (exact,) = generate(KVEngine(model), item)
    (rounded,) = generate(KVEngine(model, precision="bfloat16"), item)
    np.testing.assert_allclose(exact.logprobs, rounded.logprobs, atol=0.1)
