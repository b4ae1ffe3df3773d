"""One small household task, a chat model that answers from its prompt, and real logs."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable, Sequence

import msgspec

from dreamgym.dream.env import DreamConfig, DreamSuite
from dreamgym.dream.experience import ExperienceConfig, ExperienceModel
from dreamgym.dream.prompt import PromptConfig
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.envs.household.suite import HouseholdSuite
from dreamgym.llm.base import Message
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.probe import ActionList
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import run_group, run_groups
from dreamgym.types import Observation, Origin, Rollout, RolloutGroup, Scenario, Task, Transition

READER = HouseholdReader()
TASK = Task(
    id="pens",
    suite="household",
    instruction="put a pen in shelf.",
    scenario=Scenario(
        first_observation=(
            "You are in the middle of a room. Looking quickly around you, you see a desk 1, "
            "a drawer 1, and a shelf 1. Your task is to: put a pen in shelf."
        ),
        facts={
            "desk 1": "surface: pen 1, pen 2",
            "drawer 1": "closed: cd 1",
            "shelf 1": "surface: nothing",
        },
        success_criterion="put a pen in shelf.",
    ),
)
WINNING = ("go to desk 1", "take pen 1 from desk 1", "go to shelf 1", "move pen 1 to shelf 1")
LIMITS = EpisodeLimits(max_steps=20)


def answer(text: str, *, reward: float = 0, done: bool = False, why: str = "") -> str:
    """Return a reply in the experience model's format."""
    body = json.dumps({"next_state": text, "reward": reward, "done": done})
    return (f"<think>{why}</think>" if why else "") + body


def question(messages: Sequence[Message]) -> str:
    """Return the message that holds the action."""
    return next(m.content for m in messages if m.role == "user")


def asked_action(messages: Sequence[Message]) -> str:
    return question(messages).rpartition("action: ")[2].strip()


def known_facts(messages: Sequence[Message]) -> dict[str, str]:
    block = question(messages).partition("known:\n")[2].rpartition("\naction: ")[0]
    return dict(line.split(": ", 1) for line in block.splitlines())


def from_known(messages: Sequence[Message]) -> str:
    """Answer from the known lines alone, as a perfect experience model would."""
    action, known = asked_action(messages), known_facts(messages)
    goal = re.search(r"put a (\w+) in (\w+)\.", question(messages))
    words = re.fullmatch(r"(go to|take|move) (\w+ \d+)(?: (?:from|to) (\w+ \d+))?", action)
    if words is None:
        return answer("Nothing happens.")
    verb, first, second = words[1], words[2], words[3] or words[2]
    state, _, listed = known.get(second, "not in this room").partition(": ")
    presence, _, state = state.partition(", ")
    here = presence == "here"
    if verb == "go to" and state in ("surface", "open", "closed") and not here:
        seen = f"The {first} is closed." if state == "closed" else f"On the {first}, you see"
        text = seen if state == "closed" else f"{seen} {listed}."
        return answer(f"You arrive at {first}. {text}", why="going is possible")
    if verb == "take" and here and known["holding"] == "nothing" and f"a {first}" in listed:
        return answer(f"You pick up the {first} from the {second}.")
    if verb == "move" and here and known["holding"] == first:
        won = goal is not None and [w.split()[0] for w in (first, second)] == list(goal.groups())
        return answer(f"You move the {first} to the {second}.", reward=int(won), done=won)
    return answer("Nothing happens.")


class Listening(ScriptedChat):
    """A scripted chat that keeps what it was asked."""

    def __init__(self, say: Callable[[Sequence[Message]], str]) -> None:
        self.asked: list[list[Message]] = []

        def heard(messages: Sequence[Message]) -> str:
            self.asked.append(list(messages))
            return say(messages)

        super().__init__(heard)


class ListBuffer:
    """Stands in for the replay buffer: rows of a suite, in order, without the excluded task."""

    def __init__(self, rows: Sequence[Transition]) -> None:
        self.rows = list(rows)

    def query(
        self, state: str, action: str, *, k: int, suite: str, exclude_task: str | None = None
    ) -> list[Found]:
        fit = [t for t in self.rows if t.suite == suite and t.task_id != exclude_task]
        return [Found(t) for t in fit[:k]]


class Found(msgspec.Struct, frozen=True):
    transition: Transition


def dream(
    say: Callable[[Sequence[Message]], str] | ScriptedChat = from_known,
    *,
    task: Task = TASK,
    prompt: PromptConfig | None = None,
    buffer: ListBuffer | None = None,
    retries: int = 2,
    max_steps: int = 20,
    verify: bool = True,
) -> DreamSuite:
    chat = say if isinstance(say, ScriptedChat) else ScriptedChat(say)
    config = ExperienceConfig(prompt=prompt or PromptConfig(), retries=retries, max_tokens=500)
    return DreamSuite(
        [task],
        model=ExperienceModel(chat, config),
        reader=READER,
        buffer=buffer,  # type: ignore[arg-type]  # anything with the same `query` will do
        config=DreamConfig(max_steps=max_steps, verify=verify),
    )


def play_group(
    suite: DreamSuite, actions: Sequence[str], *, size: int = 1, task: Task = TASK
) -> RolloutGroup:
    return asyncio.run(
        run_group(
            suite,
            ActionList(actions),
            task,
            group_size=size,
            seed=1,
            limits=EpisodeLimits(max_steps=len(actions)),
            origin=Origin.DREAM,
        )
    )


def play(suite: DreamSuite, actions: Sequence[str], *, task: Task = TASK) -> Rollout:
    return play_group(suite, actions, task=task).rollouts[0]


def make_transition(
    *, suite: str = "household", task: str = "other", action: str = "look", text: str = "Seen."
) -> Transition:
    return Transition(
        task_id=task,
        suite=suite,
        episode_id=f"e/{task}",
        step=0,
        instruction="put a pen in shelf.",
        observation=Observation(text="before"),
        action=action,
        next_observation=Observation(text=text),
        reward=0.0,
        terminated=False,
        truncated=False,
        success=False,
        origin=Origin.REAL,
    )


@functools.cache
def real_suite() -> HouseholdSuite:
    return HouseholdSuite(size="small", num_tasks=6, max_steps=40)


@functools.cache
def logs() -> tuple[Rollout, ...]:
    """Return two logged episodes (noisy expert and survey) of each of six real games."""
    suite = real_suite()
    found: list[Rollout] = []
    for name in ("noisy", "survey"):
        groups = asyncio.run(
            run_groups(
                suite,
                suite.policy(name),
                suite.tasks("train"),
                group_size=1,
                seed=5,
                limits=EpisodeLimits(max_steps=40),
                origin=Origin.REAL,
            )
        )
        found += [
            msgspec.structs.replace(r, id=f"{name}/{r.id}") for g in groups for r in g.rollouts
        ]
    return tuple(found)
