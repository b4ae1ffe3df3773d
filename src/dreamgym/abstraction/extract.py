"""From a tree to a page: what can be acted on, what must be kept, what can be read."""

from __future__ import annotations

import re

from dreamgym.abstraction.nodes import FIELDS, Node, text_of, walk
from dreamgym.abstraction.page import Element, Page, Table

MESSAGE_ROLES = frozenset({"alert", "alertdialog", "status", "log", "tooltip"})
TABLE_ROLES = frozenset({"table", "grid", "treegrid"})
CHART_ROLES = frozenset({"figure", "graphicsdocument", "graphics", "chart"})
GROUP_ROLES = frozenset({"heading", "legend", "caption"})
LANDMARKS = frozenset({"contentinfo", "footer", "navigation", "nav", "banner", "complementary"})
LISTS = frozenset({"combobox", "listbox"})
DIALOGS = frozenset({"dialog", "alertdialog"})

MAX_LABEL = 120
"""Longest description of an element, in characters."""

MAX_NEAR = 5
"""Texts and links before an element that may say what it belongs to."""

_MESSAGE = re.compile(
    r"(?i)\b(error|invalid|incorrect|denied|failed|failure|not found|no results|out of stock"
    r"|successfully|has been (?:saved|added|deleted|sent)|is required|please (?:enter|select|try)"
    r"|expired|unavailable|warning)\b"
)


def extract(root: Node) -> Page:
    """Return the page of a tree; nothing actionable is left out here."""
    collector = _Collector()
    collector.visit(root)
    return collector.page()


class _Collector:
    """Walks the tree once in document order."""

    def __init__(self) -> None:
        self._title = ""
        self._elements: list[Element] = []
        self._tables: list[Table] = []
        self._messages: list[str] = []
        self._texts: list[str] = []
        self._heading = ""
        self._before = ""
        self._after = ""
        self._labels: list[str] = []
        self._seen: dict[tuple[str, str], int] = {}
        self._in_table = 0
        self._in_dialog = 0

    def page(self) -> Page:
        """Return what was collected; each message and text once."""
        messages = tuple(dict.fromkeys(self._messages))
        said = {*messages, *(element.description for element in self._elements)}
        texts = [text for text in dict.fromkeys(self._texts) if text not in said]
        return Page(
            title=self._title or self._heading,
            elements=tuple(self._elements),
            tables=tuple(self._tables),
            messages=messages,
            texts=tuple(texts),
        )

    def visit(self, node: Node) -> None:
        """Take up a node and what is below it."""
        if (node.role in {"document", "title"} and node.name) or node.role == "title":
            self._title = self._title or text_of(node)
            if node.role == "title":
                return
        if node.role in MESSAGE_ROLES and text_of(node):
            self._messages.append(text_of(node))
        if node.role in TABLE_ROLES and not self._in_table:
            self._table(node)
            return
        if node.role in CHART_ROLES:
            self._chart(node)
        if node.is_actionable:
            self._element(node)
            inside = (n for child in node.children for n in walk(child))
            if node.role in LISTS or not any(n.is_actionable for n in inside):
                return  # what is inside is its label
        self._text(node)
        if node.role in LANDMARKS:
            self._landmark(node)
            return
        is_dialog = node.role in DIALOGS
        self._in_dialog += is_dialog
        for place, child in enumerate(node.children):
            following = node.children[place + 1 : place + 2]
            has_label = following and following[0].role in {"text", "label"}
            self._after = text_of(following[0]) if has_label else ""
            self.visit(child)
        self._in_dialog -= is_dialog

    def _landmark(self, node: Node) -> None:
        """Visit a menu or footer, which does not belong to the heading before it."""
        heading, self._heading = self._heading, ""
        for child in node.children:
            self.visit(child)
        self._heading = heading or self._heading

    def _text(self, node: Node) -> None:
        text = " ".join(node.name.split())
        if node.role in GROUP_ROLES:
            text = text_of(node)
            self._heading = text or self._heading
        if node.role in GROUP_ROLES or (
            text and node.role in {"text", "paragraph", "label", "img"}
        ):
            self._before = text or self._before
            if text:
                self._labels.append(text)
            if text and not self._in_table:
                (self._messages if _MESSAGE.search(text) else self._texts).append(text)

    def _element(self, node: Node) -> None:
        label = " ".join(node.name.split())
        choices: tuple[tuple[str, str], ...] = ()
        if node.role in LISTS:
            options = [n for n in walk(node) if n is not node and n.role == "option"]
            choices = tuple((n.id, text_of(n) + _mark(n)) for n in options)
        elif not label:
            label = text_of(node)
        if not label and node.role in {"checkbox", "radio"}:
            label = self._after or self._before  # its text stands behind it
        if not label and node.role in FIELDS:
            label = self._before
        states = tuple(
            name if value.casefold() == "true" else f"{name}: {value}"
            for name, value in node.states.items()
            if name not in {"clickable", "focused"}
        )
        self._elements.append(
            Element(
                id=node.id,
                type=node.role,
                description=_shorten(label),
                states=states,
                choices=choices,
                context=self._heading,
                near=self._near(node.role, label),
                is_urgent=self._in_dialog > 0 or "focused" in node.states,
                is_inside_table=self._in_table > 0,
            )
        )
        if node.role == "link" and label:
            self._labels.append(label)

    def _near(self, role: str, label: str) -> str:
        """Return the longest text or link since the last element of this role and label.

        In a list of products with equal buttons that is the product's name, not its price.
        """
        start = max(self._seen.get((role, label), 0), len(self._labels) - MAX_NEAR)
        self._seen[role, label] = len(self._labels)
        others = [text for text in self._labels[start:] if text != label]
        return max(others, key=len, default="")

    def _table(self, node: Node) -> None:
        """Keep a table whole; a table without cells is only a layout."""
        rows = [_cells(row) for row in walk(node) if row.role == "row"]
        rows = [row for row in rows if any(row)]
        is_layout = len(rows) < 2 or max(len(row) for row in rows) < 2
        if is_layout:
            for child in node.children:
                self.visit(child)
            return
        title = " ".join(node.name.split()) or self._heading
        self._tables.append(Table(title=title, rows=tuple(rows)))
        self._in_table += 1
        for child in node.children:
            self.visit(child)
        self._in_table -= 1

    def _chart(self, node: Node) -> None:
        inside = [" ".join(n.name.split()) for n in walk(node) if n is not node and n.name]
        title = " ".join(node.name.split()) or self._heading
        if inside or title:
            self._tables.append(Table(title=title, rows=tuple((text,) for text in inside)))


def _cells(row: Node) -> tuple[str, ...]:
    cells = [n for n in row.children if n.role in {"cell", "columnheader", "rowheader"}]
    return tuple(_cell(cell) for cell in cells)


def _cell(cell: Node) -> str:
    """Return the text of a cell; actionable parts begin with their id."""
    parts = [_part(node) for node in cell.children] if cell.children else [cell.name]
    text = " ".join(part for part in parts if part)
    own = f"[{cell.id}] " if cell.is_actionable else ""
    return own + (text or " ".join(cell.name.split()))


def _part(node: Node) -> str:
    if node.is_actionable:
        return f"[{node.id}] {text_of(node)}{_mark(node)}".strip()
    if node.name and not any(n.is_actionable for n in walk(node)):
        return " ".join(node.name.split())
    return " ".join(part for part in (_part(child) for child in node.children) if part)


def _mark(node: Node) -> str:
    on = [name for name in ("selected", "checked") if name in node.states]
    return f" ({', '.join(on)})" if on else ""


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 3]}..."
