"""summary.json and the table printed at the end of a demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dreamgym.demo.context import DemoContext
from dreamgym.stats import Rate

STAGES = {
    "warm_start": "evaluate_warm_start",
    "dream": "evaluate_dream",
    "s2r": "evaluate_s2r",
    "real_only_baseline": "evaluate_baseline",
    "naive": "evaluate_naive",
}
"""Key in `real_success` -> stage that measured it."""


def make_summary(ctx: DemoContext) -> dict[str, Any]:
    """Return the summary of the stages finished so far."""
    run, config = ctx.run, ctx.config
    done = {name: run.stage_result(name) for name in _known() if run.stage_done(name)}
    results = {name: stage["result"] for name, stage in done.items()}
    summary: dict[str, Any] = {
        "preset": config.preset,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "naive": config.is_naive,
        "transitions_behind_shared_weights": results.get("collect", {}).get("logs", 0)
        if config.agent.from_experience
        else 0,
        "wall_seconds": sum(stage["seconds"] for stage in done.values()),
        "stages": [{"name": name, "seconds": stage["seconds"]} for name, stage in done.items()],
        "real_success": {k: results[s] for k, s in STAGES.items() if s in results},
        "real_transitions": _transitions(results),
        "dream": _dream(ctx, results),
        "levers": msgspec.to_builtins(config.levers),
    }
    if "naive" in results:
        summary["naive_run"] = results["naive"]
    return summary


def _known() -> list[str]:
    names = ["collect", "fit", "clone", "evaluate_warm_start", "collect_agent", "refit", "dream"]
    names += ["evaluate_dream", "s2r", "evaluate_s2r", "baseline", "evaluate_baseline"]
    return [*names, "naive", "evaluate_naive"]


def _transitions(results: dict[str, Any]) -> dict[str, int]:
    """Every real transition used for training or choosing, by what it was used for."""
    counts: dict[str, int] = {}
    if "collect" in results:
        counts["warm_start"] = results["collect"]["warm_start"]
        agent = results.get("collect_agent", {}).get("agent_logs", 0)
        counts["experience_model"] = results["collect"]["logs"] + agent
    if "dream" in results:
        counts["probe"] = results["dream"]["probe_transitions"]
    if "s2r" in results:
        counts["s2r"] = results["s2r"]["transitions"]
    if "baseline" in results:
        counts["baseline"] = results["baseline"]["transitions"]
    return counts


def _dream(ctx: DemoContext, results: dict[str, Any]) -> dict[str, Any]:
    dream: dict[str, Any] = {}
    if "refit" in results:
        dream["accuracy"] = results["refit"]["accuracy"]
    if "dream" in results:
        rows = [r for r in ctx.run.metrics() if r.get("stage") == "dream"]
        dream |= false_success(rows)
        dream["rollbacks"] = results["dream"]["rollbacks"]
        last = [r["rollout/success"] for r in rows[-5:]]
        faults = [r["rollout/fault_share"] for r in rows]
        dream["final_success"] = sum(last) / max(len(last), 1)
        dream["fault_rate"] = sum(faults) / max(len(faults), 1)
        dream["missed_success_rate"] = results["dream"]["verifier"].get("verify/missed_success")
    return dream


def false_success(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the pooled false-success rate of all probes: replayed dreamt successes that fail."""
    probes = [r for r in rows if r.get("probe/replays")]
    n = int(sum(r["probe/replays"] for r in probes))
    failed = round(sum(r["probe/false_success"] * r["probe/replays"] for r in probes))
    rate = Rate.of(failed, n)
    return {
        "false_success_rate": rate.value if n else None,
        "false_success": {"successes": failed, "n": n, "ci95": list(rate.ci95)},
    }


def transitions_behind(summary: dict[str, Any]) -> dict[str, int]:
    """Return every real transition that a policy's training rests on, by policy.

    The warm start, and with it the baseline, may start from the experience model's weights; then
    the logs that model was fitted on stand behind them too.
    """
    used: dict[str, int] = summary["real_transitions"]
    shared: int = summary["transitions_behind_shared_weights"]
    start = used.get("warm_start", 0) + shared
    dream = sum(used.get(key, 0) for key in ("warm_start", "experience_model", "probe"))
    return {
        "warm_start": start,
        "dream": dream,
        "s2r": dream + used.get("s2r", 0),
        "real_only_baseline": start + used.get("baseline", 0),
        "naive": start,
    }


def print_table(summary: dict[str, Any], path: Path) -> None:
    """Print the result in the terminal."""
    from rich.console import Console
    from rich.table import Table

    real = summary["real_success"]
    table = Table(title="Success in the real environment, rooms never seen")
    for column in ("policy", "sampled", "95 % interval", "greedy", "n", "real transitions"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    spent = transitions_behind(summary)
    for name, row in real.items():
        low, high = row["ci95"]
        table.add_row(
            name.replace("_", " "),
            f"{row['sampled']:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{row['greedy']:.3f}",
            str(row["n"]),
            f"{spent.get(name, '')}",
        )
    console = Console()
    console.print(table)
    accuracy = summary["dream"].get("accuracy")
    if accuracy:
        overall = accuracy["overall"]
        console.print(
            f"experience model: whole-step accuracy {overall['exact']:.3f} on {overall['n']} "
            f"held-out transitions (bar {accuracy['bar']})"
        )
    if summary["dream"].get("false_success_rate") is not None:
        checked = summary["dream"]["false_success"]
        console.print(
            f"false successes: {checked['successes']} of {checked['n']} replayed dreamt successes"
        )
    console.print(f"report: {path / 'report.html'}   summary: {path / 'summary.json'}")
