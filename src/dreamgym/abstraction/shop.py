"""Read WebShop's text pages: strings joined by ` [SEP] `; ids are what `click[...]` takes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dreamgym.abstraction.page import Element, Page

SEPARATOR = " [SEP] "
NAVIGATION = ("Back to Search", "Next >", "< Prev", "Description", "Features", "Reviews")
OPTION_NAMES = frozenset({"color", "size", "style", "flavor name", "scent", "fit type", "pattern"})
"""Names of options, for pages that come without their list of actions."""

_ASIN = re.compile(r"[A-Z0-9]{10}")
_CLICK = re.compile(r"click\[(.*)\]", re.DOTALL)


def looks_like_shop(text: str) -> bool:
    """Return whether a text is a WebShop page."""
    return SEPARATOR in text


def parse_shop(text: str, actions: Sequence[str] | None = None) -> Page:
    """Return the page; `actions` (`click[...]`) say exactly what can be clicked."""
    parts = [part.strip() for part in text.split(SEPARATOR.strip())]
    parts = [part for part in parts if part]
    instruction = parts.index("Instruction:") + 1 if "Instruction:" in parts else -1
    body = parts[instruction + 1 :] if instruction > 0 else parts
    clicks = _clicks(actions)
    texts: list[str] = []  # the instruction is known and not repeated
    elements: list[Element] = []
    options: dict[str, list[str]] = {}
    place, option, name = 0, "", ""
    while place < len(body):
        part = body[place]
        if body[place + 1 : place + 2] and body[place + 1].startswith("Price:"):
            name = part  # a product's title stands before its price
        elif _ASIN.fullmatch(part) and place + 1 < len(body):
            price = body[place + 2] if place + 2 < len(body) else ""
            label = body[place + 1] + (f", {price}" if price.startswith("$") else "")
            elements.append(Element(id=part, type="product", description=label))
            place += 3 if price.startswith("$") else 2
            continue
        elif part in NAVIGATION or part in ("Search", "Buy Now"):
            elements.append(_control(part))
        elif _is_option(part, option, clicks):
            options.setdefault(option, []).append(part)
        elif _names_option(body, place, clicks):
            option = part
        else:
            option = ""
            texts.append(part)
        place += 1
    groups = tuple(_group(name, values) for name, values in options.items())
    return Page(title=name or _title(parts), elements=(*groups, *elements), texts=tuple(texts))


def _clicks(actions: Sequence[str] | None) -> frozenset[str] | None:
    if actions is None:
        return None
    matches = (_CLICK.fullmatch(action.strip()) for action in actions)
    return frozenset(match[1].casefold() for match in matches if match)


def _control(part: str) -> Element:
    if part == "Search":
        return Element(id="search", type="searchbox", description="search[<keywords>]")
    return Element(id=part, type="button", description=part)


def _group(name: str, values: Sequence[str]) -> Element:
    """Return an option with its values; it is the values that are clicked."""
    label = name or "options"
    choices = tuple((value, value) for value in values)
    return Element(id=label, type="option", description=label, choices=choices)


def _is_option(part: str, option: str, clicks: frozenset[str] | None) -> bool:
    if clicks is not None:
        return part.casefold() in clicks - _FIXED
    return bool(option) and part.casefold() not in OPTION_NAMES and not part.startswith("Price:")


def _names_option(body: Sequence[str], place: int, clicks: frozenset[str] | None) -> bool:
    if clicks is None:
        return body[place].casefold() in OPTION_NAMES
    return place + 1 < len(body) and body[place + 1].casefold() in clicks - _FIXED


_FIXED = frozenset(name.casefold() for name in (*NAVIGATION, "Buy Now", "Search"))


def _title(parts: Sequence[str]) -> str:
    if any(part.startswith("Page ") and "results" in part for part in parts):
        return "search results"
    return "shop" if "Search" in parts else parts[0][:80] if parts else ""
