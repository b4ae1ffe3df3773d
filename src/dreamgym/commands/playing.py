"""A suite in the terminal: what it is, and playing an episode by hand."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from dreamgym.errors import UserError

if TYPE_CHECKING:
    from dreamgym.envs.base import Suite
    from dreamgym.types import Observation, Step, Task

HELP = "an empty line lists the actions, a number takes one of them, end of input stops"
_MAX_WIDTH = 110
_MAX_LISTED = 200


def describe(name: str, suite: Suite) -> Iterator[str]:
    """Yield lines about a suite: what it is, its options, its splits, its first task."""
    text = inspect.getdoc(type(suite)) or ""
    yield f"{name}: {' '.join(text.split(chr(10) * 2)[0].split()) or type(suite).__name__}"
    for option in _options(type(suite)):
        yield f"  option {option}"
    first: Task | None = None
    for split in tuple(getattr(suite, "splits", ())):
        try:
            tasks = suite.tasks(split)
        except UserError as error:
            yield f"  split {split}: {error}"
            continue
        first = first or (tasks[0] if tasks else None)
        yield f"  split {split}: {len(tasks)} task(s)"
    if first is not None:
        yield f"  first task {first.id}: {first.instruction}"


async def play_by_hand(suite: Suite, task: Task) -> None:
    """Let whoever writes to standard input act until the episode or the input ends."""
    console = Console(highlight=False, width=_width())
    env = suite.open(task, seed=0)
    try:
        observation = await env.start()
        number = 0
        console.print(f"[bold]{escape(task.id)}[/]  [dim]{HELP}[/]")
        while True:
            _show(console, observation, number)
            action = _read(console, observation)
            if action is None:
                return
            step = await env.step(action)
            number, observation = number + 1, step.observation
            if step.terminated or step.truncated:
                _show(console, observation, number)
                _show_end(console, step)
                return
    finally:
        await env.close()


def _read(console: Console, observation: Observation) -> str | None:
    """Return the next action, None at the end of the input."""
    actions = observation.actions or ()
    while True:
        print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return None
        typed = line.strip()
        if not typed:
            _list_actions(console, actions)
        elif typed.isdigit() and 1 <= int(typed) <= len(actions) and typed not in actions:
            return actions[int(typed) - 1]
        else:
            return typed


def _show(console: Console, observation: Observation, number: int) -> None:
    text = escape(observation.text.strip()).replace(" [SEP] ", "\n")
    console.print(Panel(text, title=f"step {number}", title_align="left", border_style="cyan"))


def _list_actions(console: Console, actions: Sequence[str]) -> None:
    if not actions:
        console.print("[dim]this suite lists no actions; type what you want to do[/]")
    for number, action in enumerate(actions[:_MAX_LISTED], start=1):
        console.print(f"[dim]{number:3}[/] {escape(action)}")


def _show_end(console: Console, step: Step) -> None:
    how = "success" if step.success else "not solved"
    why = "the step limit was reached" if step.truncated else "the episode is over"
    color = "green" if step.success else "yellow"
    console.print(f"[bold {color}]{how}[/] ({why}; last reward {step.reward})")


def _options(factory: Callable[..., object]) -> Iterator[str]:
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            default = parameter.default
            required = default is inspect.Parameter.empty
            yield f"{parameter.name} (required)" if required else f"{parameter.name}={default!r}"


def _width() -> int:
    """Return a readable width."""
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH)
