"""What a page comes down to: elements, tables, messages, text."""

from __future__ import annotations

import msgspec


class Element(msgspec.Struct, frozen=True, kw_only=True):
    """Something to act on. `id` is the page's own; `context` names the group it stands in."""

    id: str
    type: str
    description: str
    states: tuple[str, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()
    """(id, label) of what a list or drop-down offers."""
    context: str = ""
    near: str = ""
    """A text before it, which tells equal ones apart (thirty times `Add to Cart`)."""
    is_urgent: bool = False
    """In an open dialog, or focused: it comes before the rest of the page."""
    is_inside_table: bool = False
    """Shown with its id in a table, which is kept whole."""

    def line(self) -> str:
        """Return it as the agent sees it.

        >>> Element(id="463", type="button", description="Total Commits").line()
        '[463] button: "Total Commits"'
        """
        states = f" ({', '.join(self.states)})" if self.states else ""
        listed = " | ".join(_choice(i, label) for i, label in self.choices)
        choices = f" choices: {listed}" if listed else ""
        if self.description == self.id:  # the label is the id, as in WebShop
            return f"[{self.id}] {self.type}{states}{choices}"
        return f'[{self.id}] {self.type}: "{self.description}"{states}{choices}'


def _choice(identity: str, label: str) -> str:
    """Return one choice; its label only where it says more than its id."""
    if not identity:
        return label
    return f"[{identity}] {label}" if label and label != identity else f"[{identity}]"


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table or chart, whole. Cells are text; actionable ones begin with their id."""

    title: str
    rows: tuple[tuple[str, ...], ...]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page. `texts` are its headings and paragraphs in order."""

    title: str = ""
    elements: tuple[Element, ...] = ()
    tables: tuple[Table, ...] = ()
    messages: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
