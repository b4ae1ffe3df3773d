"""Runs the demo's stages in order; a finished stage is never run twice."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dreamgym.demo.config import DemoConfig
from dreamgym.demo.context import DemoContext
from dreamgym.demo.summary import make_summary, print_table
from dreamgym.runs import RunFolder

Stage = Callable[[], Any]  # any JSON


def run_demo(config: DemoConfig, path: Path, *, force: bool = False) -> dict[str, Any]:
    """Run (or go on with) a demo in `path`; returns the summary it wrote."""
    from dreamgym.report import build_report

    # Faults are counted in the metrics; one line each would drown the progress.
    logging.getLogger("dreamgym.rollout").setLevel(logging.ERROR)
    with RunFolder(path, config, seeds={"seed": config.seed}, force=force) as run:
        ctx = DemoContext(config, run)
        for name, stage in stages(ctx).items():
            if not run.stage_done(name):
                started = time.monotonic()
                result = stage()
                run.mark_stage(name, {"seconds": time.monotonic() - started, "result": result})
                run.write_summary(make_summary(ctx))
        summary = make_summary(ctx)
        run.write_summary(summary)
        build_report(path)
        print_table(summary, path)
    return summary


def stages(ctx: DemoContext) -> dict[str, Stage]:
    """Return the stages of a run by name, in order."""
    from dreamgym.demo import dreaming, naive
    from dreamgym.demo import stages as first

    def evaluated(name: str) -> Stage:
        return lambda: first.evaluate_agent(ctx, ctx.load_agent(name), name)

    if ctx.config.is_naive:
        return {
            "collect": lambda: first.collect_logs(ctx),
            "fit": lambda: first.fit_model(ctx),
            "clone": lambda: first.warm_start(ctx),
            "evaluate_warm_start": evaluated("warm_start"),
            "naive": lambda: naive.naive_training(ctx),
            "evaluate_naive": evaluated("naive"),
        }
    table: dict[str, Stage] = {
        "collect": lambda: first.collect_logs(ctx),
        "fit": lambda: first.fit_model(ctx),
        "clone": lambda: first.warm_start(ctx),
        "evaluate_warm_start": evaluated("warm_start"),
        "collect_agent": lambda: first.collect_agent_logs(ctx),
        "refit": lambda: first.refit_model(ctx),
        "dream": lambda: dreaming.dream_training(ctx, resume=True),
        "evaluate_dream": evaluated("dream"),
        "s2r": lambda: dreaming.real_training(ctx, start="dream", name="s2r", resume=True),
        "evaluate_s2r": evaluated("s2r"),
        "baseline": lambda: dreaming.real_training(
            ctx, start="warm_start", name="baseline", resume=True
        ),
        "evaluate_baseline": evaluated("baseline"),
    }
    if ctx.config.naive is not None:
        table["naive"] = lambda: naive.naive_training(ctx)
    return table
