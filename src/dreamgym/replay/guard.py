"""Evaluation tasks and their episodes never enter a buffer, the seeds or the curriculum."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dreamgym.errors import UserError

EVALUATION_SPLITS = frozenset({"valid_seen", "valid_unseen", "test"})
"""Names that mean evaluation in the suites we know."""

_PART = re.compile(r"[^A-Za-z0-9_]+")


class EvaluationGuard:
    """Knows evaluation tasks by id and by split; refuses them, or counts and skips them.

    A split is recognised by `Task.split`, or as a part of an id such as
    `small-s0-valid_unseen-00003-pick`.
    """

    def __init__(
        self, tasks: Iterable[str] = (), splits: Iterable[str] = (), *, skip: bool = False
    ) -> None:
        self.tasks = frozenset(tasks)
        self.splits = frozenset(splits)
        self.num_skipped = 0
        self._skip = skip

    def allows(self, task_id: str, *, where: str, split: str = "", count: int = 1) -> bool:
        """Return whether a task may enter; raises `UserError` unless told to skip.

        `where` names what it would have entered, `count` how many things are left out with it.
        """
        parts = {split, *_PART.split(task_id)} if self.splits else set()
        if task_id not in self.tasks and self.splits.isdisjoint(parts):
            return True
        if not self._skip:
            raise UserError(
                f"task {task_id!r} is an evaluation task and may not enter {where}; leave it out "
                "(evaluation tasks are given by id or by split name)"
            )
        self.num_skipped += count
        return False
