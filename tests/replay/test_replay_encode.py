from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_fakes import TableEncoder

from dreamgym.errors import ConfigError, ModelError
from dreamgym.replay.encode import HashedNgramEncoder, checked_encode
from dreamgym.replay.sentence import SentenceEncoder
from dreamgym.replay.text import content_words, embedding_text, similarity


@given(st.lists(st.text(max_size=40), max_size=6))
def test_rows_have_length_one_or_zero_whatever_the_text(texts: list[str]) -> None:
    vectors = HashedNgramEncoder(dim=64).encode(texts)
    assert vectors.shape == (len(texts), 64)
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(vectors, axis=1)
    for text, length in zip(texts, lengths, strict=True):
        # every n-gram may cancel against another one, but only blank text must be zero
        assert length == pytest.approx(1.0, abs=1e-5) or length == 0.0
        assert text.strip() or length == 0.0


@given(st.lists(st.text(max_size=30), min_size=1, max_size=8))
def test_a_batch_equals_one_by_one(texts: list[str]) -> None:
    together = HashedNgramEncoder(dim=64, cache=0).encode(texts)
    single = HashedNgramEncoder(dim=64, cache=2)
    for row, text in enumerate(texts):
        assert np.array_equal(together[row], single.encode([text])[0])


def test_alike_texts_are_nearer_than_different_ones() -> None:
    encoder = HashedNgramEncoder()
    a, b, c = encoder.encode(["open drawer 1", "Open  drawer 2", "heat apple 1 with microwave 1"])
    assert a @ b > 0.7 > 0.3 > a @ c


def test_vectors_are_equal_in_another_process() -> None:
    code = (
        "import json; from dreamgym.replay.encode import HashedNgramEncoder as E; "
        "print(json.dumps(E(dim=32).encode(['take mug 1', 'käse ☕'])[:, :8].tolist()))"
    )
    command = [sys.executable, "-c", code]
    environment = {"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    here = HashedNgramEncoder(dim=32).encode(["take mug 1", "käse ☕"])[:, :8]
    assert json.loads(answer.stdout) == here.tolist()


def test_cached_vectors_cannot_be_changed_through_a_result() -> None:
    encoder = HashedNgramEncoder(dim=16)
    first = encoder.encode(["take mug 1"])
    before = first.copy()
    first[:] = 9.0
    assert np.array_equal(encoder.encode(["take mug 1"]), before)


@pytest.mark.parametrize("bad", [{"dim": 0}, {"ngram": (3, 2)}, {"ngram": (0, 2)}])
def test_impossible_encoder_options_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        HashedNgramEncoder(**bad)  # type: ignore[arg-type]


def test_emb_05_an_encoder_that_returns_nan_is_a_fault() -> None:
    encoder = TableEncoder({"a": [float("nan"), 1.0]}, 2)
    with pytest.raises(ModelError, match="NaN"):
        checked_encode(encoder, ["a"])


def test_an_encoder_of_the_wrong_shape_is_a_fault() -> None:
    encoder = TableEncoder({"a": [1.0, 0.0]}, 2)
    encoder.dim = 3
    encoder.table = {"a": [1.0, 0.0]}
    with pytest.raises(ModelError, match="failed"):
        checked_encode(encoder, ["a", "unknown"])


def test_buf_11_blobs_and_long_texts_are_cut_with_a_marker() -> None:
    page = f"<img src=data:image/png;base64,{'QUJD' * 500}> Total Commits " + "word " * 1000
    text = embedding_text(page, 300)
    assert "base64" not in text and "[data]" in text
    assert "characters cut]" in text and len(text) < 350
    assert embedding_text("short  text", 300) == "short  text"


def test_content_words_see_through_wording_but_not_through_meaning() -> None:
    words = content_words("put two hot mugs in the fridge.")
    assert words == {"put", "two", "hot", "mug", "fridge"}
    assert similarity(words, content_words("place two hot mug into fridge")) == 1.0
    assert similarity(words, content_words("put two mugs in the fridge.")) < 0.9
    assert similarity(frozenset(), frozenset()) == 0.0


def test_a_sentence_encoder_pools_a_local_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra 'train' is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "open", "drawer", "mug"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
    config = BertConfig(
        vocab_size=5, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    folder = tmp_path / "tiny"
    fast.save_pretrained(folder)
    BertModel(config).save_pretrained(folder)
    encoder = SentenceEncoder(folder, max_tokens=8)
    vectors = encoder.encode(["open drawer", "", "mug", "open drawer drawer drawer mug mug"])
    assert vectors.shape == (4, 16)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1, 1], abs=1e-5)
    # padding must not change a text's vector
    assert encoder.encode(["open drawer"])[0] == pytest.approx(vectors[0], abs=1e-5)
    with pytest.raises(ConfigError, match="nowhere"):
        SentenceEncoder(tmp_path / "nowhere")
