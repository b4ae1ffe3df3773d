"""The strict parser of the experience model's replies.

A reply is optional thinking (`<think>...</think>`), then one JSON object with `next_state`,
`reward` and `done`, and optionally `success` and `reasoning`.  Whatever is not clearly that is a
`ReplyProblem`: asked again, and in the end a fault, never an invented state.  Reward and done are
read from these fields only, never from prose and never from what the agent wrote.
"""

from __future__ import annotations

import json
import math
import re
from typing import Literal

from dreamgym.errors import ReplyError
from dreamgym.types import Record

Mode = Literal["outcome", "sum"]
"""`outcome`: rewards lie in [0, 1] and only the last one counts; `sum`: any finite number."""

_REQUIRED = ("next_state", "reward", "done")
_OPTIONAL = ("success", "reasoning")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_THINK = re.compile(r"</?\s*think", re.I)
_MIN_LEAK = 24
"""Shorter reasoning ("ok", "desk 1") may well occur in a state by chance."""


class ReplyProblem(ReplyError):
    """One reply that cannot be used; `reason` is short enough to be told to the model."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DreamReply(Record, frozen=True, kw_only=True):
    """A usable reply. `reward` None says that the model gave null: the step is unscorable."""

    next_state: str
    reward: float | None
    done: bool
    success: bool
    reasoning: str = ""


def parse_reply(text: str, *, agent_text: str = "", mode: Mode = "outcome") -> DreamReply:
    """Return the reply in `text`; raises `ReplyProblem` when there is not exactly one.

    `agent_text` is what the agent wrote: a reply that merely repeats it is refused.

    >>> parse_reply('<think>shut</think>{"next_state":"It opens.","reward":0,"done":false}').done
    False
    """
    reasoning, rest = _split_thinking(text)
    fields = _only_object(rest)
    if agent_text.strip():
        _refuse_echo(text, fields, agent_text)
    for key in fields:
        if key not in (*_REQUIRED, *_OPTIONAL):
            raise ReplyProblem(f"unknown key {key!r}; use next_state, reward, done")
    for key in _REQUIRED:
        if key not in fields:
            raise ReplyProblem(f"the key {key!r} is missing")
    reasoning = "\n".join(part for part in (reasoning, _reasoning(fields)) if part)
    reward, done = _reward(fields["reward"], mode), _flag(fields, "done")
    return DreamReply(
        next_state=_next_state(fields["next_state"], reasoning),
        reward=reward,
        done=done,
        success=_success(fields, reward, done),
        reasoning=reasoning,
    )


def _split_thinking(text: str) -> tuple[str, str]:
    """Return (reasoning, rest). A template may have opened the block: then only its end is here."""
    thoughts: list[str] = []
    rest = text
    while True:
        brace = rest.find("{")
        opening, closing = rest.find("<think>"), rest.find("</think>")
        if opening >= 0 and (brace < 0 or opening < brace):
            if closing < opening:
                raise ReplyProblem("<think> is not closed")
            thoughts.append(rest[opening + len("<think>") : closing])
            rest = rest[:opening] + rest[closing + len("</think>") :]
        elif closing >= 0 and opening < 0:
            thoughts.append(rest[:closing])
            rest = rest[closing + len("</think>") :]
        else:
            return "\n".join(t.strip() for t in thoughts if t.strip()), rest


def _only_object(text: str) -> dict[str, object]:
    """Return the one JSON object of a text with prose or fences around it."""
    # Not strict: a raw line break inside a string is unambiguous and common.
    decoder = json.JSONDecoder(strict=False, object_pairs_hook=_unique, parse_constant=_no_constant)
    found: list[dict[str, object]] = []
    position = text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except ReplyProblem:
            raise
        except RecursionError as error:
            raise ReplyProblem("the JSON is nested too deeply") from error
        except ValueError as error:
            # A brace in prose is skipped; one that starts a key is JSON cut or broken.
            if text[position + 1 :].lstrip()[:1] in ('"', "'", ""):
                raise ReplyProblem("the JSON is cut or broken") from error
            end = position + 1
        else:
            found.append(value)
        position = text.find("{", end)
    if not found:
        raise ReplyProblem("there is no JSON object")
    if any(other != found[0] for other in found):
        raise ReplyProblem(f"there are {len(found)} different JSON objects; give one")
    return found[0]


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ReplyProblem("a key occurs twice in the JSON")
    return fields


def _no_constant(name: str) -> object:
    raise ReplyProblem(f"{name} is not a number; reward is 0 or 1")


def _refuse_echo(text: str, fields: dict[str, object], agent_text: str) -> None:
    said, state = _plain(agent_text), _plain(str(fields.get("next_state", "")))
    body = _plain(json.dumps(fields, ensure_ascii=False))
    # The agent may put a ready-made verdict into its turn; only the model's own counts.
    written_by_agent = body.replace(" ", "") in said.replace(" ", "")
    if _plain(text) == said or state == said or written_by_agent:
        raise ReplyProblem("the reply repeats the agent's text instead of answering it")


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _next_state(value: object, reasoning: str) -> str:
    if not isinstance(value, str):
        raise ReplyProblem(f"next_state must be text; got {_show(value)}")
    state = value.strip()
    if not state:
        raise ReplyProblem("next_state is empty")
    if _THINK.search(state):
        raise ReplyProblem("next_state contains think tags")
    if len(reasoning.strip()) >= _MIN_LEAK and _plain(reasoning) in _plain(state):
        raise ReplyProblem("next_state contains the reasoning")
    try:
        state.encode()
    except UnicodeEncodeError as error:
        raise ReplyProblem("next_state contains broken characters") from error
    return state


def _reasoning(fields: dict[str, object]) -> str:
    value = fields.get("reasoning", "")
    if not isinstance(value, str):
        raise ReplyProblem(f"reasoning must be text; got {_show(value)}")
    return value.strip()


def _reward(value: object, mode: Mode) -> float | None:
    """Return the reward: numbers, "1" and true/false count as numbers, null as unscorable."""
    if value is None:
        return None
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if not isinstance(value, int | float):
        raise ReplyProblem(f"reward must be a number; got {_show(value)}")
    try:
        reward = float(value)
    except OverflowError as error:
        raise ReplyProblem("reward is too large") from error
    if not math.isfinite(reward):
        raise ReplyProblem("reward must be finite")
    if mode == "outcome" and not 0 <= reward <= 1:
        raise ReplyProblem(f"reward must lie in [0, 1]; got {reward:g}")
    return reward


def _flag(fields: dict[str, object], key: str) -> bool:
    value = fields[key]
    if not isinstance(value, bool):
        raise ReplyProblem(f"{key} must be true or false; got {_show(value)}")
    return value


def _success(fields: dict[str, object], reward: float | None, done: bool) -> bool:
    """Return the claimed success: the field, else done with full reward."""
    if "success" not in fields:
        return done and reward is not None and reward >= 1
    success = _flag(fields, "success")
    if success and (not done or (reward is not None and reward <= 0)):
        raise ReplyProblem("success is true, but done or reward says otherwise")
    return success


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
