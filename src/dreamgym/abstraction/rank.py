"""Which elements matter for a task: words in common, exact labels, and what kind they are."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from dreamgym.abstraction.nodes import FIELDS
from dreamgym.abstraction.page import Element

_WORD = re.compile(r"[^\W_]+")
_QUOTED = re.compile(r"""["“”'‘’]([^"“”'‘’]{1,80})["“”'‘’]""")
_STOP = frozenset(
    {"a", "an", "the", "of", "to", "in", "on", "for", "and", "or", "with", "from", "by", "at"}
    | {"is", "are", "be", "it", "this", "that", "these", "those", "my", "your", "me", "i"}
    | {"you", "please", "then", "into", "page", "want", "need", "all", "any", "as", "up", "off"}
    | {"out", "its", "their", "his", "her", "which", "what"}
)
_COMMITS = frozenset(
    {"submit", "search", "save", "ok", "apply", "buy", "continue", "login", "send", "go", "post"}
    | {"checkout", "confirm", "create", "done", "update", "purchase", "yes", "accept", "add"}
)
"""First words of buttons that carry out what was filled in."""
_SAME = (
    ("buy", "purchase", "order", "checkout", "cart", "basket"),
    ("login", "signin"),
    ("logout", "signout"),
    ("delete", "remove", "trash"),
    ("find", "search", "look"),
    ("create", "new", "add"),
    ("edit", "change", "update", "modify", "set"),
    ("mail", "email", "inbox"),
    ("write", "compose", "post", "comment", "submit"),
    ("review", "rating", "star"),
    ("show", "view", "display", "list", "open"),
    ("sort", "order", "arrange"),
    ("settings", "preferences", "profile", "account"),
    ("repository", "repo", "project"),
)
"""Words that mean the same on a button and in a request."""
_GROUPS = {word: number for number, group in enumerate(_SAME) for word in group}
_PAIRS = {("log", "in"): "login", ("sign", "in"): "signin", ("log", "out"): "logout"}

_PRIOR = {"button": 1.0, "checkbox": 0.4, "radio": 0.4, "tab": 0.4, "product": 0.5, "menuitem": 0.2}
_NEXT = re.compile(r"(?i)^(next|more|»|>|show more|load more|next page)\b|^next")


def words(text: str) -> list[str]:
    """Return the words of a text in a common form, stop words left out.

    >>> words("Log in to the Reviews page")
    ['login', 'review']
    """
    found = [word.casefold() for word in _WORD.findall(text)]
    joined: list[str] = []
    place = 0
    while place < len(found):
        pair = _PAIRS.get((found[place], found[place + 1] if place + 1 < len(found) else ""))
        joined.append(pair or found[place])
        place += 2 if pair else 1
    return [_stem(word) for word in joined if word not in _STOP]


def scores(elements: Sequence[Element], instruction: str) -> list[float]:
    """Return how much each element matters; higher is more, 0 or less is not at all."""
    wanted = set(words(instruction))
    groups = {_GROUPS[word] for word in wanted if word in _GROUPS}
    quoted = [" ".join(words(text)) for text in _QUOTED.findall(instruction)]
    flat = f" {' '.join(words(instruction))} "
    bags = [_bag(element) for element in elements]
    seen = Counter(word for bag in bags for word in bag)
    total = len(elements) + 1
    weight = {word: math.log(total / count) + 0.3 for word, count in seen.items()}
    result = [
        _shared(element, bag, wanted, weight)
        + _exact(element, flat, quoted)
        + 1.2
        * bool(groups & {_GROUPS[word] for word in words(element.description) if word in _GROUPS})
        + _kind(element)
        for element, bag in zip(elements, bags, strict=True)
    ]
    return result


def _bag(element: Element) -> set[str]:
    choices = " ".join(label for _, label in element.choices)
    return set(words(f"{element.description} {choices}")) | {f"~{w}" for w in words(element.near)}


def _shared(element: Element, bag: set[str], wanted: set[str], weight: dict[str, float]) -> float:
    own = sum(weight[word] for word in bag if word in wanted)
    beside = sum(weight[word] for word in bag if word[:1] == "~" and word[1:] in wanted)
    context = len(wanted & set(words(element.context))) * 0.3
    return own + 0.5 * beside + context


def _exact(element: Element, flat: str, quoted: Sequence[str]) -> float:
    label = " ".join(words(element.description))
    if not label:
        return 0.0
    if label in quoted:
        return 6.0
    if f" {label} " in flat:
        return 2.0 + 0.5 * len(label.split())
    return 3.0 * any(part and f" {part} " in f" {label} " for part in quoted)


def _kind(element: Element) -> float:
    score = 1.5 if element.type in FIELDS else _PRIOR.get(element.type, 0.0)
    first = next(iter(words(element.description)), "")
    if element.type == "button" and first in _COMMITS:
        score += 1.5
    if _NEXT.match(element.description):
        score += 0.8
    if element.is_urgent:
        score += 4.0
    return score - 3.0 * ("disabled" in element.states)


def _stem(word: str) -> str:
    """Return a word without the commonest endings; enough to match a request with a label."""
    for ending in ("ies", "ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            stem = word[: -len(ending)]
            return stem + "y" if ending == "ies" else stem
    return word[:-1] if len(word) > 4 and word.endswith("e") else word
