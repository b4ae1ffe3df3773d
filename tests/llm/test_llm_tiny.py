from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_worlds import texts, tokenizer
from transformers import AutoTokenizer

from dreamgym.errors import ConfigError
from dreamgym.llm.tiny import DEFAULT_MACROS, EMBEDDING_STD, build_model, build_tokenizer


def pieces(text: str) -> list[str]:
    tokens = tokenizer()
    return [tokens.decode([index]) for index in tokens(text)["input_ids"]]


@given(
    st.text() | st.lists(st.sampled_from(["drawer 1", "2", " ", "<act", "😀", "\n"])).map("".join)
)
@settings(max_examples=200, deadline=None)
def test_decoding_what_was_encoded_gives_the_text_back(text: str) -> None:
    tokens = tokenizer()
    assert tokens.decode(tokens(text)["input_ids"]) == text


def test_every_entity_of_the_texts_is_one_token() -> None:
    for entity in ("drawer 1", "drawer 12", "mug 3", "cabinet 10"):
        assert pieces(entity) == [entity]


def test_an_entity_is_not_found_inside_a_longer_number() -> None:
    found = pieces("a drawer 12 and a drawer 123")
    assert "drawer 12" in found
    assert "drawer 1" not in found
    assert "".join(found).endswith("drawer 123")
    assert found.count("drawer 12") == 1


def test_every_macro_is_one_token_anywhere() -> None:
    for macro in DEFAULT_MACROS:
        assert pieces(f"go{macro}mug 1").count(macro) == 1


def test_frequent_phrases_between_entities_become_one_token() -> None:
    assert "You arrive at " in pieces(texts()[0])


def test_given_words_are_one_token_where_they_stand_alone() -> None:
    tokens = build_tokenizer(texts(), vocab_size=640, words=["teapot", "fridge 7"])
    split = [tokens.decode([index]) for index in tokens("a teapot, teapots, fridge 7")["input_ids"]]
    assert split.count("teapot") == 1
    assert split[-1] == "fridge 7"
    assert "teapot" not in pieces("a teapot")


def test_special_tokens_are_distinct_and_pad_is_not_eos() -> None:
    tokens = tokenizer()
    names = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    assert tokens.convert_tokens_to_ids(names) == [0, 1, 2, 3, 4]
    assert (tokens.pad_token, tokens.eos_token) == ("<|pad|>", "<|end|>")


def test_a_saved_tokenizer_loads_as_a_hugging_face_folder(tmp_path: Path) -> None:
    tokenizer().save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = texts()[3] + "<|end|>é😀"
    chat = [{"role": "user", "content": "look"}]
    assert loaded(text)["input_ids"] == tokenizer()(text)["input_ids"]
    assert loaded.decode(loaded(text)["input_ids"]) == text
    assert loaded.pad_token == "<|pad|>"
    assert loaded.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|user|>look<|end|><|assistant|>"
    )


def test_a_vocabulary_too_small_for_the_guarantees_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"vocab_size must be at least \d+ .* got 280"):
        build_tokenizer(texts(), vocab_size=280)


def test_an_empty_macro_is_refused() -> None:
    with pytest.raises(ConfigError, match="macros must not contain an empty string"):
        build_tokenizer(texts(), macros=["<a>", ""])


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, second, other = (build_model(tokenizer(), seed=seed, layers=1) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.model.embed_tokens.weight, second.model.embed_tokens.weight)
    assert torch.equal(
        first.model.layers[0].mlp.up_proj.weight, second.model.layers[0].mlp.up_proj.weight
    )
    assert not torch.equal(first.model.embed_tokens.weight, other.model.embed_tokens.weight)


def test_entities_start_near_their_relatives() -> None:
    tokens = tokenizer()
    model = build_model(tokens, seed=0)
    assert model.lm_head.weight is model.model.embed_tokens.weight

    def vector(entity: str) -> torch.Tensor:
        (index,) = tokens(entity)["input_ids"]
        row: torch.Tensor = model.model.embed_tokens.weight[index].detach()
        return row

    def likeness(left: str, right: str) -> float:
        return float(torch.cosine_similarity(vector(left), vector(right), dim=0))

    assert likeness("drawer 3", "drawer 7") > 0.25
    assert likeness("drawer 3", "cabinet 3") > 0.25
    assert abs(likeness("drawer 3", "cabinet 7")) < 0.25
    assert vector("drawer 3").std().item() == pytest.approx(EMBEDDING_STD, rel=0.3)


def test_head_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="hidden=100, heads=3"):
        build_model(tokenizer(), hidden=100, heads=3)
