"""`dreamgym fidelity`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dreamgym.commands.common import (
    PREFIX,
    print_json,
    print_settings,
    print_table,
    recipe_flags,
    resolve,
    setting,
    share,
    suite_flags,
)

if TYPE_CHECKING:
    from dreamgym.fidelity.result import Fidelity


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym fidelity`."""
    parser.add_argument(
        "run", nargs="?", default=None, help="run of `demo`, or dream folder of `fit`"
    )
    setting(parser, "--model", "model", "a model folder, or a model of the run by name")
    setting(parser, "--url", "endpoint.url", "OpenAI-compatible endpoint instead of a run")
    setting(parser, "--name", "endpoint.model", "the model's name at the endpoint")
    setting(
        parser,
        "--episodes",
        "episodes",
        "record file of held-out real episodes; may be repeated (default: played now)",
        action="append",
    )
    suite_flags(parser)
    setting(parser, "--split", "split", "split (default valid_unseen)")
    setting(parser, "--tasks", "tasks", "held-out tasks (default 80)", type=int)
    setting(
        parser,
        "--policy",
        "policies",
        "policy to rank, e.g. noisy:p=0.3 or a model folder; may be repeated",
        action="append",
    )
    setting(
        parser,
        "--ablate",
        "ablate",
        "part to switch off: history, reasoning, demonstrations, scenario, ledger (default all); "
        "may be repeated",
        action="append",
    )
    parser.add_argument("--no-ablations", action="store_true", help="switch nothing off")
    setting(parser, "--out", "out", "folder for the results (default RUN/fidelity)")
    setting(parser, "--seed", "seed", "seed (default 0)", type=int)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    recipe_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Measure, print, and return the exit code."""
    from msgspec.structs import replace

    from dreamgym.fidelity.settings import FidelitySettings

    if options.run is not None:
        setattr(options, f"{PREFIX}run", options.run)
    settings = resolve(options, FidelitySettings, "fidelity")
    if options.no_ablations:
        settings = replace(settings, ablate=())
    if options.dry_run:
        return print_settings(settings)
    import logging

    from dreamgym.fidelity.run import run_fidelity

    # Faults are counted in the result; one line each would drown the progress.
    logging.getLogger("dreamgym.rollout").setLevel(logging.ERROR)
    found, folder = run_fidelity(settings)
    if options.json:
        print_json(found.fidelity)
    else:
        show(found.fidelity)
        print(f"{folder / 'fidelity.html'}")
    return 0


def show(result: Fidelity) -> None:
    """Print the main numbers and the verdict."""
    steps, play = result.steps, result.free_play
    print_table(
        ("held-out steps", "n", "whole step [95 %]", "verified", "next state", "reward", "end"),
        [
            (
                name,
                rates.n,
                share(rates.exact.value, rates.exact.ci95),
                rates.verified.value,
                rates.state.value,
                rates.reward.value,
                rates.done.value,
            )
            for name, rates in (
                ("valid", steps.valid),
                ("invalid", steps.invalid),
                ("rare", steps.rare),
                ("all", steps.overall),
            )
        ],
    )
    print()
    worlds = [("verifier on", play.verifier_on), ("verifier off", play.verifier_off)]
    worlds += [("agents", play.agents)]
    print_table(
        ("dreamt episodes", "n", "dream", "W2R", "real", "CR", "false success", "missed"),
        [
            (
                name,
                one.n,
                one.dream.value,
                one.w2r.value,
                one.real.value,
                "-" if one.ratio.value is None else one.ratio.value,
                one.false_success.value,
                one.missed_success.value,
            )
            for name, one in worlds
            if one is not None
        ],
    )
    print()
    for sentence in result.verdict:
        print(f"- {sentence}")
