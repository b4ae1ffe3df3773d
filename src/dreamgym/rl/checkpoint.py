"""Learner state on disk: one safetensors file, and a JSON file that makes it valid.

The JSON is written last, by an atomic rename, and names its tensor file, so a crash at any moment
leaves the previous state readable.  No pickle.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from dreamgym.errors import DataError, MissingExtra, StoreError

HEADER = "learner.json"


class LearnerState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything of a learner that is not a tensor."""

    tensors_file: str
    mode: str
    counters: dict[str, int]
    update_count: int
    version: int = 1


def write_state(folder: Path, tensors: Mapping[str, Tensor], state: LearnerState) -> None:
    """Write a state into `folder`; an older state there stays valid until the last moment."""
    save_file = _safetensors("save_file")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / state.tensors_file
    partial = target.with_suffix(".partial")
    try:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, str(partial))
        _sync(partial)
        os.replace(partial, target)
        header = folder / f"{HEADER}.partial"
        header.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
        _sync(header)
        os.replace(header, folder / HEADER)
    except OSError as error:
        raise StoreError(f"could not write the learner's state to {folder}: {error}") from error
    for old in folder.glob("learner-*.safetensors"):
        if old != target:
            old.unlink(missing_ok=True)


def read_state(folder: Path) -> tuple[dict[str, Tensor], LearnerState]:
    """Read the state in `folder`; raises `DataError` if there is none or it is damaged."""
    load_file = _safetensors("load_file")
    header = folder / HEADER
    if not header.is_file():
        raise DataError(f"{folder} holds no learner state ({HEADER} is missing)")
    try:
        state = msgspec.json.decode(header.read_bytes(), type=LearnerState)
    except msgspec.DecodeError as error:
        raise DataError(f"{header} is not a learner state: {error}") from error
    path = folder / Path(state.tensors_file).name
    if not path.is_file():
        raise DataError(f"{header} names {path.name}, which is missing from {folder}")
    try:
        tensors: dict[str, Tensor] = load_file(str(path))
    except Exception as error:  # safetensors raises its own untyped error for damaged files
        raise DataError(f"{path} is damaged: {error}") from error
    return tensors, state


def export_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write model and tokenizer in the Hugging Face layout, LoRA adapters merged into the weights.

    The model in memory keeps its adapters.
    """
    if hasattr(model, "merge_adapter"):
        model = copy.deepcopy(model).merge_and_unload()
    try:
        model.save_pretrained(folder, safe_serialization=True)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
    except OSError as error:
        raise StoreError(f"could not write the model to {folder}: {error}") from error


def _sync(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def _safetensors(name: str):  # type: ignore[no-untyped-def]
    try:
        from safetensors import torch as module
    except ImportError as error:
        raise MissingExtra("safetensors", "train") from error
    return getattr(module, name)
