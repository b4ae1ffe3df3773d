"""A tiny real environment (count up to a target) and policies that answer from what they read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from dreamgym.errors import ConfigError
from dreamgym.seeds import derive_random
from dreamgym.types import Completion, Observation, Step, Task

ACTIONS = ("Add 1", "Take 1", "say <number>")


class CountingSuite:
    """Reach the target with `Add 1`, then say it. Delays let episodes overtake each other."""

    name = "counting"

    def __init__(self, num_tasks: int = 4, delay: Callable[[Task], float] | None = None) -> None:
        self.delay = delay or (lambda task: 0.0)
        self.opened: list[CountingEnv] = []
        self.sent: list[str] = []
        self._tasks = [counting_task(i) for i in range(num_tasks)]

    def tasks(self, split: str) -> Sequence[Task]:
        if split != "train":
            raise ConfigError(f"unknown split {split!r}")
        return self._tasks

    def open(self, task: Task, *, seed: int) -> CountingEnv:
        env = CountingEnv(self, task, seed)
        self.opened.append(env)
        return env


class CountingEnv:
    def __init__(self, suite: CountingSuite, task: Task, seed: int) -> None:
        self.suite, self.task, self.seed = suite, task, seed
        self.value = derive_random(seed, "start").randrange(2)
        self.num_closed = 0

    async def start(self) -> Observation:
        await asyncio.sleep(self.suite.delay(self.task))
        text = f"{self.task.instruction} The counter shows {self.value}."
        return Observation(text=text, actions=ACTIONS)

    async def step(self, action: str) -> Step:
        await asyncio.sleep(self.suite.delay(self.task))
        self.suite.sent.append(action)
        if action == "Add 1":
            self.value += 1
        elif action == "Take 1" and self.value > 0:
            self.value -= 1
        elif action.startswith("say "):
            right = action == f"say {target(self.task)}" and self.value == target(self.task)
            return Step(
                observation=Observation(text="It is over."),
                reward=1.0 if right else 0.0,
                terminated=True,
                success=right,
            )
        else:
            return Step(
                observation=Observation(text="Nothing happens.", actions=ACTIONS),
                flags=("no_effect",),
            )
        text = f"The counter shows {self.value}."
        return Step(observation=Observation(text=text, actions=ACTIONS))

    async def close(self) -> None:
        self.num_closed += 1


class Speaker:
    """A policy whose reply is a function of (turn, observation text, seed)."""

    def __init__(
        self, say: Callable[[int, str, int], str | Completion], name: str = "speaker"
    ) -> None:
        self.say, self.name = say, name
        self.num_closed = 0

    def start(self, task: Task, *, seed: int) -> Speaking:
        return Speaking(self, seed)


class Speaking:
    def __init__(self, policy: Speaker, seed: int) -> None:
        self.policy, self.seed, self.turn = policy, seed, 0
        self.heard: list[str] = []

    async def act(self, observation: Observation) -> Completion:
        self.heard.append(observation.text)
        said = self.policy.say(self.turn, "\n".join(self.heard), self.seed)
        self.turn += 1
        return said if isinstance(said, Completion) else Completion(text=said)

    async def close(self) -> None:
        self.policy.num_closed += 1


def counting_task(index: int) -> Task:
    goal = 2 + index % 3
    return Task(
        id=f"count-{index}",
        suite="counting",
        instruction=f"Count to {goal} and say it.",
        kind=f"to_{goal}",
    )


def target(task: Task) -> int:
    found = re.search(r"\d+", task.instruction)
    assert found is not None
    return int(found[0])


def expert(turn: int, heard: str, seed: int) -> str:
    """Count up and say it: solves every task."""
    goal = int(re.findall(r"Count to (\d+)", heard)[0])
    value = int(re.findall(r"shows (\d+)", heard)[-1])
    action = f"say {goal}" if value == goal else "Add 1" if value < goal else "Take 1"
    return f"<think>{value} of {goal}</think><action>{action}</action>"


def gambler(turn: int, heard: str, seed: int) -> str:
    """Act like the expert, or at random, or badly: decided by the seed."""
    rng = derive_random(seed, turn)
    return rng.choice(
        [
            expert(turn, heard, seed),
            expert(turn, heard, seed),
            "<action>Add 1</action>",
            "<action>jump</action>",
            "I would rather wait.",
            "> think: let me see",
        ]
    )


def always(text: str) -> Callable[[int, str, int], str]:
    return lambda turn, heard, seed: text
