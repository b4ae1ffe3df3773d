"""Run the whole measurement of one experience model on one panel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from dreamgym.dream.scenario import known_share
from dreamgym.envs.base import Policy
from dreamgym.fidelity.calibration import calibrate
from dreamgym.fidelity.costs import StepCost, break_even
from dreamgym.fidelity.free import (
    MAX_CONCURRENT,
    FreePlay,
    Replayed,
    drift,
    play_and_replay,
)
from dreamgym.fidelity.panel import Panel, sample_episodes
from dreamgym.fidelity.rank import rank_agreement
from dreamgym.fidelity.repeat import repeat
from dreamgym.fidelity.result import (
    AblationRow,
    Accounts,
    Disagreement,
    Drift,
    Fidelity,
    FreePlayResult,
    PolicyRow,
    Ranks,
    Repeatability,
)
from dreamgym.fidelity.settings import FidelitySettings
from dreamgym.fidelity.steps import ScoredStep, score_steps
from dreamgym.fidelity.subject import ABLATIONS, FULL, Subject, Variant
from dreamgym.fidelity.summary import bounds, step_fidelity
from dreamgym.fidelity.tables import (
    confusion,
    consistency,
    drift_curve,
    paired_difference,
    step_rates,
)
from dreamgym.fidelity.wording import verdict
from dreamgym.progress import progress
from dreamgym.seeds import derive_random
from dreamgym.stats import Rate
from dreamgym.types import Rollout, Task

OFTEN = 0.5
"""Real success of a task from which failing it always in the dream is a disagreement."""
REPEATED_GROUPS = 8
"""Real action sequences replayed in many copies."""


Result = TypeVar("Result")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The result, and the rows it was made from."""

    fidelity: Fidelity
    steps: list[ScoredStep]
    replays: list[Replayed]


def measure(
    subject: Subject, panel: Panel, policies: Sequence[Policy], settings: FidelitySettings
) -> Measured:
    """Measure the subject on the panel; `policies` play in the dream and are ranked."""
    return _Measurement(subject, panel, policies, settings).run()


