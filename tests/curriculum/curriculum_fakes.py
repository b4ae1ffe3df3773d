"""Made-up tasks and groups, and a household-like suite's checks for the curriculum tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from dreamgym.llm.base import Message
from dreamgym.types import Completion, Rollout, RolloutGroup, Scenario, StopReason, Task

THINGS = {"mug", "bowl", "pen", "apple", "soapbar"}
PLACES = {"shelf", "desk", "fridge", "garbagecan"}


def seed_task(
    number: int = 0, instruction: str = "put a mug in shelf.", *, split: str = "train"
) -> Task:
    first = f"You are in room {number}. You see a shelf 1, a desk 1. Your task is to: {instruction}"
    scenario = Scenario(
        first_observation=first,
        facts={"shelf 1": "open: nothing", "desk 1": f"open: mug {number + 1}"},
        success_criterion=instruction,
    )
    return Task(id=f"seed-{number}", suite="household", instruction=instruction, split=split,
                room="room", scenario=scenario)  # fmt: skip


def generated_task(number: int) -> Task:
    return Task(id=f"gen-{number}", suite="household", instruction=f"task {number}",
                parent_id="seed-0", generated=True)  # fmt: skip


def group(task: Task, rewards: Sequence[float | None], *, faults: int = 0) -> RolloutGroup:
    """Return a group with these rewards, plus `faults` members that failed through our fault."""
    stops = [StopReason.TERMINATED] * len(rewards) + [StopReason.FAULT] * faults
    completion = Completion(text="look", token_ids=(1, 2, 3))
    return RolloutGroup(
        task=task,
        rollouts=tuple(
            Rollout(
                id=f"{task.id}/{i}", task=task, attempt=i, transitions=(), stop=stop,
                completions=(completion,), reward=reward, success=reward == 1.0,
            )
            for i, (reward, stop) in enumerate(
                zip([*rewards, *[0.0] * faults], stops, strict=True)
            )
        ),
    )  # fmt: skip


def validate(seed: Task, instruction: str) -> str | None:
    """Accept `put|place|... <thing> ... <place>` about known things and places."""
    words = set(re.findall(r"[a-z]+", instruction.lower()))
    words |= {word.removesuffix("s") for word in words}
    if not words & THINGS:
        return "it names no known thing"
    if not words & PLACES:
        return "it names no known place"
    return None


def template_key(instruction: str) -> str:
    """Return `[two] thing place` of an instruction."""
    words = re.findall(r"[a-z]+", instruction.lower())
    bare = [word if word in THINGS | PLACES | {"two"} else word.removesuffix("s") for word in words]
    return " ".join(sorted(word for word in bare if word in THINGS | PLACES | {"two"}))


def proposing(
    proposals: Callable[[str], Sequence[str]], pick: int = 1
) -> Callable[[Sequence[Message]], str]:
    """Return an answer function: proposals follow from the seed's instruction in the prompt."""

    def answer(messages: Sequence[Message]) -> str:
        text = messages[-1].content
        if text.startswith("mode: pick"):
            return str(pick)
        match = re.search(r"^task: (.*)$", text, re.MULTILINE)
        assert match is not None
        return "\n".join(f"{i}: {t}" for i, t in enumerate(proposals(match.group(1)), start=1))

    return answer
