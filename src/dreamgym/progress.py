"""Progress with the remaining time; plain lines, now and then, where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

LINE_SECONDS = 10.0
"""Seconds between lines when the output is not a terminal."""


class Progress:
    """Counts finished units; `advance` after each."""

    def __init__(self, description: str, total: int) -> None:
        self.description = description
        self.total = total
        self.done = 0
        self.note = ""

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count finished units; `note` is shown behind (e.g. `success 0.31`)."""
        self.done += count
        self.note = note or self.note
        self._show()

    def _show(self) -> None:
        """Draw; overridden by the two ways to show it."""

    def _finish(self, completed: bool) -> None:
        """Draw the last state."""


class _Lines(Progress):
    def __init__(self, description: str, total: int, stream: TextIO) -> None:
        super().__init__(description, total)
        self._stream = stream
        self._started = self._shown = time.monotonic()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= LINE_SECONDS and self.done < self.total:
            self._shown = now
            left = (now - self._started) / max(self.done, 1) * (self.total - self.done)
            self._print(f"about {_clock(left)} left")

    def _finish(self, completed: bool) -> None:
        took = _clock(time.monotonic() - self._started)
        self._print(f"done in {took}" if completed else f"stopped after {took}")

    def _print(self, ending: str) -> None:
        note = f", {self.note}" if self.note else ""
        line = f"{self.description}: {self.done}/{self.total}{note}, {ending}"
        print(line, file=self._stream, flush=True)


class _Bar(Progress):
    def __init__(self, description: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        super().__init__(description, total)
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(description, total=total, note="")
        self._bar.start()

    def _show(self) -> None:
        self._bar.update(self._task, completed=self.done, note=self.note)

    def _finish(self, completed: bool) -> None:
        self._bar.stop()


@contextmanager
def progress(
    description: str, total: int, *, stream: TextIO | None = None, quiet: bool = False
) -> Iterator[Progress]:
    """Show progress over `total` units on stderr (or `stream`); restores the terminal on Ctrl-C."""
    target = stream or sys.stderr
    shown: Progress
    if quiet:
        shown = Progress(description, total)
    elif stream is None and target.isatty():
        shown = _Bar(description, total)
    else:
        shown = _Lines(description, total, target)
    completed = False
    try:
        yield shown
        completed = True
    finally:
        shown._finish(completed)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
