"""Write run folders as a run writes them, for the tests of the report."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec

from dreamgym.seeds import derive_random
from dreamgym.types import Observation, Origin, Rollout, StopReason, Task, Transition

KINDS = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place",
    "pick_heat_then_place",
    "pick_cool_then_place",
    "pick_two_obj_and_place",
)
HEADER = '{"schema_version": 1, "kind": "rollouts", "provenance": {}}'
LEVERS = (
    "free_negatives", "agent_logs", "ledger", "verifier", "probe", "reasoning", "history",
    "replay", "curriculum",
)  # fmt: skip


def success(sampled: float, greedy: float, n: int = 400) -> dict[str, object]:
    """Return the measured success of one stage, with normal-approximation intervals."""

    def bounds(share: float) -> list[float]:
        half = 1.96 * math.sqrt(share * (1 - share) / n)
        return [max(0.0, share - half), min(1.0, share + half)]

    return {
        "sampled": sampled,
        "greedy": greedy,
        "n": n,
        "ci95": bounds(sampled),
        "greedy_ci95": bounds(greedy),
        "by_kind": {
            kind: {
                "sampled": max(0.0, sampled - 0.04 * index),
                "greedy": max(0.0, greedy - 0.04 * index),
                "n": n // len(KINDS),
            }
            for index, kind in enumerate(KINDS)
        },
    }


def summary(seed: int = 0) -> dict[str, object]:
    """Return the summary of a finished run; the seed moves its results a little."""
    shift = 0.02 * seed
    actions = {"go": 0.994, "open": 0.991, "take": 0.986, "take/none": 0.979, "put": 0.988,
               "use": 1.0, "heat": 0.962, "cool": 0.971, "clean": 0.985,
               "examine": 0.998}  # fmt: skip
    return {
        "seed": seed,
        "preset": "tiny",
        "algorithm": "grpo",
        "wall_seconds": 612.3,
        "naive": False,
        "stages": [
            {"name": name, "seconds": seconds}
            for name, seconds in (
                ("collect", 3.1), ("warm_start", 21.4), ("fit", 148.0), ("dream", 262.7),
                ("s2r", 61.0), ("baseline", 58.2), ("naive", 44.5), ("evaluate", 13.4),
            )
        ],
        "real_success": {
            "warm_start": success(0.21 + shift, 0.30),
            "dream": success(0.63 + shift, 0.70),
            "s2r": success(0.71 + shift, 0.775),
            "real_only_baseline": success(0.35 + shift, 0.42),
        },
        "real_transitions": {
            "experience_model": 8000, "warm_start": 900, "probe": 600, "s2r": 3000,
            "baseline": 3000,
        },
        "dream": {
            "false_success_rate": 0.01,
            "false_success": {"successes": 1, "n": 96, "ci95": [0.002, 0.057]},
            "missed_success_rate": 0.03,
            "final_success": 0.8,
            "fault_rate": 0.004,
            "accuracy": {
                "overall": {"exact": 0.985, "reward": 0.999, "done": 0.998, "n": 2000,
                            "ci95": [0.979, 0.989]},
                "by_kind": {
                    kind: {"exact": exact, "reward": 0.999, "done": 0.998, "n": 200}
                    for kind, exact in actions.items()
                },
                "bar": 0.98,
            },
        },
        "naive_run": {
            "dream_success": [min(0.98, 0.22 + 0.055 * step) for step in range(20)],
            "replayed_success": [[step, max(0.0, 0.8 - 0.05 * step)] for step in range(0, 20, 4)],
            "real_success": [[0, 0.21], [6, 0.19], [12, 0.06], [19, 0.02]],
            "final_real": 0.02,
            "iterations": 20,
        },
        "levers": dict.fromkeys(LEVERS, True),
    }  # fmt: skip


def metrics(seed: int = 0) -> list[dict[str, object]]:
    """Return the rows a run logs, noisy as they are."""
    random = derive_random(seed, "report-fixture")
    rows: list[dict[str, object]] = []
    for step in range(60):
        rise = 1 - math.exp(-step / 18)
        row: dict[str, object] = {
            "stage": "dream",
            "step": step,
            "time": 4.3 * step,
            "dream/success": min(1.0, max(0.0, 0.2 + 0.62 * rise + random.gauss(0, 0.05))),
            "reward/mean": 0.2 + 0.6 * rise,
            "groups/dead_share": min(1.0, max(0.0, 0.45 - 0.1 * rise + random.gauss(0, 0.08))),
            "curriculum/generated_share": 0.3 * rise,
            "curriculum/mean_value": 0.17 - 0.05 * rise + random.gauss(0, 0.01),
            "curriculum/pool": 200 + 3 * step,
            "policy/entropy": 0.9 - 0.5 * rise + random.gauss(0, 0.02),
            "loss/policy": random.gauss(0, 0.02),
        }
        if step % 10 == 0:
            row |= {
                "probe/real_success": 0.2 + 0.45 * rise,
                "probe/false_success": 0.12 * (1 - rise),
                "probe/n": 32,
            }
        rows.append(row)
    for step in range(12):
        for stage, start in (("s2r", 0.6), ("baseline", 0.2)):
            rows.append({
                "stage": stage, "step": step, "rollout/transitions": 260.0,
                "real/success": start + 0.012 * step + random.gauss(0, 0.03),
            })  # fmt: skip
    for step in range(0, 300, 5):
        rows.append({"stage": "fit", "step": step, "loss/sft": 0.05 + 2.4 * math.exp(-step / 40)})
    for step in range(0, 120, 5):
        rows.append(
            {"stage": "warm_start", "step": step, "loss/sft": 0.3 + 3 * math.exp(-step / 20)}
        )
    return rows


def rollout(
    name: str,
    *,
    is_success: bool,
    generated: bool = False,
    observation: str = "You open the drawer 1. In it, you see a pen 1.",
    flags: tuple[str, ...] = (),
    steps: int = 3,
) -> Rollout:
    """Return a dreamt trajectory of `steps` steps; the last one decides."""
    instruction = "put a pen in desk 1"
    actions = ("go to drawer 1", "open drawer 1", "take pen 1 from drawer 1", "put pen 1 in desk 1")
    texts = ("The drawer 1 is closed.", observation, "You pick up the pen 1.", "You put the pen 1.")
    transitions = []
    for step in range(steps):
        is_last = step == steps - 1
        transitions.append(
            Transition(
                task_id=f"task-{name}",
                suite="household",
                episode_id=name,
                step=step,
                instruction=instruction,
                observation=Observation(
                    text=texts[(step - 1) % 4] if step else "You are in the middle of a room."
                ),
                action=actions[step % 4],
                next_observation=Observation(text=texts[step % 4]),
                reward=1.0 if is_last and is_success else 0.0,
                terminated=is_last and is_success,
                truncated=is_last and not is_success,
                success=is_last and is_success,
                origin=Origin.DREAM,
                rationale=f"The agent is at a drawer that the ledger calls closed (step {step}).",
                flags=flags if is_last else (),
            )
        )
    return Rollout(
        id=name,
        task=Task(id=f"task-{name}", suite="household", instruction=instruction,
                  kind=KINDS[0], generated=generated),
        attempt=0,
        transitions=tuple(transitions),
        stop=StopReason.TERMINATED if is_success else StopReason.TURN_LIMIT,
        reward=1.0 if is_success else 0.0,
        success=is_success,
    )  # fmt: skip


def write_dreams(folder: Path, rollouts: list[Rollout]) -> None:
    """Write `records/dream.jsonl`: a header, then one rollout a line."""
    lines = [HEADER.encode(), *map(msgspec.json.encode, rollouts)]
    (folder / "records").mkdir(parents=True, exist_ok=True)
    (folder / "records" / "dream.jsonl").write_bytes(b"\n".join(lines) + b"\n")


def write_run(folder: Path, *, seed: int = 0) -> Path:
    """Write the folder of a finished run and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary(seed)), encoding="utf-8")
    rows = "".join(f"{line}\n" for line in (HEADER, *map(json.dumps, metrics(seed))))
    (folder / "metrics.jsonl").write_text(rows, encoding="utf-8")
    (folder / "config.json").write_text(
        json.dumps({"preset": "tiny", "seed": seed, "model": {"api_key": "k-123", "layers": 4}}),
        encoding="utf-8",
    )
    (folder / "versions.json").write_text(
        json.dumps({"dreamgym": "0.1.0", "packages": {"torch": "2.13.0"}, "python": "3.11.7"}),
        encoding="utf-8",
    )
    write_dreams(
        folder,
        [
            rollout("won", is_success=True, steps=4),
            rollout("lost", is_success=False, steps=3, flags=("no_effect",)),
            rollout("varied", is_success=False, generated=True, flags=("unsupported_success",)),
        ],
    )
    return folder
