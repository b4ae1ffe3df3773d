"""What a policy wrote -> one action.  Nothing here evaluates text; a bad action never raises.

The rule is *first action, and nothing after it*: a model that goes on to write the observation,
a reward or a second action is dreaming on its own, so the rest is dropped and flagged.
Three spellings are read, in this order: `<action>...</action>` tags, an `Action:` line, a ReAct
`> command` line.  Text with none of them is a format error, unless `bare` is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from dreamgym.llm.base import Finish

Problem = Literal["format", "truncated_generation", "empty"]
Dialect = Literal["tags", "line", "prompt", "bare"]
DIALECTS: tuple[Dialect, ...] = ("tags", "line", "prompt")
"""Spellings read by default; `bare` takes a reply without any marking as the action."""

MAX_ACTION_CHARS = 2000

_THINK = re.compile(r"(?is)<think(?:ing)?>(.*?)</think(?:ing)?>")
_OPEN_THINK = re.compile(r"(?i)<think(?:ing)?>")
_ACTION_OPEN = re.compile(r"(?i)<action>")
_ACTION_CLOSE = re.compile(r"(?i)</action>")
_ACTION_LINE = re.compile(r"(?im)^[ \t]*[*_#]*action(?:[ \t]*\d+)?[*_]*[ \t]*:[*_]*[ \t]*")
_PROMPT_LINE = re.compile(r"(?m)^[ \t]*>[ \t]*(?=\S)")
_PSEUDO = re.compile(r"(?is)^think(?:ing)?\s*(?::\s*(.*)|\[(.*)\])$")
_INVENTED = re.compile(
    r"(?im)^[ \t]*[*_]*(?:observation|obs|reward|done)(?:[ \t]*\d+)?[*_]*[ \t]*:|<observation>"
)
_CONTROL_TOKEN = re.compile(r"<\|[^|<>\s]{1,40}\|>|</s>|<s>")
_CALL = re.compile(r"(?s)^(\w+)\s*\[(.*)$")


class ParsedAction(msgspec.Struct, frozen=True, kw_only=True):
    """What to execute.  `action` is empty for a problem and for pure thought (`is_thought`)."""

    action: str = ""
    thought: str = ""
    problem: Problem | None = None
    flags: tuple[str, ...] = ()

    @property
    def is_thought(self) -> bool:
        """True when the turn only thinks, as ReAct's `> think: ...` does."""
        return self.problem is None and not self.action


class Call(msgspec.Struct, frozen=True):
    """A bracketed action such as `search[usb cable [3 ft]]`."""

    verb: str
    argument: str


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """An action in the environment's spelling; `is_admissible` None where nobody knows."""

    action: str
    is_admissible: bool | None


def parse_action(
    text: str, *, finish: Finish = "stop", dialects: Sequence[Dialect] = DIALECTS
) -> ParsedAction:
    """Return the first action of a reply.

    A reply cut by the token limit before its action was complete is `truncated_generation`, not
    a format error.

    >>> parse_action("Thought: a\\nAction: go to desk 1\\nObservation: a pen").action
    'go to desk 1'
    """
    text = text.lstrip("\ufeff")
    control = _CONTROL_TOKEN.search(text)
    flags = ["control_token"] if control else []
    text = text[: control.start()] if control else text
    if not text.strip():
        problem: Problem = "truncated_generation" if finish == "length" else "empty"
        return ParsedAction(problem=problem, flags=tuple(flags))
    thought, rest = _split_thought(text)
    found = _find(rest, dialects)
    if found is None or (finish == "length" and not found.is_complete):
        problem = "truncated_generation" if finish == "length" else "format"
        return ParsedAction(thought=thought or text.strip(), problem=problem, flags=tuple(flags))
    thought = thought or _strip_label(found.before)
    flags += _flags_after(found.after, dialects)
    pseudo = _PSEUDO.match(found.action)
    if pseudo:
        said = (pseudo[1] or pseudo[2] or "").strip()
        thought = f"{thought}\n{said}".strip()
        return ParsedAction(thought=thought, flags=("thought_only", *flags))
    action, trailing = _tidy(found.action)
    flags += ["trailing_text"] if trailing and "trailing_text" not in flags else []
    if not action or len(action) > MAX_ACTION_CHARS:
        return ParsedAction(thought=thought, problem="format", flags=tuple(flags))
    return ParsedAction(action=action, thought=thought, flags=tuple(flags))


def split_call(action: str) -> Call | None:
    """Return verb and argument of a bracketed action, brackets inside the argument kept.

    >>> split_call("click[12 oz [2 pack]]")
    Call(verb='click', argument='12 oz [2 pack]')
    """
    match = _CALL.match(action.strip())
    if match is None or not match[2].endswith("]"):
        return None
    return Call(match[1], match[2][:-1].strip())


