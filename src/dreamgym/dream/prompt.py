"""One prompt builder for the experience model, used in training and at inference.

Input (DreamGym, arXiv 2511.03773, Eq. 4): task, history, current state and action, top-k similar
transitions; ours adds the pinned scenario and the ledger's known facts.  Output: reasoning, then
next state, reward and done as one JSON object.  What never changes during an episode (task,
scenario) comes first, so that an engine can keep its cache for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import msgspec

from dreamgym.llm.base import Message
from dreamgym.types import Task, Transition

SYSTEM = (
    "You play a text environment. Given the task, the hidden scenario, what is known now and the "
    "agent's action, reason about what the action causes, then answer with the next observation. "
    "Impossible actions change nothing. Reward is 1 only when the task is completed by this "
    'action, else 0. Answer: <think>reasoning</think>{"next_state":"...","reward":0,"done":false}'
)


class PromptConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the experience model gets to see; each switch is one of the ablations."""

    style: Literal["full", "compact"] = "full"
    """`compact` leaves out the system prompt, for small models trained from scratch."""
    reasoning: bool = True
    """The model writes a rationale before the next state."""
    history: int = 1
    """Number of past (action, observation) pairs shown; 0 turns history off."""
    past: Literal["turns", "actions"] = "turns"
    """`actions` leaves out the past observations where the ledger is shown, which holds what
    they said."""
    neighbours: int = 2
    """Retrieved transitions shown (top-k); 0 turns replay off."""
    scenario: Literal["whole", "relevant", "off"] = "whole"
    """Show the pinned scenario: all of it; only through the ledger, which starts from it and
    shows the lines the action needs (short prompts for small models); or not at all."""
    ledger: bool = True
    """Show the ledger's known facts about what the action mentions."""
    max_demo_chars: int = 240
    """Longest retrieved observation; longer ones are cut with a marker."""


class Turn(msgspec.Struct, frozen=True):
    """One past (action, answer) pair."""

    action: str
    text: str


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known before the experience model answers one action."""

    task: Task
    scenario: str
    history: Sequence[Turn]
    known: Sequence[str]
    neighbours: Sequence[Transition]
    action: str


def step_messages(config: PromptConfig, context: StepContext) -> list[Message]:
    """Return the chat that asks for the consequence of `context.action`."""
    parts = [f"task: {context.task.instruction}"]
    whole = config.scenario == "whole" or (config.scenario == "relevant" and not config.ledger)
    if whole and context.scenario:
        parts.append(f"scenario:\n{context.scenario}")
    if config.neighbours and context.neighbours:
        demos = context.neighbours[: config.neighbours]
        lines = [_demo(config, transition) for transition in demos]
        parts.append("similar:\n" + "\n".join(lines))
    if config.history and context.history:
        turns = context.history[-config.history :]
        if config.past == "actions" and config.ledger:
            parts += [f"past: {turn.action}" for turn in turns]
        else:
            shown = [f"> {turn.action}\n{_one_line(turn.text)}" for turn in turns]
            parts.append("past:\n" + "\n".join(shown))
    if config.ledger and context.known:
        parts.append("known:\n" + "\n".join(context.known))
    parts.append(f"action: {context.action}")
    system = [Message("system", SYSTEM)] if config.style == "full" else []
    return [*system, Message("user", "\n".join(parts))]


def step_target(
    config: PromptConfig, *, rationale: str, next_text: str, reward: float, done: bool
) -> str:
    """Return the reply the experience model is trained to give.

    >>> step_target(PromptConfig(), rationale="ok", next_text="Done.", reward=0.0, done=False)
    '<think>ok</think>{"next_state":"Done.","reward":0,"done":false}'
    """
    think = f"<think>{rationale}</think>" if config.reasoning else ""
    value = int(reward) if float(reward).is_integer() else reward
    body = {"next_state": next_text, "reward": value, "done": done}
    return think + json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def conflict_message(conflicts: Sequence[str]) -> Message:
    """Return the message that asks again after an answer contradicted known facts."""
    return Message("user", "conflict: " + " ".join(conflicts) + " answer again.")


def problem_message(reason: str) -> Message:
    """Return the message that asks again after an unreadable answer."""
    return Message("user", f"unreadable: {reason}. answer again.")


def _demo(config: PromptConfig, transition: Transition) -> str:
    text = _one_line(transition.next_observation.text)
    if len(text) > config.max_demo_chars:
        cut = len(text) - config.max_demo_chars
        text = text[: config.max_demo_chars] + f" [{cut} characters cut]"
    return f"> {transition.action}\n{text}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
