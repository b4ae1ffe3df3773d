"""A dream is just another suite: the experience model behind the `Suite` and `Env` protocols.

Nothing here reaches a real engine.  An episode knows its task and pinned scenario, logged
transitions found by retrieval, and what was dreamt so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from dreamgym.dream.doubt import Doubt, DoubtConfig, Settled
from dreamgym.dream.experience import Answer, ExperienceModel
from dreamgym.dream.ledger import Ledger
from dreamgym.dream.perturb import PerturbConfig, PerturbedEnv
from dreamgym.dream.prompt import StepContext, Turn
from dreamgym.dream.scenario import scenario_text
from dreamgym.dream.verify import Verifier, VerifyConfig
from dreamgym.envs.base import Env, StateReader, Suite
from dreamgym.errors import ConfigError, EnvError
from dreamgym.seeds import derive_seed
from dreamgym.types import Observation, Step, Task, Transition

if TYPE_CHECKING:
    from dreamgym.replay.buffer import ReplayBuffer


class DreamConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How dreamt episodes run."""

    max_steps: int = 30
    """Step limit; reaching it truncates the episode."""
    verify: bool = True
    """Success needs the verifier's agreement (task sentence against the ledger)."""
    verifying: VerifyConfig = VerifyConfig()
    """How the verifier settles claims, and which of them stand."""
    doubt: DoubtConfig = DoubtConfig()
    """What becomes of answers the model is not sure of; by default they are kept."""
    perturb: PerturbConfig = PerturbConfig()
    """Disturbances, off by default."""


class DreamSuite:
    """Tasks with pinned scenarios, played by an experience model."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        model: ExperienceModel,
        reader: StateReader,
        buffer: ReplayBuffer | None = None,
        config: DreamConfig | None = None,
        real: Suite | None = None,
    ) -> None:
        """`real` is only ever asked where `config.doubt.policy` is `ask_real`."""
        self.name = "dream"
        self._tasks = tuple(tasks)
        self.model = model
        self.reader = reader
        self.buffer = buffer
        self.config = config or DreamConfig()
        self.verifier = Verifier(reader, self.config.verifying) if self.config.verify else None
        self.doubt = Doubt(self.config.doubt, reader, real=real)
        self.perturbed: Counter[str] = Counter()
        """Disturbed steps by name."""

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split; a dream only has what it was given."""
        return [task for task in self._tasks if task.split == split]

    def open(self, task: Task, *, seed: int) -> Env:
        """Return a dreamt episode of a task with a scenario; raises `ConfigError` without one."""
        if task.scenario is None:
            raise ConfigError(
                f"task {task.id!r} has no scenario, so its dream has no first state; "
                "make one from logged episodes or let the generator write it"
            )
        if not self.config.perturb.is_on:
            return DreamEnv(self, task, seed=seed)
        return PerturbedEnv(
            DreamEnv(self, task, seed=seed),
            self.config.perturb,
            seed=seed,
            again=lambda: DreamEnv(self, task, seed=seed),
            counters=self.perturbed,
        )


class DreamEnv:
    """One dreamt episode."""

    def __init__(self, suite: DreamSuite, task: Task, *, seed: int) -> None:
        assert task.scenario is not None
        self._suite = suite
        self._task = task
        self._seed = seed
        self._session = f"dream/{task.id}/{id(self)}"
        self._scenario = scenario_text(task.scenario)
        self._ledger = Ledger(suite.reader, task)
        self._turns: list[Turn] = []
        self._observation = Observation(text=task.scenario.first_observation)
        self._state = "new"
        self._is_masked = False

    async def start(self) -> Observation:
        """Return the scenario's first observation: equal for every member of a group."""
        if self._state != "new":
            raise EnvError("an episode is used once; open a new one instead of starting it again")
        self._state = "running"
        return self._observation

    async def step(self, action: str) -> Step:
        """Ask the experience model what the action causes; raises `FaultError` when it cannot."""
        if self._state != "running":
            raise EnvError(f"step() on an episode that is {self._state}; call start() first")
        suite = self._suite
        neighbours = self._retrieve(action)
        context = StepContext(
            task=self._task,
            scenario=self._scenario,
            history=self._turns,
            known=self._ledger.lines(action),
            neighbours=neighbours,
            action=action,
        )
        settled = await self._settled(context)
        answer, reply = settled.answer, settled.answer.reply
        self._ledger.apply(action, reply.next_state)
        self._turns.append(Turn(action, reply.next_state))
        self._observation = Observation(text=reply.next_state)
        reward, done, success, flags = reply.reward, reply.done, reply.success, []
        if suite.verifier is not None:
            verdict = suite.verifier.judge(self._task, self._ledger.facts, reply)
            reward, done, success = verdict.reward, verdict.done, verdict.success
            flags = list(verdict.flags)
        flags += settled.flags
        self._is_masked = self._is_masked or settled.is_masked
        if answer.attempts > 1:
            flags.append("asked_again")
        if suite.reader.is_no_effect(reply.next_state):
            flags.append("no_effect")
        truncated = not done and len(self._turns) >= suite.config.max_steps
        if done or truncated:
            self._state = "finished"
        return Step(
            observation=self._observation,
            # What follows a masked step rests on it: the whole episode is left out of training.
            reward=None if self._is_masked else reward,
            terminated=done,
            truncated=truncated,
            success=success and not self._is_masked,
            rationale=reply.reasoning,
            confidence=answer.confidence,
            flags=tuple(flags),
        )

    async def _settled(self, context: StepContext) -> Settled:
        """Ask the model, and again where its answer is doubtful."""
        suite, action = self._suite, context.action
        seed = derive_seed(self._seed, len(self._turns))

        def check(text: str) -> Sequence[str]:
            return self._ledger.check(action, text)

        async def again(number: int, temperature: float) -> Answer:
            return await suite.model.answer(
                context,
                seed=derive_seed(seed, "doubt", number),
                check=check,
                temperature=temperature,
            )

        answer = await suite.model.answer(context, seed=seed, session=self._session, check=check)
        actions = [*(turn.action for turn in self._turns), action]
        return await suite.doubt.settle(answer, again, task=self._task, actions=actions)

    async def close(self) -> None:
        """Free the model's cache for this episode."""
        self._suite.model.chat.release(self._session)
        self._state = "closed"

    def _retrieve(self, action: str) -> list[Transition]:
        buffer, k = self._suite.buffer, self._suite.model.config.prompt.neighbours
        if buffer is None or k == 0:
            return []
        found = buffer.query(
            self._observation.text,
            action,
            k=k,
            suite=self._task.suite,
            exclude_task=self._task.id,
        )
        return [neighbour.transition for neighbour in found]
