"""A page as a tree of roles and names, whatever it was read from."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

ACTIONABLE = frozenset(
    {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "switch"}
    | {"menuitem", "menuitemcheckbox", "menuitemradio", "option", "tab", "slider", "spinbutton"}
    | {"listbox", "treeitem", "datepicker", "filechooser"}
)
"""Roles an agent can act on."""
FIELDS = frozenset({"textbox", "searchbox", "combobox", "spinbutton", "slider", "datepicker"})
"""Roles that take a value and often have their name in a text before them."""
STATES = ("checked", "selected", "expanded", "disabled", "required", "pressed", "focused", "value")
"""Properties that change what an action does."""


class Node(msgspec.Struct, kw_only=True):
    """One node. `id` is the page's own and never changed; "" where it has none."""

    role: str
    id: str = ""
    name: str = ""
    states: dict[str, str] = {}
    children: list[Node] = []

    @property
    def is_actionable(self) -> bool:
        """Whether an agent can act on it by its id."""
        return bool(self.id) and (self.role in ACTIONABLE or "clickable" in self.states)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it in document order."""
    yield node
    for child in node.children:
        yield from walk(child)


def text_of(node: Node) -> str:
    """Return the name of a node, else the names below it, in one line."""
    if node.name:
        return " ".join(node.name.split())
    parts = (text_of(child) for child in node.children)
    return " ".join(part for part in parts if part)
