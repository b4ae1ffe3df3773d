"""`dreamgym report`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dreamgym report`."""
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("others", type=Path, nargs="*", help="further runs to compare with")


def run(options: argparse.Namespace) -> int:
    """Write the page and return the exit code."""
    from dreamgym.report import build_report

    print(build_report(options.run, other_runs=options.others))
    return 0
