"""Spellings of one command: letter case, spaces, and the verbs of older game versions."""

from __future__ import annotations

import re
from collections.abc import Callable

_PLACING = re.compile(
    r"(?:put|move|place) (?P<thing>\S.*? \d+) (?:in/on|into|onto|in|on|to) (?P<target>\S.* \d+)"
)
_FORMS = ("move {} to {}", "put {} in/on {}", "put {} in {}", "put {} on {}")


def to_admissible(command: str, is_admissible: Callable[[str], bool]) -> str | None:
    """Return the admissible spelling of a command, None when there is none.

    The words between object and receptacle are replaced as words only, so `onion 1`, `pencil 1`
    or `bin 2` keep their letters.

    >>> to_admissible("put onion 1 in bin 2", {"move onion 1 to bin 2"}.__contains__)
    'move onion 1 to bin 2'
    """
    if is_admissible(command):
        return command
    plain = " ".join(command.lower().split())
    if is_admissible(plain):
        return plain
    match = _PLACING.fullmatch(plain)
    if match is None:
        return None
    spelled = (form.format(match["thing"], match["target"]) for form in _FORMS)
    return next((form for form in spelled if is_admissible(form)), None)
