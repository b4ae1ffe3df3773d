"""Learning-rate schedules as plain arithmetic."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def decay(schedule: Schedule, progress: float, final_fraction: float) -> float:
    """Return the share of the peak rate after `progress` in [0, 1] of the falling part."""
    progress = min(max(progress, 0.0), 1.0)
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        progress = 0.5 - 0.5 * math.cos(math.pi * progress)
    return 1.0 - (1.0 - final_fraction) * progress
