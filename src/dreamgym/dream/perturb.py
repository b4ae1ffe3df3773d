"""Controllable dreams: named disturbances at a set rate, off by default, each one flagged.

What an agent meets outside and a clean dream never shows: an action that fails, a result that is
cut, late or incomplete, a report of something that did not happen.  A disturbance depends on the
episode's seed and the step alone, so that the members of a group, who share the seed, still meet
one world.  Flagged steps are not evidence about the world: they never enter the replay buffer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from dreamgym.envs.base import Env, Suite
from dreamgym.errors import ConfigError
from dreamgym.seeds import derive_random
from dreamgym.types import Observation, Step, Task, Transition

FLAG = "perturbed:"
"""Beginning of the flag on a disturbed step; the name of the disturbance follows."""
_ITEM = re.compile(r"(?:, (?:and )?)(an? [^,.]+)(?=[,.])")
_MIN_WORDS = 6
"""Shorter texts cannot be cut to anything that still says something."""


class PerturbConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Probability per step of each disturbance; at most one happens in a step."""

    failed_action: float = 0.0
    """The action does nothing, and the agent is told so."""
    false_report: float = 0.0
    """The action does nothing, and the agent is told what it would have done."""
    partial_result: float = 0.0
    """The second half of the observation is missing, with a marker."""
    missing_item: float = 0.0
    """One item of a listing is left out, without a marker."""
    delay: float = 0.0
    """The observation comes with the next step's."""
    failed_text: str = "Nothing happens."
    """What a failed action is answered with; the suite's own words are best."""
    delayed_text: str = "The result is not there yet."

    def __post_init__(self) -> None:
        """Refuse rates that are no probabilities."""
        for name in NAMES:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(
                    f"perturb.{name} must be a probability in [0, 1]; got {getattr(self, name)}"
                )
        if sum(getattr(self, name) for name in NAMES) > 1.0 + 1e-9:
            raise ConfigError(
                "the perturb rates add up to more than 1, but only one happens in a step; "
                "lower them"
            )

    @property
    def is_on(self) -> bool:
        """Whether anything is disturbed at all."""
        return any(getattr(self, name) > 0 for name in NAMES)

    def draw(self, rng: Random) -> str:
        """Return the name of a disturbance, "" for none."""
        place = rng.random()
        for name in NAMES:
            place -= getattr(self, name)
            if place < 0:
                return name
        return ""


NAMES = ("failed_action", "false_report", "partial_result", "missing_item", "delay")


def is_perturbed(transition: Transition) -> bool:
    """Return whether a step was disturbed and says nothing reliable about the world."""
    return any(flag.startswith(FLAG) for flag in transition.flags)


class PerturbedEnv:
    """One episode of any suite, disturbed now and then."""

    def __init__(
        self,
        inner: Env,
        config: PerturbConfig,
        *,
        seed: int,
        again: Callable[[], Env],
        counters: Counter[str],
    ) -> None:
        """`again` opens another episode of the same task and seed, to see what would happen."""
        self._inner = inner
        self._config = config
        self._seed = seed
        self._again = again
        self._counters = counters
        self._done: list[str] = []
        """Actions the inner world has seen."""
        self._steps = 0
        self._seen = Observation(text="")
        self._late = ""

    async def start(self) -> Observation:
        """Return the first observation, never disturbed."""
        self._seen = await self._inner.start()
        return self._seen

    async def step(self, action: str) -> Step:
        """Apply one action, or do not, as the disturbance of this step says."""
        rng = derive_random(self._seed, "perturb", self._steps)
        self._steps += 1
        name = self._config.draw(rng)
        if name == "failed_action":
            return self._unmoved(name, self._config.failed_text)
        if name == "false_report":
            said = await self._would_say(action)
            if said is not None:
                return self._unmoved(name, said)
        step = await self._inner.step(action)
        self._done.append(action)
        return self._shown(step, name, rng)

    async def close(self) -> None:
        """Close the inner episode."""
        await self._inner.close()

    def _shown(self, step: Step, name: str, rng: Random) -> Step:
        text, flags = step.observation.text, step.flags
        if self._late:
            text, self._late = f"{self._late} {text}", ""
            flags = (*flags, f"{FLAG}late_result")
        if not (step.terminated or step.truncated):  # the end is always told as it is
            changed = self._changed(text, name, rng)
            if changed != text:
                text, flags = changed, (*flags, f"{FLAG}{name}")
                self._counters[name] += 1
        shown = msgspec.structs.replace(step.observation, text=text)
        self._seen = shown
        return msgspec.structs.replace(step, observation=shown, flags=flags)

    def _changed(self, text: str, name: str, rng: Random) -> str:
        if name == "partial_result":
            words = text.split(" ")
            if len(words) >= _MIN_WORDS:
                return " ".join(words[: len(words) // 2]) + " ..."
        elif name == "missing_item":
            items = list(_ITEM.finditer(text))
            if items:
                gone = rng.choice(items)
                return text[: gone.start()] + text[gone.end() :]
        elif name == "delay":
            self._late = text
            return self._config.delayed_text
        return text

    def _unmoved(self, name: str, text: str) -> Step:
        """Return a step in which the world stood still."""
        self._counters[name] += 1
        if self._late:
            text, self._late = f"{self._late} {text}", ""
        self._seen = Observation(text=text, actions=self._seen.actions)
        return Step(observation=self._seen, flags=(f"{FLAG}{name}",))

    async def _would_say(self, action: str) -> str | None:
        """Return what the world would answer, from another episode; None if that would end it."""
        other = self._again()
        try:
            await other.start()
            for earlier in self._done:
                await other.step(earlier)
            step = await other.step(action)
        finally:
            await other.close()
        return None if step.terminated or step.truncated else step.observation.text


class PerturbedSuite:
    """Any suite, real or dreamt, with disturbances; counts them by name."""

    def __init__(self, inner: Suite, config: PerturbConfig) -> None:
        self.name = inner.name
        self.counters: Counter[str] = Counter()
        self._inner = inner
        self._config = config

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of the wrapped suite."""
        return self._inner.tasks(split)

    def open(self, task: Task, *, seed: int) -> Env:
        """Return a disturbed episode; the same task and seed are disturbed alike."""
        return PerturbedEnv(
            self._inner.open(task, seed=seed),
            self._config,
            seed=seed,
            again=lambda: self._inner.open(task, seed=seed),
            counters=self.counters,
        )
