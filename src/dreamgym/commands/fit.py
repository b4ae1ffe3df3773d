"""`dreamgym fit`."""

from __future__ import annotations

import argparse
from typing import Any

from dreamgym.commands.common import (
    open_folder,
    open_run,
    print_settings,
    print_table,
    recipe_flags,
    report_logs,
    resolve,
    setting,
    share,
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym fit`."""
    setting(parser, "--logs", "logs", "record files of `dreamgym collect`", nargs="+")
    setting(parser, "--model", "model.name", "tiny (default), smollm2 or a model folder")
    setting(parser, "--steps", "fit.steps", "optimiser steps (default 900)", type=int)
    setting(parser, "--out", "out", "dream folder to write (default runs/em)")
    setting(parser, "--seed", "seed", "seed (default 0)", type=int)
    setting(
        parser,
        "--teacher-url",
        "teacher.url",
        "OpenAI-compatible endpoint whose model writes the rationales "
        "(key in DREAMGYM_API_KEY or OPENAI_API_KEY)",
    )
    setting(parser, "--teacher-model", "teacher.model", "model name at that endpoint")
    parser.add_argument(
        "--fresh", action="store_true", help="delete an earlier fit in --out and start over"
    )
    recipe_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Fit, print the accuracy, and return the exit code."""
    from dreamgym.pipeline.dreams import FitSettings
    from dreamgym.pipeline.fitting import fit_dream
    from dreamgym.pipeline.logs import read_logs
    from dreamgym.pipeline.models import check_model_name

    settings = resolve(options, FitSettings, "fit")
    if options.dry_run:
        return print_settings(settings)
    check_model_name(settings.model)
    logs = read_logs(settings.logs)
    report_logs(logs)
    folder = open_folder(settings.out, resume=False, fresh=options.fresh)
    with open_run(folder, settings, seed=settings.seed) as folder_run:
        if not folder_run.stage_done("fit"):
            result = fit_dream(settings, logs, folder_run)
            folder_run.mark_stage("fit", result)
            folder_run.write_summary(result)
        done = folder_run.stage_result("fit")
    show_result(done)
    print(f"dream folder: {folder}")
    return 0


def show_result(done: dict[str, Any]) -> None:
    """Print sizes and the held-out accuracy by kind of action."""
    print(
        f"{done['examples']} examples from {done['transitions']} real transitions, "
        f"{done['tasks']} tasks to dream of"
    )
    if done["teacher"]:
        asked = done["teacher"]
        print(
            f"teacher: {asked.get('teacher/annotated', 0)} trajectories annotated, "
            f"{asked.get('teacher/faults', 0)} left to the rule-based rationale"
        )
    accuracy = done["accuracy"]
    rows = [*sorted(accuracy["by_kind"].items()), ("all", accuracy["overall"])]
    print_table(
        ("held-out steps", "n", "whole step right [95 %]", "state", "reward", "done"),
        [
            (kind, r["n"], share(r["exact"], r["ci95"]), r["state"], r["reward"], r["done"])
            for kind, r in rows
        ],
    )
    overall = accuracy["overall"]
    if overall["n"] and overall["exact"] < accuracy["bar"]:
        print(
            f"whole-step accuracy {overall['exact']:.3f} is below {accuracy['bar']}: a policy may "
            "learn to live on the errors; log more episodes or fit longer"
        )
