"""`dreamgym train`."""

from __future__ import annotations

import argparse

from dreamgym.commands.common import (
    open_folder,
    open_run,
    print_settings,
    recipe_flags,
    resolve,
    resume_flags,
    setting,
    suite_flags,
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym train`."""
    setting(parser, "--dream", "dream", "dream folder of `dreamgym fit`")
    suite_flags(parser)
    setting(parser, "--policy", "policy", "model folder or run folder to start from")
    setting(parser, "--algorithm", "update.algorithm", "grpo (default) or ppo")
    setting(parser, "--iterations", "loop.iterations", "iterations (default 60)", type=int)
    setting(parser, "--tasks", "tasks", "tasks of a real suite (default 200)", type=int)
    setting(parser, "--split", "split", "split of a real suite (default train)")
    setting(parser, "--out", "out", "run folder (default runs/dream)")
    setting(parser, "--seed", "seed", "seed (default 0)", type=int)
    resume_flags(parser)
    recipe_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Train, print the result, and return the exit code."""
    from dreamgym.pipeline.training import TrainSettings, check_places, train_policy

    settings = resolve(options, TrainSettings, "train")
    if options.dry_run:
        return print_settings(settings)
    check_places(settings)
    folder = open_folder(settings.out, resume=options.resume, fresh=options.fresh)
    with open_run(folder, settings, seed=settings.seed, force=options.resume) as folder_run:
        result = train_policy(settings, folder_run)
        folder_run.write_summary(result)
    success = result["success"]
    shown = "" if success is None else f"; training success {success:.3f} ({result['origin']})"
    print(f"{result['iterations']} iterations{shown}; model: {folder / 'model'}")
    return 0
