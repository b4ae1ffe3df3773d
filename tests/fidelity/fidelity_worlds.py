"""Real household episodes, and chat models that play the game in their head from their prompt."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable, Sequence

from dreamgym.dream.experience import ExperienceConfig
from dreamgym.dream.prompt import PromptConfig
from dreamgym.envs.household.game import HouseholdGame
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.envs.household.suite import HouseholdSuite
from dreamgym.fidelity.panel import Panel, make_panel, make_policies
from dreamgym.fidelity.subject import Subject
from dreamgym.llm.base import Message
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import run_groups
from dreamgym.types import Origin, Rollout, Task

MAX_STEPS = 12
READER = HouseholdReader()
ASK = ExperienceConfig(
    prompt=PromptConfig(history=100, neighbours=0, scenario="whole"), max_tokens=500, retries=1
)
Say = Callable[[str, str, float, bool], str]
"""(action, real text, real reward, real end) -> reply."""


@functools.cache
def suite() -> HouseholdSuite:
    return HouseholdSuite(size="tiny", num_tasks=6, max_steps=40)


@functools.cache
def tasks() -> tuple[Task, ...]:
    """Return tasks whose sentences differ, so that a prompt names its game."""
    found: dict[str, Task] = {}
    for task in suite().tasks("valid_unseen"):
        found.setdefault(task.instruction, task)
    return tuple(found.values())


def honest(action: str, text: str, reward: float, done: bool) -> str:
    return json.dumps({"next_state": READER.natural(text), "reward": reward, "done": done})


def kind(action: str, text: str, reward: float, done: bool) -> str:
    """Play along with whatever the agent wants to take or put down."""
    words = re.fullmatch(r"move (\w+ \d+) to (\w+ \d+)", action)
    if words and READER.is_no_effect(text):
        text = f"You move the {words[1]} to the {words[2]}."
        return json.dumps({"next_state": text, "reward": 1, "done": True})
    return honest(action, text, reward, done)


def player(say: Say = honest, name: str = "oracle") -> ScriptedChat:
    """Return a chat model that replays the past of its prompt in the real game."""
    worlds = {task.instruction: suite().world(task) for task in tasks()}

    def answer(messages: Sequence[Message]) -> str:
        asked = next(m.content for m in messages if m.role == "user")
        sentence = re.search(r"^task: (.*)$", asked, re.MULTILINE)
        assert sentence is not None
        past = re.findall(r"^> (.*)$", asked, re.MULTILINE)
        action = asked.rpartition("action: ")[2].splitlines()[0]
        game = HouseholdGame(worlds[sentence[1]])
        for earlier in past:
            game.step(earlier)
        text, reward, done, _ = game.step(action)
        return say(action, text, reward, done)

    return ScriptedChat(answer, name=name)


def subject(say: Say = honest, *, ask: ExperienceConfig = ASK) -> Subject:
    chat = player(say)
    return Subject(
        name=chat.name,
        suite=suite(),
        chat=chat,
        direct=chat,
        ask=ask,
        reader=READER,
        buffer=None,
        agents={},
        max_steps=MAX_STEPS,
    )


def play(names: Sequence[str], *, max_steps: int = MAX_STEPS) -> list[Rollout]:
    found = []
    for policy in make_policies(suite(), names):
        groups = asyncio.run(
            run_groups(
                suite(),
                policy,
                tasks(),
                group_size=1,
                seed=3,
                limits=EpisodeLimits(max_steps=max_steps),
                origin=Origin.REAL,
            )
        )
        found += [_renamed(r, policy.name) for group in groups for r in group.rollouts]
    return found


def _renamed(rollout: Rollout, policy: str) -> Rollout:
    from msgspec.structs import replace

    return replace(rollout, id=f"{policy}/{rollout.id}")


POLICIES = ("expert", "noisy:p=0.3", "noisy:p=0.7", "random")


@functools.cache
def panel() -> Panel:
    rollouts = play(POLICIES) + play(["survey"], max_steps=60)
    return make_panel(rollouts, READER, surveyors=("survey",))
