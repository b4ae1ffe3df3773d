"""Play the walks of a check in this process and print their digest (see `of_process`)."""

from __future__ import annotations

import asyncio
import json
import sys

from dreamgym.envs.check.of_process import digest
from dreamgym.envs.check.probe import CheckSettings, Probe
from dreamgym.envs.check.spec import open_spec


async def _play(probe: Probe) -> str:
    return digest(probe.tasks, [await probe.walk(task) for task in probe.tasks])


def main(order: str) -> None:
    """Print the digest for `{"spec", "split", "settings"}`."""
    asked = json.loads(order)
    settings = CheckSettings(
        **{**asked["settings"], "split": asked["split"]},
    )
    print(asyncio.run(_play(Probe(open_spec(asked["spec"]), settings))))


if __name__ == "__main__":
    main(sys.argv[1])
