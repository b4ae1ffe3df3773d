"""DreamGym: train LLM agents by reinforcement learning in dreams, judge them in the real world.

The paper is arXiv 2511.03773.  Importing this package is light; models and training load when
they are used.
"""

from dreamgym.types import (
    Completion,
    Observation,
    Origin,
    Rollout,
    RolloutGroup,
    Sample,
    Scenario,
    Step,
    StopReason,
    Task,
    Transition,
)

__version__ = "0.1.0"

__all__ = [
    "Completion",
    "Observation",
    "Origin",
    "Rollout",
    "RolloutGroup",
    "Sample",
    "Scenario",
    "Step",
    "StopReason",
    "Task",
    "Transition",
]
