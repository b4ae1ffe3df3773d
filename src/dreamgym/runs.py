"""Run folders: everything one run writes, in one place, resumable.

    runs/<name>/
        config.json     what was asked for, defaults filled in, secrets blanked
        versions.json   python, platform, packages, commit, seeds
        records/        JSONL record files
        metrics.jsonl   one line per `log` call
        stages.json     finished stages of a multi-stage run and their results
        checkpoints/    <name> is a link to the newest complete <name>.<number>
        summary.json    what came out
        lock            held while a process writes here

Readers (reports, dashboards) need no lock: every file is complete at any moment.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from dreamgym.config import changed_keys, dump_config
from dreamgym.errors import ConfigError, StoreError
from dreamgym.records import (
    RecordWriter,
    read_json,
    read_records,
    sync_folder,
    write_json_atomic,
)

PACKAGES = (
    *("dreamgym", "msgspec", "numpy", "rich", "torch", "transformers", "tokenizers"),
    *("safetensors", "peft", "trl", "scikit-learn", "openai"),
)


class RunFolder:
    """The folder of one run, locked while open; use as a context manager or call `close`.

    With a config the folder is created, or resumed if it holds the same config; a different one
    raises `ConfigError` naming the keys, unless `force` (then the new config replaces it).
    Without a config an existing run is opened as it is.
    """

    def __init__(
        self,
        path: str | Path,
        config: msgspec.Struct | Mapping[str, Any] | None = None,
        *,
        seeds: Mapping[str, int] | None = None,
        force: bool = False,
    ) -> None:
        self.path = Path(path)
        self.name = self.path.name
        self.is_resumed = (self.path / "config.json").exists()
        self._metrics: RecordWriter | None = None
        self._check_place(config is not None)
        (self.path / "records").mkdir(parents=True, exist_ok=True)
        (self.path / "checkpoints").mkdir(exist_ok=True)
        self._lock = _Lock(self.path / "lock")
        try:
            self.config = self._settle_config(config, force=force)
            self._write_versions(seeds or {})
            stages = self.path / "stages.json"
            self._stages: dict[str, Any] = read_json(stages) if stages.exists() else {}
        except BaseException:
            self._lock.release()
            raise

    def log(self, step: int, **metrics: float | int | str | bool | None) -> None:
        """Append metrics of a step; keys are paths such as `reward/mean`.

        NaN and infinities are stored as null and listed under `not_finite`, so that the file
        stays valid JSON and the event stays visible.
        """
        if self._metrics is None:
            self._metrics = RecordWriter(self.path / "metrics.jsonl", "metrics", {"run": self.name})
        bad = [k for k, v in metrics.items() if isinstance(v, float) and not math.isfinite(v)]
        row: dict[str, object] = {"step": step, "time": round(time.time(), 3), **metrics}
        row.update(dict.fromkeys(bad))
        if bad:
            row["not_finite"] = bad
        self._metrics.write(row)

    def metrics(self) -> list[dict[str, Any]]:
        """Return one merged row per (stage, step); a resumed run's later rows win."""
        path = self.path / "metrics.jsonl"
        return read_metrics(path) if path.exists() else []

    def writer(
        self, name: str, kind: str, provenance: Mapping[str, Any] | None = None
    ) -> RecordWriter:
        """Return a writer that appends to `records/<name>.jsonl`; the caller closes it."""
        return RecordWriter(self.record_path(name), kind, {"run": self.name, **(provenance or {})})

    def record_path(self, name: str) -> Path:
        """Return the path of a record file of this run."""
        return self.path / "records" / f"{_plain_name(name)}.jsonl"

    def stage_done(self, name: str) -> bool:
        """Return whether a stage was marked finished, in this process or an earlier one."""
        return name in self._stages

    def stage_result(self, name: str) -> Any:  # whatever JSON was stored
        """Return what `mark_stage` stored; raises `ConfigError` for an unfinished stage."""
        if name not in self._stages:
            raise ConfigError(f"stage {name!r} of run {self.name!r} is not finished; run it first")
        return self._stages[name]

    def mark_stage(self, name: str, result: object = None) -> None:
        """Mark a stage finished, with a JSON-able result."""
        stages = {**self._stages, name: msgspec.to_builtins(result)}
        write_json_atomic(self.path / "stages.json", stages)
        self._stages = stages

    def write_summary(self, summary: object) -> Path:
        """Write `summary.json` and return its path."""
        write_json_atomic(self.path / "summary.json", summary)
        return self.path / "summary.json"

    def save_checkpoint(
        self, name: str, save: Callable[[Path], object], state: Mapping[str, object]
    ) -> Path:
        """Write a checkpoint that appears complete or not at all; replaces one of that name.

        `save` fills the folder it is given; `state` is stored beside as `state.json`.
        """
        link = self.path / "checkpoints" / _plain_name(name)
        old = self._versions_of(link)
        final = link.with_name(f"{name}.{(old[-1][0] if old else 0) + 1:06d}")
        temporary = link.with_name(f".{name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            save(temporary)
            write_json_atomic(temporary / "state.json", state)
            _sync_tree(temporary)
            os.rename(temporary, final)
            _point(link, final.name)
        except OSError as error:
            raise StoreError(f"cannot write checkpoint {str(link)!r}: {error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for _, stale in old:
            shutil.rmtree(stale, ignore_errors=True)
        return link

    def load_checkpoint(
        self, name: str, load: Callable[[Path], object] | None = None
    ) -> dict[str, Any] | None:
        """Call `load` with the checkpoint's folder and return its state; None if there is none."""
        folder = self.path / "checkpoints" / _plain_name(name)
        if not (folder / "state.json").exists():
            return None
        state: dict[str, Any] = read_json(folder / "state.json")
        if load is not None:
            load(folder.resolve())
        return state

    def close(self) -> None:
        """Close files and give up the lock; calling it twice is fine."""
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_place(self, has_config: bool) -> None:
        if self.is_resumed:
            return
        if not has_config:
            raise ConfigError(f"{str(self.path)!r} is not a run folder (it has no config.json)")
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{str(self.path)!r} is a file; choose another run name")
        ours = {"lock", "records", "checkpoints"}  # all that a start killed at once leaves behind
        if self.path.exists() and {p.name for p in self.path.iterdir()} - ours:
            raise ConfigError(
                f"{str(self.path)!r} is not empty and is not a run folder; choose another run name"
            )

    def _settle_config(
        self, config: msgspec.Struct | Mapping[str, Any] | None, *, force: bool
    ) -> dict[str, Any]:
        path = self.path / "config.json"
        stored: dict[str, Any] = read_json(path) if self.is_resumed else {}
        if config is None:
            return stored
        # Through JSON, so that it compares equal to what is read back from disk.
        asked: dict[str, Any] = json.loads(json.dumps(dump_config(config)))
        keys = changed_keys(stored, asked) if self.is_resumed else []
        if keys and not force:
            raise ConfigError(
                f"run {self.name!r} was started with another config; different: {', '.join(keys)}. "
                "Resume with the same config, choose another name, or force it"
            )
        if keys or not self.is_resumed:
            write_json_atomic(path, asked)
        return asked

    def _write_versions(self, seeds: Mapping[str, int]) -> None:
        path = self.path / "versions.json"
        if not path.exists():
            write_json_atomic(path, {**collect_versions(), "seeds": dict(seeds)})

    def _versions_of(self, link: Path) -> list[tuple[int, Path]]:
        found = []
        for folder in link.parent.glob(f"{link.name}.*"):
            number = folder.name.removeprefix(f"{link.name}.")
            if number.isdigit():
                found.append((int(number), folder))
        return sorted(found)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Return one merged row per (stage, step) of a metrics file, in order of first appearance."""
    merged: dict[tuple[object, object], dict[str, Any]] = {}
    for row in read_records(path, dict, kind="metrics").records:
        merged.setdefault((row.get("stage"), row.get("step")), {}).update(row)
    return list(merged.values())


def collect_versions() -> dict[str, Any]:
    """Return python, platform, versions of the packages that matter, and the commit if known."""
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "commit": _commit(Path(__file__).resolve().parents[2]),
    }


def _commit(root: Path) -> str | None:
    """Return the commit checked out in the source tree; None for an installed package."""
    git = root / ".git"
    try:
        head = (git / "HEAD").read_text(encoding="ascii").strip()
        if not head.startswith("ref: "):
            return head
        reference = head.removeprefix("ref: ")
        if (git / reference).exists():
            return (git / reference).read_text(encoding="ascii").strip()
        packed = (git / "packed-refs").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {reference}")), None)


class _Lock:
    """A lock file held by the kernel for this process: a dead owner holds nothing."""

    def __init__(self, path: Path) -> None:
        import fcntl  # not on every platform; only runs need it

        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(self._handle, 200).decode("utf-8", "replace").strip() or "unknown"
            os.close(self._handle)
            raise ConfigError(
                f"run folder {str(path.parent)!r} is being written by another process ({owner}); "
                "wait for it, or choose another run name"
            ) from error
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())

    def release(self) -> None:
        """Give up the lock."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _plain_name(name: str) -> str:
    if not name or name.startswith(".") or "/" in name or "\\" in name:
        raise ConfigError(f"name {name!r} must be a plain file name without '/' or a leading dot")
    return name


def _point(link: Path, target: str) -> None:
    temporary = link.with_name(f".{link.name}.{os.getpid()}.link")
    temporary.unlink(missing_ok=True)
    os.symlink(target, temporary)
    os.replace(temporary, link)
    sync_folder(link.parent)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    sync_folder(folder)
