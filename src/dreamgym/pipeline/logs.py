"""Recorded episodes from any number of files; what cannot be read is counted, not dropped."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dreamgym.errors import ConfigError, DataError
from dreamgym.records import Quarantined, read_records
from dreamgym.replay.guard import EVALUATION_SPLITS, EvaluationGuard
from dreamgym.types import Rollout


class Logs(msgspec.Struct, frozen=True, kw_only=True):
    """Usable episodes, and what was left out."""

    rollouts: list[Rollout]
    """Scored episodes with at least one transition, each id once, in the order of the files."""
    quarantined: list[Quarantined]
    """Lines that could not be used."""
    num_faults: int
    """Episodes that failed through a fault of ours: nothing is learned from them."""

    @property
    def num_transitions(self) -> int:
        """Real transitions in the usable episodes."""
        return sum(len(rollout.transitions) for rollout in self.rollouts)

    @property
    def suite(self) -> str:
        """The one suite all episodes are of; raises `DataError` if they are of several."""
        names = sorted({rollout.task.suite for rollout in self.rollouts})
        if len(names) != 1:
            raise DataError(f"the logs hold episodes of several suites ({', '.join(names)})")
        return names[0]


def read_logs(paths: Sequence[str], *, allow_evaluation_split: bool = False) -> Logs:
    """Read record files of episodes.

    Raises `DataError` for a missing file or one without a usable episode, and `UserError` for
    episodes of an evaluation split: nothing may be learned from them.
    """
    if not paths:
        raise ConfigError("no logs given; pass at least one file written by `dreamgym collect`")
    guard = EvaluationGuard((), () if allow_evaluation_split else EVALUATION_SPLITS)
    latest: dict[str, Rollout] = {}
    quarantined: list[Quarantined] = []
    for path in paths:
        result = read_records(path, Rollout, kind="rollout")
        quarantined += result.quarantined
        latest |= {rollout.id: rollout for rollout in result.records}
    for rollout in latest.values():
        guard.allows(rollout.task.id, split=rollout.task.split, where="training data")
    usable = [r for r in latest.values() if r.transitions and not r.is_fault]
    if not usable:
        raise DataError(
            f"no usable episode in {', '.join(map(repr, paths))} "
            f"({len(quarantined)} broken lines, {len(latest)} episodes without a transition or "
            "failed by a fault); log some with `dreamgym collect`"
        )
    return Logs(
        rollouts=usable,
        quarantined=quarantined,
        num_faults=sum(rollout.is_fault for rollout in latest.values()),
    )
