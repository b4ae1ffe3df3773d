"""The whole command: load the subject, make the panel, measure, write JSON and page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from dreamgym.collect import read_rollouts
from dreamgym.envs.base import Policy
from dreamgym.errors import ConfigError
from dreamgym.fidelity.measure import Measured, measure
from dreamgym.fidelity.page import check_packages, write_page
from dreamgym.fidelity.panel import (
    PLAYERS,
    SURVEYORS,
    Panel,
    make_panel,
    make_policies,
    play_panel,
)
from dreamgym.fidelity.settings import FidelitySettings
from dreamgym.fidelity.sources import Source, load_source
from dreamgym.pipeline.suites import greedy, is_path
from dreamgym.records import RecordWriter, write_json_atomic
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.types import Rollout

JSON_NAME = "fidelity.json"
SURVEY_STEPS = 60
"""Step limit of the episodes that complete scenarios: looking into every place takes long."""


def run_fidelity(settings: FidelitySettings) -> tuple[Measured, Path]:
    """Measure what the settings name; returns the result and the folder it was written to."""
    check_packages()
    return measure_source(load_source(settings), settings)


def measure_source(source: Source, settings: FidelitySettings) -> tuple[Measured, Path]:
    """Measure a loaded source and write `fidelity.json`, the misses and the page."""
    folder = Path(settings.out) if settings.out else source.folder
    folder.mkdir(parents=True, exist_ok=True)
    policies = _policies(source, settings)
    panel = _panel(source, settings, policies, folder)
    policies = _playable(policies, panel, settings)
    found = measure(source.subject, panel, policies, settings)
    write_json_atomic(folder / JSON_NAME, found.fidelity)
    _write_misses(found, folder / "misses.jsonl")
    write_page(found.fidelity, folder)
    return found, folder


def _policies(source: Source, settings: FidelitySettings) -> list[Policy]:
    """Return the policies of the panel and of the rank agreement, each name once."""
    subject = source.subject
    if not settings.policies:
        scripted = make_policies(subject.suite, PLAYERS, optional=True)
        return [*scripted, *subject.agents.values()]
    found: list[Policy] = []
    for name in settings.policies:
        if name in subject.agents:
            found.append(subject.agents[name])
        elif is_path(name):
            from dreamgym.pipeline.models import load_agent

            play = greedy(settings.play, wanted=settings.greedy)
            found.append(load_agent(name, play).policy)
        else:
            found += make_policies(subject.suite, [name])
    twice = sorted({p.name for p in found if [q.name for q in found].count(p.name) > 1})
    if twice:
        raise ConfigError(f"policy {twice[0]!r} is given twice; each needs a name of its own")
    return found


def _panel(
    source: Source, settings: FidelitySettings, policies: Sequence[Policy], folder: Path
) -> Panel:
    subject = source.subject
    started = time.monotonic()
    rollouts: list[Rollout] = []
    for path in settings.episodes:
        rollouts += read_rollouts(path)
    if not settings.episodes:
        if not policies:
            raise ConfigError(
                f"suite {subject.suite.name!r} has no built-in policies; give recorded episodes "
                "with --episodes or model folders with --policy"
            )
        rollouts = play_panel(
            subject.suite,
            source.tasks,
            policies,
            surveyors=make_policies(subject.suite, SURVEYORS, optional=True),
            path=folder / "episodes.jsonl",
            seed=settings.seed,
            limits=EpisodeLimits(max_steps=subject.max_steps, max_invalid=5),
            survey_limits=EpisodeLimits(max_steps=SURVEY_STEPS),
        )
        wanted = {policy.name for policy in policies} | set(SURVEYORS)
        ids = {task.id for task in source.tasks}
        rollouts = [r for r in rollouts if r.policy in wanted and r.task.id in ids]
    return make_panel(
        rollouts,
        subject.reader,
        surveyors=SURVEYORS,
        seen_tasks=source.seen_tasks,
        seconds=time.monotonic() - started,
    )


def _playable(policies: Sequence[Policy], panel: Panel, settings: FidelitySettings) -> list[Policy]:
    """Return the policies that also played for real; only those can be set side by side."""
    known = set(panel.real_success())
    found = [policy for policy in policies if policy.name in known]
    if settings.episodes and not found:
        raise ConfigError(
            "no policy of the episodes can play here, so nothing can be dreamt and replayed; the "
            f"episodes are of {', '.join(sorted(known))}; name policies with --policy"
        )
    return found


def _write_misses(found: Measured, path: Path) -> None:
    """Keep every wrong answer, to be read."""
    path.unlink(missing_ok=True)
    with RecordWriter(path, "fidelity_miss") as writer:
        for step in found.steps:
            if step.is_fault or not step.exact:
                writer.write(step)
