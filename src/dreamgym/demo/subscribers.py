"""The probe as a listener of the dream loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dreamgym.demo.context import DemoContext
from dreamgym.probe import CollapseGuard, ProbeResult, probe
from dreamgym.train import IterationResult, Loop
from dreamgym.types import Rollout

if TYPE_CHECKING:
    from dreamgym.demo.refresh import Refresher

State = dict[str, Any]  # JSON


class Prober:
    """Looks at reality now and then, refreshes the model and rolls a collapsed policy back."""

    def __init__(self, ctx: DemoContext, refresher: Refresher | None) -> None:
        self._ctx = ctx
        self._refresher = refresher
        self.guard = CollapseGuard(ctx.config.probe)
        self.transitions = 0
        self._recent: list[Rollout] = []

    async def __call__(self, loop: Loop, result: IterationResult) -> bool:
        """Probe when it is time; returns False when training should stop."""
        self._recent += [
            r for group in result.groups for r in group.rollouts if r.success and not r.is_fault
        ]
        every = self._ctx.config.probe.every
        is_last = result.step + 1 == loop.config.iterations
        if not every or ((result.step + 1) % every and not is_last):
            return True
        dream = result.metrics["rollout/success"]
        found = await self._look(loop, result.step)
        self._recent = []
        result.metrics.update(_metrics(found))
        verdict = self.guard.judge(found.real.value, dream, result.step, n=found.real.n)
        result.metrics["probe/rollback"] = float(verdict in ("collapse", "stop"))
        if verdict == "better":
            loop.save("best")
        elif verdict in ("collapse", "stop"):
            self.keep_best(loop)
        if self._refresher is not None and verdict != "stop":
            result.metrics.update(self._refresher.refresh(found.rollouts))
        return verdict != "stop"

    async def begin(self, loop: Loop) -> None:
        """Probe the warm start, once: what later probes are held against."""
        if self.guard.best_real >= 0:
            return
        found = await self._look(loop, -1)
        self.guard.judge(found.real.value, 0.0, -1)
        loop.run.log(0, stage=f"{loop.stage}_start", **_metrics(found))
        loop.save("best")
        loop.save("latest")

    async def _look(self, loop: Loop, step: int) -> ProbeResult:
        ctx = self._ctx
        found = await probe(
            ctx.suite,
            loop.policy,
            ctx.probe_tasks,
            self._recent,
            step=step,
            seed=ctx.config.seed,
            limits=ctx.limits,
            config=ctx.config.probe,
        )
        self.transitions += found.transitions
        with ctx.run.writer("probe", "rollout", {"stage": loop.stage}) as writer:
            for rollout in found.rollouts:
                writer.write(rollout)
        return found

    def keep_best(self, loop: Loop) -> None:
        """Put the policy of the best probe back, if there is a better one than the current."""
        loop.run.load_checkpoint(f"{loop.stage}-best", loop.learner.load)
        loop.republish()

    def state_dict(self) -> State:
        """Return guard, counter and the refresher's state."""
        return {
            "guard": self.guard.state_dict(),
            "transitions": self.transitions,
            "refresher": self._refresher.state_dict() if self._refresher else None,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.guard.load_state_dict(state["guard"])
        self.transitions = int(state["transitions"])
        if self._refresher is not None:
            self._refresher.load_state_dict(state["refresher"])


def _metrics(found: ProbeResult) -> dict[str, float]:
    return {
        "probe/real_success": found.real.value,
        "probe/n": float(found.real.n),
        "probe/false_success": found.false_success.value,
        "probe/replays": float(found.false_success.n),
        "probe/transitions": float(found.transitions),
    }
