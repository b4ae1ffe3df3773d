"""One static HTML page per measurement: verdict, tables, plots. No network, no script."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym.errors import MissingExtra

if TYPE_CHECKING:
    from dreamgym.fidelity.result import Fidelity

PAGE_NAME = "fidelity.html"


def check_packages() -> None:
    """Raise `MissingExtra` where the page could not be written, before hours of measuring."""
    for package in ("matplotlib", "jinja2", "scipy"):
        if find_spec(package) is None:
            raise MissingExtra(package, "report")


def write_page(result: Fidelity, folder: Path) -> Path:
    """Write the page beside `fidelity.json` and return its path."""
    check_packages()
    path = folder / PAGE_NAME
    unfinished = path.with_suffix(".html.tmp")
    # Models do write halves of characters; such a half becomes a question mark.
    unfinished.write_text(render_page(result), encoding="utf-8", errors="replace")
    os.replace(unfinished, path)
    return path


def render_page(result: Fidelity) -> str:
    """Return the page as HTML; every text from the data is escaped."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    from dreamgym.fidelity import plots
    from dreamgym.report import wording

    environment = Environment(
        # The style sheet is the run report's.
        loader=ChoiceLoader([PackageLoader("dreamgym.fidelity"), PackageLoader("dreamgym.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=wording.percent,
        interval=wording.interval,
        count=wording.count,
        duration=wording.duration,
    )
    steps = result.steps
    return environment.get_template("fidelity.html.j2").render(
        result=result,
        steps=steps,
        groups=[
            ("with an effect", steps.valid),
            ("without an effect", steps.invalid),
            ("of rare kinds", steps.rare),
            ("all", steps.overall),
        ],
        confusions=[
            ("Reward above 0", steps.paid),
            ("End of the episode", steps.done),
            ("Success, as the model claims it", steps.success),
            ("Success, after the verifier", steps.verified),
        ],
        plots={
            "kinds": plots.kinds_plot(steps.by_kind),
            "fields": plots.fields_plot(steps.fields),
            "drift": plots.drift_plot(result.drift.curve),
            "calibration": plots.calibration_plot(result.calibration),
            "ranks": plots.ranks_plot(result.ranks.policies),
            "ablations": plots.ablation_plot(result.ablations),
        },
        worlds=_worlds(result),
    )


def _worlds(result: Fidelity) -> list[tuple[str, object]]:
    play = result.free_play
    rows: list[tuple[str, object]] = [("all, verifier on", play.verifier_on)]
    if play.verifier_off is not None:
        rows.append(("all, verifier off", play.verifier_off))
    if play.agents is not None:
        rows.append(("trained agents", play.agents))
    return [*rows, *play.by_policy.items()]
