"""Behaviour cloning: demonstrations -> token sequences -> a warm start for RL.

RL needs a policy that sometimes succeeds; cloning a few demonstrations gives one.  The sequences
are the ones the policy would have met itself: the same prompt, the same append-only context, and
only the agent's own turns are learned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from random import Random

from msgspec.structs import replace

from dreamgym.agent.prompt import AgentPrompt
from dreamgym.llm.base import Message
from dreamgym.llm.render import Renderer
from dreamgym.rl.sft import SftExample
from dreamgym.types import Observation, Rollout

ENTITY = re.compile(r"\b([a-z]+) (\d+)\b")
WORD = re.compile(r"\b[a-z]+\b")


def demonstration(rollout: Rollout, prompt: AgentPrompt, renderer: Renderer) -> SftExample:
    """Return one episode as a training sequence; mask 1 on the agent's turns and their ends.

    Where a demonstrator gives its thoughts, its turns without one are slips: shown, not learned.
    """
    first = rollout.transitions[0].observation
    messages = prompt.first(rollout.task, first)
    ids = list(renderer.first(messages))
    is_thoughtful = any(t.thought for t in rollout.transitions)
    mask = [0] * len(ids)
    for index, transition in enumerate(rollout.transitions):
        text = action_text(transition.action, transition.thought)
        turn = renderer.completion(text)
        ids += turn
        learned = int(bool(transition.thought) or not is_thoughtful)
        mask += [learned] * len(turn)
        messages.append(Message("assistant", text))
        if index + 1 < len(rollout.transitions):
            new = prompt.later(transition.next_observation)
            context = renderer.extend(messages, new, last_id=turn[-1])
            messages += new
            ids += context
            mask += [0] * len(context)
    return SftExample(token_ids=tuple(ids), mask=tuple(mask))


def augmented(rollout: Rollout, rng: Random, *, renumber: float, rename: float) -> Rollout:
    """Return the episode in another world of the same shape.

    Numbers of entities are permuted per name with probability `renumber`; names of things
    (entities that are not among the places of the first observation, and that no lamp-like `use`
    acts on) are exchanged for other things' names with probability `rename`.  A small model then
    has to read what the task asks for and where it was seen, instead of remembering rooms.
    """
    texts = [t.observation.text for t in rollout.transitions]
    texts += [t.next_observation.text for t in rollout.transitions]
    table: dict[tuple[str, str], str] = {}
    numbers: dict[str, set[str]] = {}
    for text in texts:
        for word, number in ENTITY.findall(text):
            numbers.setdefault(word, set()).add(number)
    names = _renamed(rollout, numbers, rng) if rng.random() < rename else {}
    if rng.random() < renumber:
        for word, found in sorted(numbers.items()):
            pool = [str(n) for n in range(1, max(3, *map(int, found)) + 1)]
            rng.shuffle(pool)
            table |= {(word, n): pool[int(n) - 1] for n in found if int(n) >= 1}

    def entity(match: re.Match[str]) -> str:
        word, number = match.groups()
        return f"{names.get(word, word)} {table.get((word, number), number)}"

    # Bare words (the task sentence) and entities are renamed in one pass each, never twice.
    def once(text: str) -> str:
        parts = re.split(rf"({ENTITY.pattern.replace('(', '(?:')})", text)
        return "".join(
            ENTITY.sub(entity, p)
            if ENTITY.fullmatch(p)
            else WORD.sub(lambda m: names.get(m[0], m[0]), p)
            for p in parts
        )

    def shown(observation: Observation) -> Observation:
        return Observation(text=once(observation.text))

    transitions = tuple(
        replace(
            t,
            observation=shown(t.observation),
            next_observation=shown(t.next_observation),
            action=once(t.action),
            thought=once(t.thought),
            instruction=once(t.instruction),
        )
        for t in rollout.transitions
    )
    task = replace(rollout.task, instruction=once(rollout.task.instruction))
    return replace(rollout, task=task, transitions=transitions)


def action_text(action: str, thought: str = "") -> str:
    """Return an agent's turn in the reply format.

    >>> action_text("look")
    '<action>look</action>'
    """
    think = f"<think>{thought}</think>" if thought else ""
    return f"{think}<action>{action}</action>"


def _renamed(rollout: Rollout, numbers: Mapping[str, object], rng: Random) -> dict[str, str]:
    """Return new names for the things of an episode, a permutation of what occurs in it."""
    first = rollout.transitions[0].observation.text
    places = {word for word, _ in ENTITY.findall(first)}
    used = {
        word
        for t in rollout.transitions
        if t.action.startswith("use ")
        for word, _ in ENTITY.findall(t.action)
    }
    things = sorted(set(numbers) - places - used)
    shuffled = list(things)
    rng.shuffle(shuffled)
    return dict(zip(things, shuffled, strict=True))


def demonstrations(
    rollouts: Iterable[Rollout], prompt: AgentPrompt, renderer: Renderer
) -> list[SftExample]:
    """Return successful episodes as training sequences; failures are not worth imitating."""
    return [demonstration(r, prompt, renderer) for r in rollouts if r.success and r.transitions]