class _Measurement:
    def __init__(
        self,
        subject: Subject,
        panel: Panel,
        policies: Sequence[Policy],
        settings: FidelitySettings,
    ) -> None:
        self.subject = subject
        self.panel = panel
        self.policies = list(policies)
        self.settings = settings
        self.full = Variant(subject)
        self.real = panel.real_success()
        self.replay_steps = 0

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run to the end; an endpoint's connections belong to the event loop and end with it."""

        async def closing() -> Result:
            try:
                return await work
            finally:
                await self.subject.close()

        return asyncio.run(closing())

    def run(self) -> Measured:
        settings = self.settings
        steps = self.score(self.full, settings.questions)
        drifting, dream_cost = self.drift()
        off = self.play(self.full, settings.free_tasks, verify=False, what="verifier off")
        on = self.play(self.full, settings.free_tasks, verify=True, what=FULL)
        real_cost = self.real_cost(on)
        ablations = self.ablations()
        result = Fidelity(
            subject=self.subject.name,
            suite=self.subject.suite.name,
            split=settings.split,
            seed=settings.seed,
            tasks=len(self.panel.tasks),
            real_transitions=Accounts(
                panel=self.panel.num_transitions,
                replays=self.replay_steps,
                fitted_on=self.subject.origins.transitions,
            ),
            scenario_known=self.scenario_known(),
            steps=step_fidelity(steps),
            drift=drifting,
            free_play=self.free_play(on, off),
            calibration=calibrate(
                [(s.confidence, s.exact) for s in steps if s.confidence is not None]
            ),
            ranks=self.ranks(on),
            bounds=bounds(steps, horizon=self.subject.max_steps),
            ablations=ablations,
            repeatability=self.repeatability(),
            dream_cost=dream_cost,
            real_cost=real_cost,
            break_even=break_even(
                dream_cost,
                real_cost,
                fixed_seconds=self.subject.origins.seconds,
                fixed_transitions=self.subject.origins.transitions,
            ),
            verdict=[],
        )
        worded = msgspec.structs.replace(result, verdict=verdict(result))
        return Measured(fidelity=worded, steps=steps, replays=on.rows)

    def score(self, variant: Variant, max_steps: int) -> list[ScoredStep]:
        settings = self.settings
        chosen = sample_episodes(self.panel.episodes, max_steps=max_steps, seed=settings.seed)
        total = sum(len(e.transitions) for e in chosen) * (1 + settings.negatives)
        with progress(f"asking held-out steps, {variant.name}", total) as bar:
            return self.wait(
                score_steps(
                    variant,
                    chosen,
                    tasks=self.panel.tasks,
                    negatives=settings.negatives,
                    seed=settings.seed,
                    rare_share=settings.rare_share,
                    on_answer=bar.advance,
                )
            )

    def drift(self) -> tuple[Drift, StepCost]:
        """Walk real episodes in the dream; with fixed actions only the dream takes time."""
        chosen = _spread(self.panel.episodes, self.settings.drift_episodes, self.settings.seed)
        read, written = self.full.meter.prompt_tokens, self.full.meter.completion_tokens
        started = time.monotonic()
        with progress("walking real episodes in the dream", len(chosen)) as bar:
            rows = self.wait(
                drift(
                    self.full,
                    chosen,
                    tasks=self.panel.tasks,
                    seed=self.settings.seed,
                    on_episode=bar.advance,
                )
            )
        seconds = time.monotonic() - started
        num_steps = sum(len(row.agrees) for row in rows)
        found = Drift(
            episodes=len(rows),
            faults=sum(row.is_fault for row in rows),
            curve=drift_curve(rows),
            whole=Rate.of(sum(row.agreed >= row.steps for row in rows), len(rows)),
            mean_agreed=sum(row.agreed for row in rows) / max(len(rows), 1),
            success=confusion((row.dream_success, row.real_success) for row in rows),
        )
        meter, price = self.full.meter, self.subject.price
        read, written = meter.prompt_tokens - read, meter.completion_tokens - written
        money = None if price is None else price.cost(read, written)
        return found, StepCost(
            steps=num_steps,
            seconds=seconds,
            concurrency=min(MAX_CONCURRENT, len(chosen)),
            tokens_per_step=(read + written) / max(num_steps, 1),
            money_per_step=None if money is None else money / max(num_steps, 1),
        )

    def tasks(self, count: int) -> list[Task]:
        names = sorted(self.panel.tasks)
        chosen = derive_random(self.settings.seed, "fidelity tasks").sample(
            names, min(count, len(names))
        )
        return [self.panel.tasks[name] for name in sorted(chosen)]

    def play(self, variant: Variant, count: int, *, verify: bool, what: str) -> FreePlay:
        tasks = self.tasks(count)
        with progress(f"dreaming, {what}", len(tasks) * len(self.policies)) as bar:
            found = self.wait(
                play_and_replay(
                    variant,
                    self.policies,
                    tasks,
                    seed=self.settings.seed,
                    verify=verify,
                    on_episode=bar.advance,
                )
            )
        self.replay_steps += found.real_steps
        return found

    def real_cost(self, play: FreePlay) -> StepCost:
        """Return what the replays cost: with fixed actions only the environment takes time."""
        seconds = play.real_seconds
        if self.settings.real_step_seconds is not None:
            seconds = self.settings.real_step_seconds * play.real_steps
        return StepCost(steps=play.real_steps, seconds=seconds, concurrency=1)

    def free_play(self, on: FreePlay, off: FreePlay) -> FreePlayResult:
        seed, agents = self.settings.seed, set(self.subject.agents)
        by_agents = [row for row in on.rows if row.policy in agents]
        return FreePlayResult(
            verifier_on=consistency(on.rows, self.real, seed=seed),
            verifier_off=consistency(off.rows, self.real, seed=seed),
            agents=consistency(by_agents, self.real, seed=seed) if by_agents else None,
            by_policy={
                policy.name: consistency(
                    [row for row in on.rows if row.policy == policy.name], self.real, seed=seed
                )
                for policy in self.policies
            },
            disagreements=self.disagreements(on),
            faults=on.num_faults,
            episodes=len(on.rows),
        )

    def disagreements(self, play: FreePlay) -> list[Disagreement]:
        found = []
        for name, task in sorted(self.panel.tasks.items()):
            rows = [
                row
                for row in play.rows
                if row.task_id == name and name in self.real.get(row.policy, {})
            ]
            if not rows or any(row.dream_success for row in rows):
                continue
            real = sum(self.real[row.policy][name] for row in rows) / len(rows)
            if real >= OFTEN:
                found.append(
                    Disagreement(task_id=name, kind=task.kind, real=real, policies=len(rows))
                )
        return found

    def ranks(self, play: FreePlay) -> Ranks:
        rows = {}
        for name, by_task in play.dream_success.items():
            shared = sorted(set(by_task) & set(self.real.get(name, {})))
            if shared:
                dreamt = sum(by_task[task] for task in shared)
                real = sum(self.real[name][task] for task in shared)
                rows[name] = PolicyRow(
                    dream=Rate.of(dreamt, len(shared)), real=Rate.of(round(real), len(shared))
                )
        return Ranks(
            policies=rows,
            agreement=rank_agreement(
                {name: row.dream.value for name, row in rows.items()},
                {name: row.real.value for name, row in rows.items()},
            ),
        )

    def ablations(self) -> dict[str, AblationRow]:
        settings = self.settings
        rows: dict[str, AblationRow] = {}
        if not settings.ablate:
            return rows
        whole: FreePlay | None = None
        for off in ("", *settings.ablate):
            variant = Variant(self.subject, off)
            steps = self.score(variant, settings.ablation_questions)
            play = self.play(variant, settings.ablation_tasks, verify=True, what=variant.name)
            whole = whole or play
            rows[off or FULL] = self.ablation(off, steps, play, whole)
        return rows

    def ablation(
        self, off: str, steps: Sequence[ScoredStep], play: FreePlay, whole: FreePlay
    ) -> AblationRow:
        seed = self.settings.seed
        return AblationRow(
            means=ABLATIONS[off] if off else "the whole model",
            valid=step_rates([s for s in steps if s.is_valid]),
            invalid=step_rates([s for s in steps if not s.is_valid]),
            consistency=consistency(play.rows, self.real, seed=seed),
            w2r_loss=paired_difference(whole.rows, play.rows, _replay_success, seed=seed)
            if off
            else None,
            agreement_loss=paired_difference(whole.rows, play.rows, _confirmed, seed=seed)
            if off
            else None,
            faults=play.num_faults,
        )

    def repeatability(self) -> Repeatability:
        chosen = _spread(self.panel.episodes, REPEATED_GROUPS, self.settings.seed)
        return self.wait(repeat(self.full, chosen, self.panel.tasks, copies=self.settings.copies))

    def scenario_known(self) -> float:
        shares = [known_share(t.scenario) for t in self.panel.tasks.values() if t.scenario]
        return sum(shares) / max(len(shares), 1)


def _replay_success(row: Replayed) -> float:
    return float(row.replay_success)


def _confirmed(row: Replayed) -> float:
    return float(not row.is_fault and row.dream_success == row.replay_success)


def _spread(episodes: Sequence[Rollout], count: int, seed: int) -> list[Rollout]:
    """Return up to `count` episodes, all policies in turn."""
    ordered = sample_episodes(episodes, max_steps=10**9, seed=seed)
    return ordered[:count]
