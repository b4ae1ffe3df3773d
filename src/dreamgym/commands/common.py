"""What the commands share: flags that are settings, recipes, dry runs, complaints about logs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dreamgym.errors import ConfigError

if TYPE_CHECKING:
    from dreamgym.pipeline.logs import Logs
    from dreamgym.pipeline.settings import Settings
    from dreamgym.runs import RunFolder

    S = TypeVar("S", bound=Settings)
else:
    S = TypeVar("S")

Add = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]

PREFIX = "setting:"
"""Marks the destinations of flags that set a setting; the dotted key follows."""
MAX_SHOWN = 10
"""Broken lines named one by one."""


def setting(
    parser: argparse.ArgumentParser,
    flag: str,
    key: str,
    help: str,
    **options: Any,  # whatever argparse takes
) -> None:
    """Add a flag for the setting with this dotted key; not given, it changes nothing."""
    if options.get("action") != "store_const":
        options.setdefault("metavar", key.rpartition(".")[2].upper())
    parser.add_argument(flag, dest=PREFIX + key, default=None, help=help, **options)


def switch(parser: argparse.ArgumentParser, flag: str, key: str, help: str) -> None:
    """Add a flag without a value that turns a setting on."""
    setting(parser, flag, key, help, action="store_const", const=True)


def suite_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--suite` and `--option`."""
    setting(parser, "--suite", "suite.name", "name of the real suite, e.g. household")
    parser.add_argument(
        "--option",
        action="append",
        default=None,
        metavar="NAME=VALUE",
        help="an option of the suite, e.g. size=small; may be repeated",
    )


def recipe_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--recipe`, `--set` and `--dry-run`."""
    parser.add_argument(
        "--recipe", type=Path, default=None, help="TOML file with a section per command"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="change any setting, e.g. --set loop.group_size=4; may be repeated",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the resolved settings and stop"
    )


def resolve(options: argparse.Namespace, kind: type[S], section: str) -> S:
    """Return the settings of a command: defaults, recipe, flags, `--set`, in this order."""
    from dreamgym.pipeline.settings import load_settings, parse_options

    flags = {
        name.removeprefix(PREFIX): tuple(value) if isinstance(value, list) else value
        for name, value in vars(options).items()
        if name.startswith(PREFIX)
    }
    if getattr(options, "option", None):
        flags["suite.options"] = parse_options(options.option)
    return load_settings(
        kind, section, recipe=options.recipe, flags=flags, overrides=options.overrides
    )


def print_settings(settings: Settings) -> int:
    """Print settings as JSON, secrets blanked, and return exit code 0."""
    from dreamgym.config import dump_config

    print(json.dumps(dump_config(settings), indent=2))
    return 0


def print_json(value: object) -> None:
    """Print any record as JSON."""
    import msgspec

    print(json.dumps(msgspec.to_builtins(value), indent=2))


def report_logs(logs: Logs) -> None:
    """Say on stderr what of the logs could not be used, by file and line."""
    for bad in logs.quarantined[:MAX_SHOWN]:
        print(f"{bad.file}:{bad.line}: {bad.reason}", file=sys.stderr)
    count = len(logs.quarantined)
    if count > MAX_SHOWN:
        print(f"... and {count - MAX_SHOWN} more", file=sys.stderr)
    if count:
        print(f"{count} broken line(s) left out; the rest is used", file=sys.stderr)
    if logs.num_faults:
        print(f"{logs.num_faults} episode(s) failed by a fault left out", file=sys.stderr)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headings; the first column to the left, the others to the right."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        first = row[0].ljust(widths[0])
        rest = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([first, *rest]).rstrip())


def share(value: float, interval: Sequence[float]) -> str:
    """Return a proportion with its interval.

    >>> share(0.5, (0.4, 0.6))
    '0.500 [0.400, 0.600]'
    """
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def open_folder(path: str, *, resume: bool, fresh: bool) -> Path:
    """Return the path of a run folder after `--resume` and `--fresh` had their say."""
    folder = Path(path)
    if resume and fresh:
        raise ConfigError("--resume goes on and --fresh starts over; give one of them")
    exists = (folder / "config.json").exists()
    if resume and not exists:
        raise ConfigError(f"there is no run to resume in {path!r}; leave out --resume to start it")
    if fresh and exists:  # anything else is not ours to delete
        import shutil

        shutil.rmtree(folder)
    return folder


def open_run(folder: Path, settings: Settings, *, seed: int, force: bool = False) -> RunFolder:
    """Return the run folder for these settings; use it as a context manager.

    A run that holds no result yet (no finished stage, no checkpoint) takes new settings, so that
    a first try that failed can be corrected; a later one is only continued with the same.
    """
    from dreamgym.config import dump_config
    from dreamgym.runs import RunFolder

    has_result = (folder / "stages.json").exists() or any(folder.glob("checkpoints/*"))
    # Not its own place: a run folder may be moved.
    config = {key: value for key, value in dump_config(settings).items() if key != "out"}
    return RunFolder(folder, config, seeds={"seed": seed}, force=force or not has_result)


def resume_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--resume` and `--fresh`."""
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in --out, also with changed settings (e.g. more iterations)",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="delete an earlier run in --out and start over"
    )


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
