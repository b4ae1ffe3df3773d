"""Choose a few dreamt trajectories to read from `records/dream.jsonl`.

The choice is a rule, not a taste: the last success and the last failure (unremarkable ones where
there are any) and the last one that was flagged or played a generated task.  Late dreams show what
the policy was trained on in the end.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

import msgspec

from dreamgym.errors import DataError
from dreamgym.records import Header, decode_line
from dreamgym.types import Rollout

PLAIN_FLAGS = frozenset({"no_effect"})
"""Flags of everyday events: an action without effect makes no trajectory remarkable."""

_KEPT = 3
"""Candidates kept per category: enough to show three different trajectories."""


class ChosenDream(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory and why it is shown."""

    title: str
    rollout: Rollout


class Dreams(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen trajectories, and how many there were."""

    chosen: tuple[ChosenDream, ...] = ()
    num_read: int = 0
    num_faults: int = 0
    num_skipped: int = 0
    """Lines that are no rollouts, the header not counted."""


def read_dreams(path: Path) -> Dreams:
    """Read the records line by line; an absent file gives no dreams."""
    if not path.is_file():
        return Dreams()
    flagged: deque[Rollout] = deque(maxlen=_KEPT)
    won: deque[Rollout] = deque(maxlen=_KEPT)
    lost: deque[Rollout] = deque(maxlen=_KEPT)
    num_read = num_faults = num_skipped = 0
    with path.open("rb") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                rollout = decode_line(line, Rollout)
            except DataError:
                num_skipped += not is_header(line)
                continue
            num_read += 1
            num_faults += rollout.is_fault
            if rollout.is_fault or not rollout.transitions:
                continue
            (won if rollout.success else lost).append(rollout)
            if remarkable_flags(rollout) or rollout.task.generated:
                flagged.append(rollout)
    return Dreams(
        chosen=_choose(flagged, won, lost),
        num_read=num_read,
        num_faults=num_faults,
        num_skipped=num_skipped,
    )


def remarkable_flags(rollout: Rollout) -> list[str]:
    """Return the flags of a rollout that are worth a reader's attention, sorted."""
    flags = {flag for transition in rollout.transitions for flag in transition.flags}
    return sorted(flags - PLAIN_FLAGS)


def _choose(
    flagged: deque[Rollout], won: deque[Rollout], lost: deque[Rollout]
) -> tuple[ChosenDream, ...]:
    """Take the latest of each category; no trajectory is shown twice."""
    chosen: list[ChosenDream] = []
    # Plain trajectories first, so that a flagged one is used up only where nothing else is left.
    marked = {rollout.id for rollout in flagged}
    for title, candidates in (("A success", won), ("A failure", lost)):
        latest = sorted(candidates, key=lambda rollout: rollout.id not in marked)
        if latest:
            chosen.append(ChosenDream(title=title, rollout=latest[-1]))
    used = {dream.rollout.id for dream in chosen}
    rest = [rollout for rollout in flagged if rollout.id not in used]
    if rest:
        title = "A generated task" if rest[-1].task.generated else "A flagged one"
        chosen.append(ChosenDream(title=title, rollout=rest[-1]))
    return tuple(chosen)


def is_header(line: bytes) -> bool:
    """Return whether a line is the header of a record file; a resumed file may hold several."""
    try:
        decode_line(line, Header)
    except DataError:
        return False
    return True
