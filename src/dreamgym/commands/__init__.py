"""The commands of the command line: arguments in, library calls, exit code out.

Nothing here imports a library at the top: `dreamgym --help` needs no training stack.
"""

from __future__ import annotations

from dreamgym.commands import (
    clone,
    collect,
    demo,
    env,
    evaluate,
    fidelity,
    fit,
    judge,
    report,
    train,
    transfer,
)
from dreamgym.commands.common import Add, Run

COMMANDS: dict[str, tuple[Add, Run, str]] = {
    "demo": (demo.add, demo.run, "the whole method end to end on the household suite"),
    "collect": (collect.add, collect.run, "log episodes of policies in a suite"),
    "clone": (clone.add, clone.run, "warm-start a policy from logged successes"),
    "fit": (fit.add, fit.run, "fit an experience model on logs"),
    "train": (train.add, train.run, "reinforcement learning in a dream or a real suite"),
    "transfer": (transfer.add, transfer.run, "sim-to-real: go on for real, within a budget"),
    "evaluate": (evaluate.add, evaluate.run, "evaluate a policy in a real suite"),
    "fidelity": (fidelity.add, fidelity.run, "how far a dream can be trusted, measured"),
    "judge": (judge.add, judge.run, "a language model's opinion of real and dreamt episodes"),
    "env": (env.add, env.run, "list, check and play environments"),
    "report": (report.add, report.run, "write the HTML page of a run"),
}
"""Name -> (adds arguments, runs, one line of help)."""

__all__ = ["COMMANDS", "Add", "Run"]
