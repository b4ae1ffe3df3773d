"""Observation in, abstract observation out; by rules, the same for real pages and dreamt ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Protocol

from dreamgym.abstraction.axtree import looks_like_axtree, parse_axtree
from dreamgym.abstraction.extract import extract
from dreamgym.abstraction.markup import looks_like_dom, parse_dom, parse_html
from dreamgym.abstraction.page import Element, Page
from dreamgym.abstraction.render import AbstractionSettings, choose, render
from dreamgym.abstraction.shop import looks_like_shop, parse_shop
from dreamgym.types import Observation

Kind = Literal["auto", "axtree", "html", "dom", "shop", "text"]

_HTML = re.compile(
    r"(?i)<(?:!doctype|html|body|div|form|input|button|table|ul|h[1-6]|a|p|span)\b[^<>]*>"
)
_BANNER = re.compile(r"^-= .* =-\s*", re.MULTILINE)
_BLANKS = re.compile(r"\n\s*\n+")


class Mapper(Protocol):
    """What turns observations into abstract ones."""

    async def abstract(self, observation: Observation, instruction: str) -> Observation:
        """Return the abstract observation for a task; ids are the page's own."""
        ...


class RuleMapper:
    """Maps by rules. Text that is no page (ALFWorld's) is abstract already: its banner goes."""

    def __init__(self, settings: AbstractionSettings | None = None, *, kind: Kind = "auto") -> None:
        """`kind` says what observations are; `auto` looks at each."""
        self.settings = settings or AbstractionSettings()
        self.kind = kind

    async def abstract(self, observation: Observation, instruction: str) -> Observation:
        """Return the abstract observation."""
        return self.map(observation, instruction)

    def map(self, observation: Observation, instruction: str) -> Observation:
        """Return the abstract observation; the same without waiting."""
        page = read_page(observation.text, observation.actions, kind=self.kind)
        if page is None:
            return Observation(text=plain(observation.text), actions=observation.actions)
        shown = choose(page, instruction, self.settings)
        return finish(page, shown, observation, instruction, self.settings)


def finish(
    page: Page,
    shown: Sequence[Element],
    observation: Observation,
    instruction: str,
    settings: AbstractionSettings,
) -> Observation:
    """Return the observation that shows these elements, and the actions that go with them."""
    text = render(page, shown, instruction, settings)
    return Observation(text=text, actions=kept_actions(page, shown, observation.actions))


def read_page(
    text: str, actions: Sequence[str] | None = None, *, kind: Kind = "auto"
) -> Page | None:
    """Return the page in a text, None where the text is no page."""
    found = _kind(text) if kind == "auto" else kind
    if found == "shop":
        return parse_shop(text, actions)
    if found == "axtree":
        return extract(parse_axtree(text))
    if found == "html":
        return extract(parse_html(text))
    return extract(parse_dom(text)) if found == "dom" else None


def kept_actions(
    page: Page, shown: Sequence[Element], actions: Sequence[str] | None
) -> tuple[str, ...] | None:
    """Return the actions on elements still in sight, and those on no element at all."""
    if actions is None:
        return None
    visible = {element.id.casefold() for element in shown}
    visible |= {element.id.casefold() for element in page.elements if element.is_inside_table}
    visible |= {i.casefold() for element in page.elements for i, _ in element.choices if i}
    hidden = {element.id.casefold() for element in page.elements} - visible
    return tuple(action for action in actions if not _targets(action) & hidden)


def plain(text: str) -> str:
    """Return a text without banner and empty lines."""
    return _BLANKS.sub("\n", _BANNER.sub("", text)).strip() or text


def _targets(action: str) -> set[str]:
    """Return what an action may name as its element: `click('12')`, `click[12 oz [2 pack]]`."""
    inner = re.search(r"[\[(](.*)[\])]$", action.strip(), re.DOTALL)
    if inner is None:
        return set()
    first = inner[1].split(",")[0].strip().strip("'\"")
    return {inner[1].strip().casefold(), first.casefold()}


def _kind(text: str) -> Kind:
    if looks_like_shop(text):
        return "shop"
    if looks_like_dom(text):
        return "dom"
    if looks_like_axtree(text):
        return "axtree"
    return "html" if _HTML.search(text) else "text"
