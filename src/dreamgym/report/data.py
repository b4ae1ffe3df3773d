"""Read the files of a run folder, whatever part of them is there.

A run that is still going has no summary and may end in a torn line; neither stops the page.  What
cannot be read is counted or named in `RunData.notices`, never silently left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from dreamgym.errors import DataError
from dreamgym.records import decode_line
from dreamgym.report.dreams import Dreams, is_header, read_dreams

STAGES = ("warm_start", "dream", "s2r", "real_only_baseline")
"""Stages whose real success is measured, in the order of the method."""

_FILES = (
    "summary.json",
    "metrics.jsonl",
    "config.json",
    "versions.json",
    "records/dream.jsonl",
)
_T = TypeVar("_T")
Interval = tuple[float, float]


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a summary: every field may be missing, unknown fields are left alone."""


class KindSuccess(_Part, frozen=True, kw_only=True):
    """Real success on one type of task; shares in [0, 1]."""

    sampled: float | None = None
    greedy: float | None = None
    n: int | None = None


class StageSuccess(_Part, frozen=True, kw_only=True):
    """Real success of the policy after one stage, in rooms it never trained in."""

    sampled: float | None = None
    greedy: float | None = None
    n: int | None = None
    ci95: Interval | None = None
    """Interval of `sampled`."""
    greedy_ci95: Interval | None = None
    by_kind: dict[str, KindSuccess] = {}


class StageTime(_Part, frozen=True, kw_only=True):
    """Wall-clock seconds of one stage."""

    name: str
    seconds: float


class FalseSuccess(_Part, frozen=True, kw_only=True):
    """Dreamt successes that failed when their actions were replayed for real."""

    successes: int | None = None
    n: int | None = None
    ci95: Interval | None = None


class ActionAccuracy(_Part, frozen=True, kw_only=True):
    """Whole-step accuracy of the experience model on held-out real transitions."""

    exact: float | None = None
    reward: float | None = None
    done: float | None = None
    n: int | None = None
    ci95: Interval | None = None


class Accuracy(_Part, frozen=True, kw_only=True):
    """Accuracy overall and by kind of action; `bar` is the level to reach."""

    overall: ActionAccuracy = ActionAccuracy()
    by_kind: dict[str, ActionAccuracy] = {}
    bar: float = 0.98


class DreamSummary(_Part, frozen=True, kw_only=True):
    """What the dream claimed, and how far it could be trusted."""

    final_success: float | None = None
    false_success_rate: float | None = None
    false_success: FalseSuccess | None = None
    missed_success_rate: float | None = None
    fault_rate: float | None = None
    accuracy: Accuracy | None = None


class NaiveRun(_Part, frozen=True, kw_only=True):
    """The ungrounded run: success it dreamt per iteration, and what was real."""

    dream_success: list[float | None] = []
    replayed_success: list[tuple[float, float | None]] = []
    real_success: list[tuple[float, float | None]] = []
    final_real: float | None = None
    iterations: int | None = None


class Summary(_Part, frozen=True, kw_only=True):
    """`summary.json`; an absent part keeps its empty default."""

    seed: int | None = None
    preset: str = ""
    algorithm: str = ""
    wall_seconds: float | None = None
    naive: bool = False
    stages: list[StageTime] = []
    real_success: dict[str, StageSuccess] = {}
    real_transitions: dict[str, int] = {}
    dream: DreamSummary = DreamSummary()
    naive_run: NaiveRun | None = None
    levers: dict[str, bool] = {}


class Point(msgspec.Struct, frozen=True):
    """One value of a curve; `n` is the number of trials behind it, where known."""

    step: float
    value: float
    n: int | None = None


class Metrics(msgspec.Struct, frozen=True):
    """Rows of `metrics.jsonl` by stage and step; a row written again after a resume wins."""

    rows: dict[str, dict[float, dict[str, float]]] = {}

    def curve(self, stage: str, *keys: str, count: str = "") -> list[Point]:
        """Return the points of the first of `keys` a row has, in order of steps.

        `count` names the metric holding the number of trials behind each value.
        """
        points = []
        for step, row in sorted(self.rows.get(stage, {}).items()):
            value = next((row[key] for key in keys if key in row), None)
            if value is not None:
                trials = row.get(count)
                points.append(Point(step, value, int(trials) if trials else None))
        return points


