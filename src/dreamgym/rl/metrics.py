"""What an update reports."""

from __future__ import annotations

import msgspec


class UpdateMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one update; `num_samples` 0 means that nothing was learned and nothing moved.

    `metrics` maps paths to numbers, e.g. `policy/clip_fraction`; means are over sampled tokens.
    """

    num_samples: int
    num_tokens: int
    """Sampled (trained) tokens, not context."""
    num_steps: int
    """Optimiser steps taken."""
    metrics: dict[str, float]
