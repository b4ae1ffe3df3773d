"""Continue fitting the experience model on what the probe found in reality."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from dreamgym.demo.context import DemoContext, Dreamer, make_learner
from dreamgym.demo.logged import Logged, load_rollouts
from dreamgym.demo.stages import annotate
from dreamgym.dream.annotate import scenario_tasks
from dreamgym.fit import TokenStream, train_on_stream
from dreamgym.llm.render import Renderer
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.types import Rollout


class Refresher:
    """Mixes new real episodes half and half with the logs the model was fitted on."""

    def __init__(
        self, ctx: DemoContext, logged: Logged, buffer: ReplayBuffer, dreamer: Dreamer
    ) -> None:
        self._ctx = ctx
        self._logged = logged
        self._buffer = buffer
        self._dreamer = dreamer
        self._old = annotate(ctx, logged, buffer, logged.fitting)
        config = ctx.config.experience
        self._learner = make_learner(
            dreamer.model,
            dreamer.tokenizer,
            config,
            rate=config.learning_rate * ctx.config.probe.refresh_rate,
            optimizer=config.optimizer,
        )
        self._rollouts: list[Rollout] = []
        self.rounds = 0

    def refresh(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Train on the new episodes and hand the weights to the engine."""
        ctx, logged = self._ctx, self._logged
        fresh = [r for r in rollouts if r.transitions and r.task.id not in logged.heldout_ids]
        self._rollouts += fresh
        if not self._rollouts:
            return {}
        logged.rollouts += fresh
        logged.tasks.update(scenario_tasks(self._rollouts, logged.reader))
        self._buffer.add([t for r in fresh for t in r.transitions])
        new = annotate(ctx, logged, self._buffer, self._rollouts)
        half = self._old[self.rounds :: max(len(self._old) // max(len(new), 1), 1)]
        fit = replace(ctx.config.fit, seed=ctx.seed("refresh", self.rounds))
        stream = TokenStream(
            [*new, *half], [], Renderer(self._dreamer.tokenizer), ctx.prompt_config, fit
        )
        steps = ctx.config.probe.refresh_steps
        loss = train_on_stream(self._learner, stream.batch, config=fit, start=0, steps=steps)
        self._dreamer.publish()
        self.rounds += 1
        self._ctx.save_model(self._name, self._dreamer.model, self._dreamer.tokenizer)
        return {"refresh/loss": loss, "refresh/examples": float(len(new))}

    def state_dict(self) -> dict[str, int]:
        """Return how many refreshes there were and how many episodes they saw."""
        return {"rounds": self.rounds, "rollouts": len(self._rollouts)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go back to the model and the episodes after so many refreshes."""
        self.rounds = state["rounds"]
        if not self.rounds:
            return
        found = load_rollouts(self._ctx, "probe")
        fresh = [r for r in found if r.transitions and r.task.id not in self._logged.heldout_ids]
        self._rollouts = fresh[: state["rollouts"]]
        self._logged.rollouts += self._rollouts
        self._logged.tasks.update(scenario_tasks(self._rollouts, self._logged.reader))
        model, _ = self._ctx.load_model(self._name)
        self._dreamer.model.load_state_dict(model.state_dict())
        self._dreamer.publish()

    @property
    def _name(self) -> str:
        return f"experience_refreshed_{self.rounds}"
