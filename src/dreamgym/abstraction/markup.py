"""Read HTML text and MiniWoB's JSON DOM into the same tree; nothing is executed or fetched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

from dreamgym.abstraction.nodes import Node

ID_KEYS = ("bid", "data-bid", "ref", "data-element-id", "id", "name")
"""Attributes an element is addressed by, best first; without any it cannot be acted on."""

_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "wbr"}
)
_DROPPED = frozenset({"script", "style", "template", "noscript", "svg", "head"})
_ROLES = {
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "heading"),
    "a": "link",
    "button": "button",
    "textarea": "textbox",
    "select": "combobox",
    "option": "option",
    "table": "table",
    "tr": "row",
    "td": "cell",
    "th": "columnheader",
    "img": "img",
    "figure": "figure",
    "canvas": "figure",
    "dialog": "dialog",
    "label": "label",
    "legend": "label",
    "title": "title",
}
_INPUTS = {
    **dict.fromkeys(("button", "submit", "reset", "image"), "button"),
    "checkbox": "checkbox",
    "radio": "radio",
    "range": "slider",
    "number": "spinbutton",
    "search": "searchbox",
    "date": "datepicker",
    "file": "filechooser",
}
_MESSAGE_WORDS = ("error", "alert", "warning", "success", "message", "notice", "invalid", "flash")
_NAME_KEYS = ("aria-label", "placeholder", "alt", "title")
_CLICKS = ("onclick", "ng-click", "data-clickable")


def parse_html(text: str) -> Node:
    """Return the tree of an HTML text; broken nesting is read as browsers do, roughly."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.root


def looks_like_dom(text: str) -> bool:
    """Return whether a text is a JSON DOM as MiniWoB records it."""
    return text.lstrip().startswith("{") and '"tag"' in text and _json(text) is not None


def parse_dom(text: str) -> Node:
    """Return the tree of a JSON DOM (`tag`, `ref`, `text`, `children`); ids are the refs."""
    data = _json(text)
    return _from_dom(data) if data is not None else Node(role="document", children=[])


class _Reader(HTMLParser):
    """Builds the tree; closes what HTML lets stand open."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node(role="document", children=[])
        self._open: list[tuple[str, Node]] = [("", self.root)]
        self._dropped: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        if self._dropped or (tag in _DROPPED and tag != "head"):
            if tag in _DROPPED and tag not in _VOID:
                self._dropped.append(tag)
            return
        given = {key: value or "" for key, value in attrs}
        if _is_hidden(given):
            if tag not in _VOID:
                self._dropped.append(tag)
            return
        if tag in {"td", "th", "tr", "li", "option", "p"}:
            self._close_open(tag)
        node = _element(tag, given)
        self._open[-1][1].children.append(node)
        if tag not in _VOID:
            self._open.append((tag, node))

    def handle_endtag(self, tag: str) -> None:
        """Close an element and everything left open inside it."""
        if self._dropped:
            if tag == self._dropped[-1]:
                self._dropped.pop()
            return
        tags = [name for name, _ in self._open]
        if tag in tags:
            del self._open[len(tags) - 1 - tags[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        """Take up text."""
        text = " ".join(data.split())
        if text and not self._dropped:
            self._open[-1][1].children.append(Node(role="text", name=text, children=[]))

    def _close_open(self, tag: str) -> None:
        """Close an open sibling of the same kind (`<td>a<td>b`)."""
        closed = {"td": ("td", "th"), "th": ("td", "th"), "tr": ("td", "th", "tr")}.get(tag, (tag,))
        while self._open[-1][0] in closed:
            self._open.pop()


def _element(tag: str, given: Mapping[str, str]) -> Node:
    kind = given.get("type", "text").casefold()
    role = _INPUTS.get(kind, "textbox") if tag == "input" else _ROLES.get(tag, tag)
    role = given.get("role", "").split(" ")[0].casefold() or role
    classes = f"{given.get('class', '')} {given.get('id', '')}".casefold()
    if role in {"div", "span", "p", "ul", "li"} and any(w in classes for w in _MESSAGE_WORDS):
        role = "alert"
    states = {key: "true" for key in ("checked", "selected", "disabled") if key in given}
    if given.get("value") and tag == "input" and role != "button":
        states["value"] = given["value"]
    if any(key in given for key in _CLICKS) or given.get("tabindex", "-1") == "0":
        states["clickable"] = "true"
    name = next((given[key] for key in _NAME_KEYS if given.get(key)), "")
    if role == "button" and tag == "input":
        name = given.get("value") or name or "Submit"
    identity = next((given[key] for key in ID_KEYS if given.get(key)), "")
    return Node(role=role, id=identity, name=name, states=states, children=[])


def _is_hidden(given: Mapping[str, str]) -> bool:
    style = given.get("style", "").replace(" ", "").casefold()
    return (
        "hidden" in given
        or given.get("type", "").casefold() == "hidden"
        or given.get("aria-hidden", "").casefold() == "true"
        or "display:none" in style
        or "visibility:hidden" in style
    )


def _from_dom(data: Mapping[str, Any]) -> Node:
    """Return the node of a JSON element. Any: whatever the record holds."""
    tag = str(data.get("tag", "")).casefold()
    given = {"class": str(data.get("classes", ""))}
    tag, _, kind = tag.partition("_")  # MiniWoB writes `INPUT_text`
    if kind:
        given["type"] = kind
    node = _element(tag, given)
    node.id = str(data.get("ref", data.get("id", "")) or "")
    text = " ".join(str(data.get("text", "") or "").split())
    if text:
        node.children.append(Node(role="text", name=text, children=[]))
    value = data.get("value")
    if value not in (None, "", False):
        node.states["value" if not isinstance(value, bool) else "checked"] = str(value)
    node.children.extend(
        _from_dom(child) for child in data.get("children", ()) if isinstance(child, Mapping)
    )
    return node


def _json(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and "tag" in data else None
