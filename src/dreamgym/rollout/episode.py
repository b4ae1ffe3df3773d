"""One episode: policy and environment take turns, everything that happens is recorded.

Three things are kept apart.  A *bad action* is the policy's: it is counted and trained on.  A
*truncation* (turn limit, full context) ends the episode without success.  A *fault* is ours (an
environment, a model or a network failed): reward None, never trained on, never scored.
Mistakes of the caller (`UserError`) are not episodes at all and are raised.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable

import msgspec

from dreamgym.agent.parse import DIALECTS, Dialect, ParsedAction, parse_action, resolve
from dreamgym.agent.policy import ContextFull
from dreamgym.config import redact
from dreamgym.envs.base import Actor, Env, Policy
from dreamgym.errors import ConfigError, EnvError, UserError
from dreamgym.llm.base import Finish
from dreamgym.rollout.budget import TransitionBudget
from dreamgym.rollout.clock import EnvClock
from dreamgym.types import (
    Completion,
    Observation,
    Origin,
    Rollout,
    Step,
    StopReason,
    Task,
    Transition,
)

__all__ = ["EpisodeLimits", "Parser", "TransitionBudget", "run_episode"]

log = logging.getLogger(__name__)

SUCCESS_TOLERANCE = 1e-6
CLOSE_SECONDS = 30.0
"""Longest wait for an environment or actor to close; a hanging one is left behind and logged."""

TRUNCATING = frozenset({StopReason.TURN_LIMIT, StopReason.CONTEXT, StopReason.BUDGET})
"""Stops that cut an episode which could have gone on; the last transition is marked truncated."""

NOT_EXECUTED = "Nothing happens."
"""Shown when a reply held no readable action; the environment was not asked."""
THOUGHT_HEARD = "OK."
"""Shown after a turn that only thinks, as in ReAct's ALFWorld prompts."""


class Parser(msgspec.Struct, frozen=True, kw_only=True):
    """How replies are read; see `dreamgym.agent.parse`."""

    dialects: tuple[Dialect, ...] = DIALECTS

    def __call__(self, text: str, finish: Finish) -> ParsedAction:
        """Return the action in a reply."""
        return parse_action(text, finish=finish, dialects=self.dialects)


class EpisodeLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an episode is ended from outside."""

    max_steps: int = 30
    """Steps of the environment; reaching it truncates the episode."""
    max_invalid: int = 5
    """Replies without a readable action after which the episode ends as failed."""
    max_idle: int | None = None
    """Steps without effect after which the episode ends as failed.  In training it keeps an agent
    that is lost from filling the batch with its last, hopeless turns."""
    max_turns: int | None = None
    """Replies in all, thoughts and cut generations included; None is twice `max_steps` plus
    `max_invalid`."""
    wall_seconds: float | None = None
    """Time for the environment's side (open, start, steps); the policy's time is not counted."""
    invalid_notice: str = NOT_EXECUTED
    """Observation after a reply without a readable action."""

    def __post_init__(self) -> None:
        """Refuse limits under which no episode could run."""
        for name in ("max_steps", "max_invalid", "max_idle", "max_turns", "wall_seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} must be positive; got {value}")

    @property
    def turn_cap(self) -> int:
        """Replies after which the episode is truncated whatever they were."""
        return self.max_turns or 2 * self.max_steps + self.max_invalid


async def run_episode(
    env: Env,
    policy: Policy,
    task: Task,
    *,
    episode_id: str,
    attempt: int,
    seed: int,
    limits: EpisodeLimits,
    origin: Origin,
    budget: TransitionBudget | None = None,
    on_transition: Callable[[Transition], None] | None = None,
    parser: Parser | None = None,
    clock: EnvClock | None = None,
) -> Rollout:
    """Play one episode, close `env`, and return what happened; never raises for a fault.

    `seed` is the policy's; the environment got its own when it was opened.  `budget` counts
    executed real transitions and ends the episode when it is used up.  Raises `UserError` only.
    """
    episode = _Episode(env, task, limits, clock or EnvClock(limits.wall_seconds))
    episode.name(episode_id, origin, policy.name, attempt)
    episode.budget, episode.on_transition = budget, on_transition
    episode.parser = parser or Parser()
    actor: Actor | None = None
    try:
        actor = policy.start(task, seed=seed)
        await episode.play(actor)
    except UserError:
        raise
    except Exception as error:  # whatever a foreign environment or endpoint raises is a fault
        episode.fail(error)
    finally:
        try:
            if actor is not None:
                await episode.close_quietly(actor)
        finally:  # also when the episode is cancelled a second time while closing
            await episode.close_quietly(env)
    return episode.rollout()


class _Episode:
    """The state of one running episode."""

    budget: TransitionBudget | None = None
    on_transition: Callable[[Transition], None] | None = None
    parser: Parser

    def __init__(self, env: Env, task: Task, limits: EpisodeLimits, clock: EnvClock) -> None:
        self._env = env
        self._task = task
        self._limits = limits
        self._clock = clock
        self._transitions: list[Transition] = []
        self._completions: list[Completion] = []
        self._turns: list[int] = []
        self._counters: Counter[str] = Counter()
        self._last: Step | None = None
        self._idle = 0
        self._stop: StopReason | None = None
        self._error = ""

    def name(self, episode_id: str, origin: Origin, policy: str, attempt: int) -> None:
        """Set what identifies the episode in the records."""
        self._id, self._origin, self._policy, self._attempt = episode_id, origin, policy, attempt

    async def play(self, actor: Actor) -> None:
        """Take turns until something ends the episode."""
        state = await self._clock.wait(self._env.start(), "start")  # state of the world
        shown = state  # what the policy reads: the state, or a notice that nothing was done
        while self._stop is None:
            if self.budget is not None and not self.budget.reserve():
                self._stop = StopReason.BUDGET
                return
            spent = False
            try:
                parsed = await self._ask(actor, shown)
                if parsed is None:
                    return
                if not parsed.action:
                    shown = self._answer_without_step(parsed, state)
                    continue
                state = shown = await self._execute(parsed, state)
                spent = True
            finally:
                if self.budget is not None:
                    self.budget.settle(spent)

    async def _ask(self, actor: Actor, shown: Observation) -> ParsedAction | None:
        try:
            completion = await actor.act(shown)
        except ContextFull:
            self._stop = StopReason.CONTEXT
            return None
        self._completions.append(completion)
        parsed = self.parser(completion.text, completion.finish)
        self._counters.update(parsed.flags)
        return parsed

    def _answer_without_step(self, parsed: ParsedAction, state: Observation) -> Observation:
        """Count a turn the environment does not see; the state stays what it is."""
        if parsed.is_thought:
            text = THOUGHT_HEARD
        else:
            text = self._limits.invalid_notice
            cut = parsed.problem == "truncated_generation"
            self._counters["truncated_generation" if cut else "invalid_format"] += 1
            self._counters["empty"] += parsed.problem == "empty"
        if self._counters["invalid_format"] >= self._limits.max_invalid:
            self._stop = StopReason.INVALID_LIMIT
        elif len(self._completions) >= self._limits.turn_cap:
            self._stop = StopReason.TURN_LIMIT
        return Observation(text=text, actions=state.actions)

    async def _execute(self, parsed: ParsedAction, state: Observation) -> Observation:
        resolution = resolve(parsed.action, state.actions)
        step = await self._clock.wait(self._env.step(resolution.action), "step")
        if step.reward is not None and not math.isfinite(step.reward):
            raise EnvError(f"reward must be a finite number or None; got {step.reward}")
        self._count(step, is_inadmissible=resolution.is_admissible is False)
        self._idle += "no_effect" in step.flags
        self._last = step
        full = len(self._transitions) + 1 >= self._limits.max_steps
        full = full or len(self._completions) >= self._limits.turn_cap
        transition = Transition(
            task_id=self._task.id,
            suite=self._task.suite,
            episode_id=self._id,
            step=len(self._transitions),
            instruction=self._task.instruction,
            observation=state,
            action=resolution.action,
            next_observation=step.observation,
            reward=step.reward,
            terminated=step.terminated,
            truncated=not step.terminated and (step.truncated or full),
            success=is_success(step),
            origin=self._origin,
            thought=parsed.thought,
            rationale=step.rationale,
            flags=(*parsed.flags, *step.flags),
        )
        self._transitions.append(transition)
        self._turns.append(len(self._completions) - 1)
        if self.on_transition is not None:
            self.on_transition(transition)
        if step.terminated:
            self._stop = StopReason.TERMINATED
        elif transition.truncated:
            self._stop = StopReason.TURN_LIMIT
        elif self._limits.max_idle is not None and self._idle >= self._limits.max_idle:
            self._stop = StopReason.INVALID_LIMIT
        return step.observation

    def _count(self, step: Step, *, is_inadmissible: bool) -> None:
        """Count the step's flags; an inadmissible action is not also one without effect."""
        self._counters["inadmissible"] += is_inadmissible
        self._counters.update(f for f in step.flags if not (is_inadmissible and f == "no_effect"))

    def fail(self, error: Exception) -> None:
        """Turn an exception into a fault that names suite, task and turn."""
        self._stop = StopReason.FAULT
        turn = len(self._completions)
        self._error = redact(
            f"{type(error).__name__}: {error} (suite {self._task.suite!r}, "
            f"task {self._task.id!r}, turn {turn})"
        )
        log.warning("episode %s is a fault and is left out: %s", self._id, self._error)

    async def close_quietly(self, resource: Env | Actor) -> None:
        """Close without letting a failing close change the episode's result."""
        try:
            await asyncio.wait_for(resource.close(), CLOSE_SECONDS)
        except Exception as error:
            self._counters["close_failed"] += 1
            log.warning("episode %s: closing failed: %s", self._id, redact(repr(error)))

    def rollout(self) -> Rollout:
        """Return the record of the finished episode."""
        assert self._stop is not None
        if self._transitions and self._stop in TRUNCATING:
            last = self._transitions[-1]
            self._transitions[-1] = msgspec.structs.replace(last, truncated=not last.terminated)
        return Rollout(
            id=self._id,
            task=self._task,
            attempt=self._attempt,
            transitions=tuple(self._transitions),
            completions=tuple(self._completions),
            turns=() if self._turns == [*range(len(self._turns))] else tuple(self._turns),
            stop=self._stop,
            reward=self._reward(),
            success=self._stop is not StopReason.FAULT and self._succeeded(),
            error=self._error,
            policy=self._policy,
            counters={k: v for k, v in sorted(self._counters.items()) if v},
        )

    def _reward(self) -> float | None:
        """Return the outcome reward (DreamGym, arXiv 2511.03773, Sec. 4): only the end pays.

        None for faults, for an unscorable last step, and for an episode our own budget cut off,
        which says nothing about the policy.
        """
        if self._stop in {StopReason.FAULT, StopReason.BUDGET}:
            return None
        if self._last is None:
            return 0.0
        if self._last.reward is None:
            return None
        return self._last.reward if self._last.terminated or self._succeeded() else 0.0

    def _succeeded(self) -> bool:
        return self._last is not None and is_success(self._last)


def is_success(step: Step) -> bool:
    """Return whether a step completes the task: the environment says so, or it pays in full.

    Being over is not success, and neither is a partial reward (0.75).
    """
    if step.success:
        return True
    paid = step.reward is not None and step.reward >= 1.0 - SUCCESS_TOLERANCE
    return step.terminated and paid
