"""From a page to the abstract state the agent reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from dreamgym.abstraction.page import Element, Page, Table
from dreamgym.abstraction.rank import scores, words
from dreamgym.errors import ConfigError

MIN_SCORE = 0.35
"""Score below which an element is not worth a line; a word in its surroundings is not enough."""


class AbstractionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of a page is kept."""

    min_elements: int = 3
    """Elements shown even when nothing speaks for them, where the page has as many."""
    max_elements: int = 10
    """Elements shown at most; those inside tables are shown there and not counted."""
    max_choices: int = 12
    """Choices shown of one list; those that fit the task first."""
    max_texts: int = 8
    """Lines of headings and paragraphs, those that fit the task first."""
    max_text_chars: int = 300
    """Longest line of text."""

    def __post_init__(self) -> None:
        """Refuse limits that contradict each other."""
        if not 1 <= self.min_elements <= self.max_elements:
            raise ConfigError(
                f"min_elements must be in 1..max_elements ({self.max_elements}); "
                f"got {self.min_elements}"
            )
        for name in ("max_choices", "max_texts", "max_text_chars"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0; got {getattr(self, name)}")


def choose(page: Page, instruction: str, settings: AbstractionSettings) -> list[Element]:
    """Return the elements worth showing outside tables, in the order of the page."""
    free = [element for element in page.elements if not element.is_inside_table]
    found = scores(free, instruction)
    order = sorted(range(len(free)), key=lambda i: (-found[i], i))
    kept = [
        i
        for rank, i in enumerate(order[: settings.max_elements])
        if rank < settings.min_elements or found[i] > MIN_SCORE
    ]
    return [free[i] for i in sorted(kept)]


def render(
    page: Page, shown: Sequence[Element], instruction: str, settings: AbstractionSettings
) -> str:
    """Return the abstract state: title, messages, elements, tables, text."""
    lines = [f"Page: {page.title}"] if page.title else []
    lines += [f"Message: {message}" for message in page.messages]
    repeated = Counter((element.type, element.description) for element in page.elements)
    for element in shown:
        is_repeated = repeated[element.type, element.description] > 1
        lines.append(_with_choices(_told_apart(element, is_repeated), instruction, settings).line())
    hidden = sum(not e.is_inside_table for e in page.elements) - len(shown)
    if hidden > 0:
        lines.append(f"({hidden} more elements are not shown)")
    for table in page.tables:
        lines += _table_lines(table)
    lines += _texts(page, instruction, settings)
    return "\n".join(lines)


def _told_apart(element: Element, is_repeated: bool) -> Element:
    if not is_repeated or not element.near:
        return element
    return replace(element, description=f"{element.description} ({element.near[:60]})")


def _with_choices(element: Element, instruction: str, settings: AbstractionSettings) -> Element:
    if len(element.choices) <= settings.max_choices:
        return element
    wanted = set(words(instruction))

    def fit(choice: tuple[str, str]) -> float:
        label = set(words(choice[1]))
        is_on = choice[1].endswith(("(selected)", "(checked)"))
        return 0.3 * len(label - wanted) - len(label & wanted) - is_on

    best = sorted(element.choices, key=fit)[: settings.max_choices]
    rest = len(element.choices) - len(best)
    kept = [choice for choice in element.choices if choice in best]
    return replace(element, choices=(*kept, ("", f"{rest} more")))


def _table_lines(table: Table) -> list[str]:
    title = f'Table "{table.title}":' if table.title else "Table:"
    return [title, *(" | ".join(row) for row in table.rows)]


def _texts(page: Page, instruction: str, settings: AbstractionSettings) -> list[str]:
    texts = [text for text in page.texts if text != page.title]
    wanted = set(words(instruction))
    order = sorted(range(len(texts)), key=lambda i: (-len(wanted & set(words(texts[i]))), i))
    kept = sorted(order[: settings.max_texts])
    limit = settings.max_text_chars
    return [t if len(t) <= limit else f"{t[:limit]}..." for t in (texts[i] for i in kept)]