def resolve(action: str, admissible: Sequence[str] | None) -> Resolution:
    """Return the action as the environment spells it.

    Letter case, spacing, articles, a final full stop and the two ALFWorld wordings
    (`put X in/on Y`, `move X to Y`) do not matter.  An admissible entry with a placeholder, such
    as `search[<keywords>]`, admits any text there.  Unknown actions come back unchanged.
    """
    if admissible is None:
        return Resolution(action=action, is_admissible=None)
    if action in admissible:
        return Resolution(action=action, is_admissible=True)
    wanted = _key(action)
    matches = {option for option in admissible if _key(option) == wanted}
    if len(matches) == 1:
        return Resolution(action=matches.pop(), is_admissible=True)
    for option in admissible:
        if "<" in option and _pattern(option).fullmatch(action.strip()):
            return Resolution(action=action.strip(), is_admissible=True)
    return Resolution(action=action, is_admissible=False)


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    before: str
    action: str
    after: str
    is_complete: bool
    """False when the action may go on behind the end of the text."""


def _find(text: str, dialects: Sequence[Dialect]) -> _Found | None:
    """Return the first action in the first spelling that occurs."""
    opening = _ACTION_OPEN.search(text) if "tags" in dialects else None
    if opening:
        return _tagged(text, opening)
    for dialect, pattern in (("line", _ACTION_LINE), ("prompt", _PROMPT_LINE)):
        match = pattern.search(text) if dialect in dialects else None
        if match:
            return _to_line_end(text[: match.start()], text[match.end() :])
    if "bare" in dialects:
        return _to_line_end("", text)
    return None


def _tagged(text: str, opening: re.Match[str]) -> _Found:
    before, body = text[: opening.start()], text[opening.end() :]
    closing = _ACTION_CLOSE.search(body)
    again = _ACTION_OPEN.search(body)
    if closing and not (again and again.start() < closing.start()):
        inside, after = body[: closing.start()], body[closing.end() :]
        inner = _to_line_end(before, inside)
        return _Found(
            before=before,
            action=inner.action,
            after=f"{inner.after}\n{after}",
            is_complete=True,
        )
    # The engine may stop at the closing tag without returning it; a wrong closing tag ends it too.
    end = re.search(r"(?i)<action>|</", body)
    if end is None:
        return _to_line_end(before, body)
    inner = _to_line_end(before, body[: end.start()])
    after = f"{inner.after}\n{body[end.start() :]}"
    return _Found(before=before, action=inner.action, after=after, is_complete=True)


def _to_line_end(before: str, text: str) -> _Found:
    text = text.lstrip()
    line, newline, after = text.partition("\n")
    return _Found(before=before, action=line.strip(), after=after, is_complete=bool(newline))


def _split_thought(text: str) -> tuple[str, str]:
    """Return (thought, rest); a think block that never closes hides nothing behind it."""
    block = _THINK.search(text)
    opening = _ACTION_OPEN.search(text)
    if block and not (opening and opening.start() < block.start()):
        return block[1].strip(), text[: block.start()] + text[block.end() :]
    return "", _OPEN_THINK.sub("", text, count=1)


def _strip_label(text: str) -> str:
    return re.sub(r"(?i)^\s*[*_]*thoughts?(?:\s*\d+)?[*_]*\s*:[*_]*\s*", "", text).strip()


def _flags_after(after: str, dialects: Sequence[Dialect]) -> list[str]:
    if not after.strip():
        return []
    flags = ["trailing_text"]
    if _INVENTED.search(after):
        flags.append("invented_observation")
    if _find(after, [d for d in dialects if d != "bare"]) is not None:
        flags.append("second_action")
    return flags


def _tidy(action: str) -> tuple[str, str]:
    """Return (action, trailing text): wrappers such as backticks go, brackets must balance."""
    action = "".join(c for c in action if c.isprintable() or c == "\t").strip()
    for mark in ("**", "`", '"', "'"):
        if len(action) > 2 * len(mark) and action.startswith(mark) and action.endswith(mark):
            action = action[len(mark) : -len(mark)].strip()
    match = _CALL.match(action)
    if match is None:
        return action, ""
    depth = 0
    for place, character in enumerate(action):
        depth += (character == "[") - (character == "]")
        if character == "]" and depth == 0:
            return action[: place + 1], action[place + 1 :].strip()
    # An argument may itself hold a lone bracket; without any end it is no call at all.
    return (action, "") if action.endswith("]") else ("", action)


def _key(action: str) -> str:
    text = " ".join(action.casefold().split()).rstrip(".! ")
    text = re.sub(r"\b(?:the|an|a) ", "", text)
    moved = re.fullmatch(r"(?:put|place|move) (.+?) (?:in/on|into|onto|in|on|to) (.+)", text)
    return f"move {moved[1]} to {moved[2]}" if moved else text


def _pattern(option: str) -> re.Pattern[str]:
    """Return the pattern of an entry whose `<name>` placeholders admit any text."""
    parts = re.split(r"<[^<>]+>", option)
    return re.compile("(.*\\S.*)".join(re.escape(p) for p in parts), re.IGNORECASE | re.DOTALL)
