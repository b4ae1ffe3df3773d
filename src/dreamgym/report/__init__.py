"""One static HTML page per run: the numbers, the plots and a few dreams to read.

The page is written from the files of the run folder alone, so it can be made for a run that is
still going, on another machine, or years later.  It needs no network and no script to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from dreamgym.errors import MissingExtra

__all__ = ["REPORT_NAME", "build_report"]

REPORT_NAME = "report.html"
"""Name of the page inside the run folder."""


def build_report(run_folder: Path, *, other_runs: Sequence[Path] = ()) -> Path:
    """Write the page of a run into its folder and return the page's path.

    `other_runs` are folders of runs to set beside it, such as other seeds.  Parts of the run that
    are not there yet are named as such.  Raises `DataError` when a folder is no run folder, and
    `MissingExtra` when matplotlib or jinja2 is not installed.
    """
    for package in ("matplotlib", "jinja2"):
        if find_spec(package) is None:
            raise MissingExtra(package, "report")
    from dreamgym.report.page import write_page

    return write_page(Path(run_folder), [Path(other) for other in other_runs])