class RunData(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the page is made from."""

    name: str
    summary: Summary
    has_summary: bool
    metrics: Metrics
    dreams: Dreams
    config: str
    """`config.json`, indented, with secrets hidden; empty when absent."""
    versions: dict[str, str]
    notices: tuple[str, ...]
    """What could not be read, one sentence each."""


class _Read(msgspec.Struct, Generic[_T]):
    """A value and what went wrong while reading it."""

    value: _T
    notices: list[str]


def load_run(folder: Path) -> RunData:
    """Read a run folder; raise `DataError` when it is none."""
    if not folder.is_dir():
        raise DataError(
            f"the run folder {str(folder)!r} does not exist or is not a folder; "
            "give the folder a run wrote its summary.json and metrics.jsonl to"
        )
    if not any((folder / name).is_file() for name in _FILES):
        raise DataError(
            f"{str(folder)!r} holds none of {', '.join(_FILES)}; give the folder of a run"
        )
    summary = read_summary(folder / "summary.json")
    metrics = _read_metrics(folder / "metrics.jsonl")
    dreams = read_dreams(folder / "records" / "dream.jsonl")
    config = _read_object(folder / "config.json")
    versions = _read_object(folder / "versions.json")
    notices = [*summary.notices, *metrics.notices, *config.notices, *versions.notices]
    if dreams.num_skipped:
        notices.append(_skipped("records/dream.jsonl", dreams.num_skipped))
    return RunData(
        name=folder.resolve().name,
        summary=summary.value,
        has_summary=(folder / "summary.json").is_file(),
        metrics=metrics.value,
        dreams=dreams,
        config=_indented(config.value) if config.value else "",
        versions=_flat(_hide(versions.value)),
        notices=tuple(notices),
    )


def read_summary(path: Path) -> _Read[Summary]:
    """Read `summary.json` part by part, so that one malformed part does not cost the others."""
    raw = _read_object(path)
    parts: dict[str, object] = {}
    for field in msgspec.structs.fields(Summary):
        if raw.value.get(field.name) is None:
            continue
        try:
            parts[field.name] = msgspec.convert(raw.value[field.name], type=field.type)
        except msgspec.ValidationError as error:
            raw.notices.append(f"{path.name}: {field.name} is left out ({error}).")
    # The parts were checked one by one against the types of these very fields.
    return _Read(Summary(**parts), raw.notices)  # type: ignore[arg-type]


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the non-empty lines of a file, none when it does not exist."""
    if path.is_file():
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())


def _read_object(path: Path) -> _Read[dict[str, object]]:
    if not path.is_file():
        return _Read({}, [])
    try:
        return _Read(msgspec.json.decode(path.read_bytes(), type=dict[str, object]), [])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _Read({}, [f"{path.name} could not be read ({error})."])


def _read_metrics(path: Path) -> _Read[Metrics]:
    rows: dict[str, dict[float, dict[str, float]]] = {}
    skipped = 0
    for line in read_lines(path):
        try:
            row = decode_line(line, dict[str, object])
        except DataError:
            row = {}
        stage, numbers = row.get("stage"), _numbers(row)
        if not isinstance(stage, str) or "step" not in numbers:
            skipped += not is_header(line)
            continue
        rows.setdefault(stage, {}).setdefault(numbers["step"], {}).update(numbers)
    return _Read(Metrics(rows), [_skipped(path.name, skipped)] if skipped else [])


def _numbers(row: Mapping[str, object]) -> dict[str, float]:
    """Keep finite numbers; a NaN was written as null and is a missing value."""
    return {
        key: float(value)
        for key, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _skipped(name: str, count: int) -> str:
    lines = "1 line" if count == 1 else f"{count} lines"
    return f"{name}: {lines} could not be read and {'was' if count == 1 else 'were'} skipped."


_SECRET_NAMES = ("api_key", "apikey", "token", "secret", "password", "authorization", "cookie")


def _hide(value: Mapping[str, object]) -> dict[str, object]:
    """Replace texts whose name says secret: a page is made to be passed on."""
    return {
        key: "(hidden)"
        if isinstance(item, str) and item and key.lower().endswith(_SECRET_NAMES)
        else _hide_inside(item)
        for key, item in value.items()
    }


def _hide_inside(item: object) -> object:
    if isinstance(item, dict):
        return _hide(item)
    if isinstance(item, list):
        return [_hide_inside(element) for element in item]
    return item


def _indented(value: Mapping[str, object]) -> str:
    return json.dumps(_hide(value), indent=2, ensure_ascii=False)


def _flat(value: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return nested names as one level: `{"packages": {"torch": "2"}}` -> `packages.torch`."""
    flat: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            flat |= _flat(item, f"{prefix}{key}.")
        else:
            text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
            flat[f"{prefix}{key}"] = text
    return flat
