"""`dreamgym transfer`."""

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
    """Add the arguments of `dreamgym transfer`."""
    setting(parser, "--policy", "policy", "model folder or run folder to go on from")
    suite_flags(parser)
    setting(
        parser, "--budget", "transfer.budget", "real transitions in all (default 4000)", type=int
    )
    setting(parser, "--algorithm", "update.algorithm", "grpo (default) or ppo")
    setting(parser, "--tasks", "tasks", "training tasks (default 200)", type=int)
    setting(parser, "--split", "split", "split (default train)")
    setting(parser, "--out", "out", "run folder (default runs/s2r)")
    setting(parser, "--seed", "seed", "seed (default 0)", type=int)
    resume_flags(parser)
    recipe_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Transfer, print what it took, and return the exit code."""
    from dreamgym.commands.transferring import TransferSettings, transfer_policy

    settings = resolve(options, TransferSettings, "transfer")
    if options.dry_run:
        return print_settings(settings)
    folder = open_folder(settings.out, resume=options.resume, fresh=options.fresh)
    with open_run(folder, settings, seed=settings.seed, force=options.resume) as folder_run:
        report = transfer_policy(settings, folder_run)
        folder_run.write_summary(report)
    print(
        f"{report.transitions} of {report.budget} real transitions used in {report.iterations} "
        f"iterations; model: {folder / 'model'}"
    )
    return 0
