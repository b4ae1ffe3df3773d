"""Text before it is embedded or compared: cleaned, cut, reduced to its content words.

Transitions are stored whole; only what an encoder reads is shortened.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

SIMILARITY_METHOD = "jaccard of normalised word sets, v1"
"""Recorded wherever a threshold on `similarity` decided something."""

_DATA_URI = re.compile(r"data:[\w.+/-]{0,80};base64,[A-Za-z0-9+/=]{16,}")
_BLOB = re.compile(r"[^\s]{400,}")
_WORD = re.compile(r"[^\W_]+(?:\.\d+)?")
_EMPTY = frozenset(
    {"a", "an", "the", "one", "some", "any", "on", "onto", "in", "into", "inside", "to", "at"}
    | {"of", "from", "with", "under", "over", "upon", "and", "then", "it", "them", "its", "their"}
    | {"this", "that", "these", "those", "is", "are", "be", "please", "your", "task"}
)
_SAME = dict.fromkeys(("place", "move", "set", "bring", "drop", "leave", "find", "get"), "put")


def embedding_text(text: str, max_chars: int) -> str:
    """Return the text as an encoder should read it, at most about `max_chars` long.

    Embedded files and unbroken runs of 400 characters become `[data]`; of what is still too
    long the beginning and the end stay.

    >>> embedding_text("x" * 50 + " " + "y" * 50, 20)
    'xxxxxxxxxx [81 characters cut] yyyyyyyyyy'
    """
    whole = len(text)
    if whole > 20 * max_chars:  # far more than can stay: do not clean megabytes
        text = f"{text[: 10 * max_chars]} {text[-10 * max_chars :]}"
    if len(text) > max_chars or "base64" in text:
        text = _BLOB.sub("[data]", _DATA_URI.sub("[data]", text))
        text = " ".join(text.split())
    if len(text) <= max_chars:
        return text
    head = max_chars // 2
    tail = max_chars - head
    return f"{text[:head]} [{whole - max_chars} characters cut] {text[len(text) - tail :]}"


@functools.lru_cache(maxsize=8192)
def content_words(text: str) -> frozenset[str]:
    """Return the words that carry meaning: no articles or prepositions, singular, one word `put`.

    >>> sorted(content_words("Place one mug onto the shelf."))
    ['mug', 'put', 'shelf']
    """
    words = (_singular(word) for word in _WORD.findall(text.casefold()))
    return frozenset(_SAME.get(word, word) for word in words if word not in _EMPTY)


def similarity(left: frozenset[str], right: frozenset[str]) -> float:
    """Return shared words / all words of two `content_words` sets; 0.0 if both are empty."""
    union = len(left | right)
    return len(left & right) / union if union else 0.0


def is_near(words: frozenset[str], others: Iterable[frozenset[str]], threshold: float) -> bool:
    """Return whether any of the others is at least `threshold` similar."""
    return any(similarity(words, other) >= threshold for other in others)


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
