"""The agent's messages: a system prompt, the first observation with the task, then observations.

The conversation only ever grows, so that a token context can be appended to.  History needs no
prompt of its own: it is the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from dreamgym.errors import ConfigError
from dreamgym.llm.base import Message
from dreamgym.types import Observation, Task

SYSTEM = (
    "You are an agent that completes a task in an environment by acting step by step. "
    "Each turn you read an observation, reason briefly, and give exactly one action. "
    "Reply in this form and write nothing after it:\n"
    "<think>your reasoning</think><action>your action</action>"
)

ACTIONS_TITLE = "Possible actions:"
_MIN_CHARS = 200


class AgentPrompt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent is addressed."""

    style: Literal["chat", "compact"] = "chat"
    """`compact` leaves out the system prompt, for small models trained from scratch."""
    show_actions: bool = False
    """List the admissible actions below an observation where the suite knows them."""
    max_observation_chars: int = 8000
    """Longest user message; longer ones are cut in the middle, with a marker."""
    system: str = SYSTEM
    """System prompt of the `chat` style."""

    def __post_init__(self) -> None:
        """Refuse a limit under which nothing useful would remain."""
        if self.max_observation_chars < _MIN_CHARS:
            raise ConfigError(
                f"max_observation_chars must be at least {_MIN_CHARS}; "
                f"got {self.max_observation_chars}"
            )

    def first(self, task: Task, observation: Observation) -> list[Message]:
        """Return the opening messages; the task's instruction is in them even after a cut."""
        text = self._user_text(observation)
        if self.style == "chat" and task.instruction not in text:
            text = f"Your task is to: {task.instruction}\n{text}"
        system = [Message("system", self.system)] if self.style == "chat" else []
        return [*system, Message("user", text)]

    def later(self, observation: Observation) -> list[Message]:
        """Return the messages for an observation after an action."""
        return [Message("user", self._user_text(observation))]

    def _user_text(self, observation: Observation) -> str:
        limit = self.max_observation_chars
        actions = self._actions_text(observation.actions or (), limit // 2)
        return cut_middle(observation.text, limit - len(actions)) + actions

    def _actions_text(self, actions: Sequence[str], limit: int) -> str:
        """Return the list of actions, whole where it fits, else with a count of those left out."""
        if not self.show_actions or not actions:
            return ""
        shown = list(actions)
        while True:
            missing = len(actions) - len(shown)
            more = f" (and {missing} more)" if missing else ""
            text = f"\n{ACTIONS_TITLE} {', '.join(shown)}{more}"
            if len(text) <= limit or len(shown) <= 1:
                return text
            shown = shown[: max(1, len(shown) * 4 // 5)]


def cut_middle(text: str, limit: int) -> str:
    """Cut the middle of a long text: tasks stand first, errors and action lists last.

    Keeps 40 % of the room for the beginning and 60 % for the end, and says how much is missing.
    """
    if len(text) <= limit:
        return text
    room = max(limit - len(_marker(len(text))), 2)
    head, tail = text[: room * 2 // 5], text[len(text) - (room - room * 2 // 5) :]
    head, tail = _to_last_line(head), _to_first_line(tail)
    return head + _marker(len(text) - len(head) - len(tail)) + tail


def _marker(missing: int) -> str:
    return f"\n[... {missing} characters cut ...]\n"


def _to_last_line(head: str) -> str:
    """End at a line break if one is near, so that no line is shown in half."""
    place = head.rfind("\n")
    return head[:place] if place >= len(head) * 4 // 5 else head


def _to_first_line(tail: str) -> str:
    place = tail.find("\n")
    return tail[place + 1 :] if 0 <= place <= len(tail) // 5 else tail
