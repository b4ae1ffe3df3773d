"""Speed and memory of the household engine: `python -m benchmarks.household [--json]`.

Measured on one core: steps per second with the admissible list after every step, the time of a
reset, of reading an official problem text where the data is there, and the memory of 1,000 open
episodes.  Every figure comes with its limit, and ratio > 1 means better than the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import tracemalloc
from pathlib import Path

from dreamgym.envs.household.game import HouseholdGame
from dreamgym.envs.household.official import read_pack
from dreamgym.envs.household.pddl import parse_problem
from dreamgym.envs.household.suite import HouseholdSuite
from dreamgym.envs.household.world import World
from dreamgym.seeds import derive_random

STEPS_PER_SECOND_LIMIT = 5_000.0
RESET_MS_LIMIT = 20.0
EPISODES_MB_LIMIT = 100.0

GENUINE_STEPS_PER_SECOND = (14.0, 57.0)
"""The genuine engine (alfworld 0.4.2, textworld 1.7.0, Python 3.11) on a shared 2-core machine:
about 69 ms a step as installed, 17 to 18 ms with its parsing memoised. Stated, not measured."""

EPISODE_LENGTH = 50
OPEN_EPISODES = 1_000


def data_folder() -> Path:
    """Return where the official test packs are looked for."""
    given = os.environ.get("DREAMGYM_DATA")
    return Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"


def measure_steps(worlds: list[World], seconds: float) -> float:
    """Return random admissible steps per second, admissible list included."""
    random = derive_random("benchmark household steps")
    steps = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for world in worlds:
            game = HouseholdGame(world)
            actions = game.admissible()
            for _ in range(EPISODE_LENGTH):
                game.step(random.choice(actions))
                actions = game.admissible()
            steps += EPISODE_LENGTH
    return steps / (time.perf_counter() - began)


def measure_reset(worlds: list[World], rounds: int) -> float:
    """Return the mean milliseconds of a start: game, first text, admissible list."""
    began = time.perf_counter()
    for _ in range(rounds):
        for world in worlds:
            game = HouseholdGame(world)
            game.first()
            game.admissible()
    return (time.perf_counter() - began) / (rounds * len(worlds)) * 1e3


def measure_memory(worlds: list[World]) -> float:
    """Return the MB of 1,000 open episodes ten steps in (the games themselves are shared)."""
    random = derive_random("benchmark household memory")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    games = [HouseholdGame(worlds[i % len(worlds)]) for i in range(OPEN_EPISODES)]
    for game in games:
        for _ in range(10):
            game.step(random.choice(game.admissible()))
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / 1e6


def official_worlds(count: int) -> tuple[list[World], float | None]:
    """Return official games and the milliseconds it takes to read one; ([], None) without data."""
    pack = data_folder() / "alfworld_valid_unseen.json.xz"
    if not pack.is_file():
        return [], None
    games = read_pack(pack)[:count]
    began = time.perf_counter()
    worlds = [parse_problem(game.pddl_problem, game.task) for game in games]
    return worlds, (time.perf_counter() - began) / len(games) * 1e3


def figure(value: float, limit: float, *, higher_is_better: bool) -> dict[str, float]:
    """Return a figure with its limit and the ratio (> 1 is better than the limit)."""
    ratio = value / limit if higher_is_better else limit / max(value, 1e-9)
    return {"value": round(value, 4), "limit": limit, "ratio": round(ratio, 3)}


def run(seconds: float) -> dict[str, object]:
    """Return all figures of all kinds of games."""
    sources: dict[str, list[World]] = {}
    for size in ("small", "full"):
        suite = HouseholdSuite(size=size, num_tasks=50)
        sources[f"generated-{size}"] = [suite.world(task) for task in suite.tasks("valid_unseen")]
    official, parse_ms = official_worlds(50)
    if official:
        sources["official"] = official
    report: dict[str, object] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; one core used",
        "genuine_steps_per_second": list(GENUINE_STEPS_PER_SECOND),
        "parse_official_ms": None if parse_ms is None else round(parse_ms, 2),
    }
    for name, worlds in sources.items():
        speed = measure_steps(worlds, seconds)
        report[name] = {
            "steps_per_second": figure(speed, STEPS_PER_SECOND_LIMIT, higher_is_better=True),
            "reset_ms": figure(measure_reset(worlds, 5), RESET_MS_LIMIT, higher_is_better=False),
            "memory_1000_episodes_mb": figure(
                measure_memory(worlds), EPISODES_MB_LIMIT, higher_is_better=False
            ),
            "times_genuine": round(speed / GENUINE_STEPS_PER_SECOND[1], 1),
        }
    return report


def show(report: dict[str, object]) -> str:
    """Return the report as a table for people."""
    lines = [str(report["machine"]), ""]
    lines.append(f"{'games':<18}{'figure':<26}{'value':>12}{'limit':>12}{'ratio':>10}")
    for name, figures in report.items():
        if not isinstance(figures, dict):
            continue
        for what, entry in figures.items():
            if isinstance(entry, dict):
                lines.append(
                    f"{name:<18}{what:<26}{entry['value']:>12,.3f}{entry['limit']:>12,.0f}"
                    f"{entry['ratio']:>9,.2f}x"
                )
        lines.append(
            f"{name:<18}{'times genuine (memoised)':<26}{figures['times_genuine']:>12,.1f}"
        )
    low, high = GENUINE_STEPS_PER_SECOND
    lines += ["", f"genuine engine, stated: {low:.0f} to {high:.0f} steps/s"]
    if report["parse_official_ms"] is not None:
        lines.append(f"reading one official problem text: {report['parse_official_ms']} ms")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and memory of the household engine.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--seconds", type=float, default=2.0, help="stepping time per source")
    arguments = parser.parse_args()
    report = run(arguments.seconds)
    print(json.dumps(report, indent=1) if arguments.json else show(report))


if __name__ == "__main__":
    main()
