"""Room layouts: which receptacles a generated room has. Unseen layouts are never trained on."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from dreamgym.envs.household import tables
from dreamgym.errors import EnvError, unknown_name
from dreamgym.seeds import derive_random

SIZES: tuple[str, ...] = ("tiny", "small", "full")
SPLITS: tuple[str, ...] = ("train", "valid_seen", "valid_unseen")

ROOMS_PER_TYPE = 12
"""Layouts per room type for training, and as many unseen ones."""

_MAX_TRIES = 2000


Combination = tuple[tuple[str, int], ...]
"""Receptacle kinds with their counts, sorted by kind."""


class Layout(msgspec.Struct, frozen=True):
    """One room: its name, type and receptacle kinds with counts, in a fixed order."""

    name: str
    room_type: str
    receptacles: Combination

    def has(self, kind: str) -> bool:
        """Return whether the room has a receptacle of this kind."""
        return any(kind == name for name, _ in self.receptacles)


def layouts(size: str, split: str) -> tuple[Layout, ...]:
    """Return the layouts of a split; `valid_seen` plays in the rooms of `train`."""
    if size not in SIZES:
        raise unknown_name("room size", size, SIZES)
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    train, unseen = _all_layouts(size)
    return unseen if split == "valid_unseen" else train


@lru_cache(maxsize=len(SIZES))
def _all_layouts(size: str) -> tuple[tuple[Layout, ...], tuple[Layout, ...]]:
    train: list[Layout] = []
    unseen: list[Layout] = []
    seen: set[Combination] = set()
    for room_type in tables.ROOM_TYPES:
        for number in range(2 * ROOMS_PER_TYPE):
            name = f"{size}-{room_type}-{number + 1:02d}"
            layout = Layout(name, room_type, _draw(size, room_type, name, seen))
            seen.add(layout.receptacles)
            (train if number < ROOMS_PER_TYPE else unseen).append(layout)
    return tuple(train), tuple(unseen)


def _draw(size: str, room_type: str, name: str, seen: set[Combination]) -> Combination:
    """Draw a combination of receptacles that no earlier room has."""
    random = derive_random("household layout", name)
    ranges = (tables.FULL_RECEPTACLES if size == "full" else tables.SMALL_RECEPTACLES)[room_type]
    (least, most), _, _ = tables.ROOM_SIZES[size]
    for _ in range(_MAX_TRIES):
        counts = {kind: random.randint(low, high) for kind, (low, high) in sorted(ranges.items())}
        if size != "full":  # thin out so that small rooms differ in what exists, not in size
            optional = [kind for kind, (low, _) in sorted(ranges.items()) if low == 0]
            for kind in random.sample(optional, len(optional) // 2):
                counts[kind] = 0
        combination = tuple((kind, count) for kind, count in sorted(counts.items()) if count)
        kinds = {kind for kind, _ in combination}
        # a kitchen without fridge and microwave would be a bathroom as far as tasks go
        is_useful = len(kinds) >= 4 and (room_type != "kitchen" or kinds & {"fridge", "microwave"})
        total = sum(count for _, count in combination)
        if is_useful and least <= total <= most and combination not in seen:
            return combination
    raise EnvError(f"no new layout for {name} in {_MAX_TRIES} tries")
