"""Prompts of the task generator, and strict parsers of the answers.

The paper's task model has the weights of the experience model and two stages: propose
variations, then pick one (DreamGym, arXiv 2511.03773, Eq. 6-7).  Ours adds a third, writing the
hidden scenario.  The first line of each question names its mode, so that one small model can be
trained on all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from dreamgym.dream.reply import ReplyProblem
from dreamgym.dream.scenario import UNKNOWN, scenario_text
from dreamgym.llm.base import Message
from dreamgym.types import Scenario, Task

VARY_SYSTEM = (
    "You write training tasks for an agent in a text environment. Vary the given task: change "
    "what has to be done, not only the wording. Each variation must be challenging but feasible, "
    "clear and realistic, and use only kinds of things this world has. Answer with numbered "
    "lines and nothing else, for example `1: put a mug in shelf.`"
)
PICK_SYSTEM = (
    "You choose the best training task for an agent in a text environment: challenging but "
    "feasible, clear and realistic, a meaningful change of the original, and realistic in its "
    "combination of details. Answer with the number of one option and nothing else."
)
SCENARIO_SYSTEM = (
    "You write the hidden state of a text environment at the start of a task: what every place "
    "contains. The task must be feasible in it and everything must be where such things can be. "
    "Answer with one line per place and nothing else, for example `drawer 1: closed: pen 1`."
)
_THINK = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_NUMBERED = re.compile(r"(\d+): (\S.*)")
_FACT = re.compile(r"([^:]*[^:\s]): (\S.*)")


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its scenario, shown as an example."""

    instruction: str
    scenario: Scenario


def vary_messages(seed: Task, count: int, *, compact: bool = False) -> list[Message]:
    """Return the chat that asks for `count` variations of a seed task.

    `compact` leaves out the system prompt, for small models trained on these prompts.
    """
    parts = ["mode: vary", f"task: {_line(seed.instruction)}"]
    if seed.scenario is not None:
        parts.append(f"world: {_line(seed.scenario.first_observation)}")
    parts.append(f"variations: {count}")
    return _chat(VARY_SYSTEM, parts, compact)


def vary_target(instructions: Sequence[str]) -> str:
    """Return the answer `parse_variations` reads back.

    >>> vary_target(["put a mug in shelf.", "put a pen in desk."])
    '1: put a mug in shelf.\\n2: put a pen in desk.'
    """
    return "\n".join(f"{i}: {_line(text)}" for i, text in enumerate(instructions, start=1))


def parse_variations(text: str, count: int) -> list[str]:
    """Return the proposed instructions, at most `count`; raises `ReplyProblem` for other text."""
    found: list[str] = []
    for line in _lines(text):
        match = _NUMBERED.fullmatch(line)
        if match is None or int(match.group(1)) != len(found) + 1:
            raise ReplyProblem(f"expected line {len(found) + 1} as `{len(found) + 1}: task`")
        found.append(match.group(2).strip())
    if not 1 <= len(found) <= count:
        raise ReplyProblem(f"expected 1 to {count} numbered lines, got {len(found)}")
    return found


def pick_messages(seed: Task, options: Sequence[str], *, compact: bool = False) -> list[Message]:
    """Return the chat that asks which of the proposed instructions is best."""
    parts = ["mode: pick", f"task: {_line(seed.instruction)}", "options:", vary_target(options)]
    return _chat(PICK_SYSTEM, parts, compact)


def parse_pick(text: str, count: int) -> int:
    """Return the 0-based index of the picked option; raises `ReplyProblem` for other text."""
    answer = _without_thought(text).strip()
    if re.fullmatch(r"[0-9]{1,6}", answer) is None or not 1 <= int(answer) <= count:
        raise ReplyProblem(f"expected one number from 1 to {count}")
    return int(answer) - 1


def scenario_messages(
    instruction: str,
    *,
    world: str,
    places: Sequence[str],
    examples: Sequence[Example] = (),
    compact: bool = False,
) -> list[Message]:
    """Return the chat that asks for what every place contains.

    `world` is the first observation, `examples` are similar tasks with known scenarios.
    """
    parts = ["mode: scenario"]
    for example in examples:
        parts += [f"example: {_line(example.instruction)}", scenario_text(example.scenario)]
    parts += [f"task: {_line(instruction)}", f"world: {_line(world)}"]
    parts.append(f"places: {', '.join(places)}")
    return _chat(SCENARIO_SYSTEM, parts, compact)


def scenario_target(scenario: Scenario) -> str:
    """Return the answer `parse_facts` reads back, for a scenario without open facts."""
    return "\n".join(f"{_line(name)}: {_line(text)}" for name, text in scenario.facts.items())


def parse_facts(text: str, places: Collection[str]) -> dict[str, str]:
    """Return the written facts by place; raises `ReplyProblem` unless each place has one line.

    >>> parse_facts("drawer 1: closed: pen 1", ["drawer 1"])
    {'drawer 1': 'closed: pen 1'}
    """
    facts: dict[str, str] = {}
    for line in _lines(text):
        match = _FACT.fullmatch(line)
        if match is None:
            raise ReplyProblem(f"expected `place: contents`, got {line[:60]!r}")
        name, value = match.group(1).strip(), " ".join(match.group(2).split())
        if name not in places:
            raise ReplyProblem(f"{name[:60]!r} is none of the places asked for")
        if name in facts:
            raise ReplyProblem(f"{name!r} is described twice")
        if UNKNOWN in value.replace(":", " ").replace(",", " ").split():
            raise ReplyProblem(f"{name!r} is left unknown")
        facts[name] = value
    missing = [name for name in places if name not in facts]
    if missing:
        raise ReplyProblem(f"no line for {missing[0]!r}")
    return facts


def _chat(system: str, parts: Sequence[str], compact: bool) -> list[Message]:
    head = [] if compact else [Message("system", system)]
    return [*head, Message("user", "\n".join(parts))]


def _lines(text: str) -> list[str]:
    # only newline bytes end a line: a listing may hold U+2028 and the like
    return [line.strip() for line in _without_thought(text).split("\n") if line.strip()]


def _without_thought(text: str) -> str:
    return _THINK.sub("", text, count=1)


def _line(text: str) -> str:
    return " ".join(text.split())
