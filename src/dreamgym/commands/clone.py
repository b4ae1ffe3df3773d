"""`dreamgym clone`."""

from __future__ import annotations

import argparse

from dreamgym.commands.common import (
    open_folder,
    open_run,
    print_settings,
    recipe_flags,
    report_logs,
    resolve,
    setting,
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym clone`."""
    setting(parser, "--logs", "logs", "record files of `dreamgym collect`", nargs="+")
    setting(parser, "--model", "model.name", "tiny (default), smollm2 or a model folder")
    setting(parser, "--policy", "policy", "imitate only episodes of this policy")
    setting(parser, "--episodes", "episodes", "at most so many demonstrations", type=int)
    setting(parser, "--steps", "steps", "optimiser steps (default 120)", type=int)
    setting(parser, "--out", "out", "run folder (default runs/agent)")
    setting(parser, "--seed", "seed", "seed (default 0)", type=int)
    parser.add_argument(
        "--fresh", action="store_true", help="delete an earlier run in --out and start over"
    )
    recipe_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Clone, print the result, and return the exit code."""
    from dreamgym.pipeline.cloning import CloneSettings, clone_policy
    from dreamgym.pipeline.logs import read_logs
    from dreamgym.pipeline.models import check_model_name

    settings = resolve(options, CloneSettings, "clone")
    if options.dry_run:
        return print_settings(settings)
    check_model_name(settings.model)
    logs = read_logs(settings.logs)
    report_logs(logs)
    folder = open_folder(settings.out, resume=False, fresh=options.fresh)
    with open_run(folder, settings, seed=settings.seed) as folder_run:
        if not folder_run.stage_done("clone"):
            result = clone_policy(settings, logs, folder_run)
            folder_run.mark_stage("clone", result)
            folder_run.write_summary(result)
        done = folder_run.stage_result("clone")
    loss = done["loss"]
    shown = "no step taken" if loss is None else f"loss {loss:.4f} nats per token"
    print(f"{done['episodes']} demonstrations, {shown}; model: {folder / 'model'}")
    return 0
