"""Checks of what lies around an episode: global state and other processes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from typing import Any

import msgspec
import numpy

from dreamgym.envs.check.probe import Failed, Probe, Skipped, Walk

SECONDS = 180.0
"""Longest wait for the suite to play its walks in another process."""


async def global_state(probe: Probe) -> str:
    """Listing and playing leave the global random generators, arguments and folder alone."""
    before = _globals()
    probe.suite.tasks(probe.split)
    for task in probe.tasks:
        await probe.walk(task)
    after = _globals()
    changed = [name for name, value in before.items() if after[name] != value]
    if changed:
        raise Failed(f"changed: {', '.join(changed)}")
    return f"untouched: {', '.join(before)}"


async def other_process(probe: Probe) -> str:
    """The same tasks and walks come out in processes with other hash seeds."""
    if not probe.spec:
        raise Skipped("a suite given as an object cannot be made again in another process")
    digests = {seed: _digest_elsewhere(probe, seed) for seed in ("0", "1")}
    here = digest(probe.tasks, [await probe.walk(task) for task in probe.tasks])
    if digests["0"] != digests["1"]:
        raise Failed("tasks or answers differ between PYTHONHASHSEED 0 and 1")
    if digests["0"] != here:
        raise Failed("tasks or answers differ in a fresh process")
    return f"{len(probe.tasks)} walk(s) the same in two other processes"


def digest(tasks: list[Any], walks: list[Walk]) -> str:
    """Return a digest of tasks and recorded walks; equal if and only if they are equal."""
    return hashlib.blake2b(msgspec.json.encode([tasks, walks]), digest_size=16).hexdigest()


def _digest_elsewhere(probe: Probe, hash_seed: str) -> str:
    settings = msgspec.to_builtins(probe.settings)
    order = json.dumps({"spec": probe.spec, "split": probe.split, "settings": settings})
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "dreamgym.envs.check.elsewhere", order],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"another process took longer than {SECONDS:g} seconds") from error
    lines = result.stdout.strip().splitlines()
    if result.returncode != 0 or not lines:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"another process could not play it: {reason}")
    return lines[-1]


def _globals() -> dict[str, object]:
    """Return what a suite must leave as it found it; torch only where it is loaded already."""
    state: dict[str, object] = {
        "random": random.getstate(),
        "sys.argv": list(sys.argv),
        "working folder": os.getcwd(),
        "os.environ": dict(os.environ),
        "sys.stdout": id(sys.stdout),
        "numpy.random": [str(part) for part in numpy.random.get_state()],
    }
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state().tolist()
    return state
