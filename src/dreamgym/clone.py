"""Behaviour cloning: demonstrations -> token sequences -> a warm start for RL.

RL needs a policy that sometimes succeeds; cloning a few demonstrations gives one.  The sequences
are the ones the policy would have met itself: the same prompt, the same append-only context, and
only the agent's own turns are learned.
"""

from __future__ import annotations

from collections.abc import Iterable

from dreamgym.agent.prompt import AgentPrompt
from dreamgym.llm.base import Message
from dreamgym.llm.render import Renderer
from dreamgym.rl.sft import SftExample
from dreamgym.types import Rollout


def demonstration(rollout: Rollout, prompt: AgentPrompt, renderer: Renderer) -> SftExample:
    """Return one episode as a training sequence; mask 1 on the agent's turns and their ends."""
    first = rollout.transitions[0].observation
    messages = prompt.first(rollout.task, first)
    ids = list(renderer.first(messages))
    mask = [0] * len(ids)
    for index, transition in enumerate(rollout.transitions):
        text = action_text(transition.action, transition.thought)
        turn = renderer.completion(text)
        ids += turn
        mask += [1] * len(turn)
        messages.append(Message("assistant", text))
        if index + 1 < len(rollout.transitions):
            new = prompt.later(transition.next_observation)
            context = renderer.extend(messages, new, last_id=turn[-1])
            messages += new
            ids += context
            mask += [0] * len(context)
    return SftExample(token_ids=tuple(ids), mask=tuple(mask))


def action_text(action: str, thought: str = "") -> str:
    """Return an agent's turn in the reply format.

    >>> action_text("look")
    '<action>look</action>'
    """
    think = f"<think>{thought}</think>" if thought else ""
    return f"{think}<action>{action}</action>"


def demonstrations(
    rollouts: Iterable[Rollout], prompt: AgentPrompt, renderer: Renderer
) -> list[SftExample]:
    """Return successful episodes as training sequences; failures are not worth imitating."""
    return [demonstration(r, prompt, renderer) for r in rollouts if r.success and r.transitions]
