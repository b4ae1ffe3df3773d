"""From chat messages to token ids, append-only.

What the model sampled is never decoded and encoded again (the ids would change): the next turn
appends only what the chat template puts after it.  Templates that rewrite earlier turns (for
example by removing their thinking) do not allow that; `is_append_only` says so and callers then
start over with a full prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from dreamgym.errors import ConfigError
from dreamgym.llm.base import Message

_PROBE = "QXJKZVPROBE"
"""Stands in for an assistant turn; no template and no message contains it."""
_MAX_ENCODED = 1 << 14
_SHORT = (Message("user", "task"),)


class Renderer:
    """Renders chats with a tokenizer's own chat template."""

    # Any: tokenizers have no common typed base across their fast, slow and mistral variants.
    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                "the tokenizer has no chat template; use an instruction-tuned model or set "
                "tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        self._encoded: dict[str, tuple[int, ...]] = {}
        """Texts repeat: the same turns and observations occur in all members of a group."""

    def first(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a complete prompt, generation prompt included."""
        return self._encode(self._text(messages))

    def extend(
        self,
        messages_so_far: Sequence[Message],
        new_messages: Sequence[Message],
        *,
        last_id: int | None,
    ) -> list[int]:
        """Return the ids that follow the sampled ids of the last assistant message.

        Args:
            messages_so_far: the chat up to and including the assistant's last turn.
            new_messages: what was said since; at least one message.
            last_id: the last id the model sampled.  When it is the template's end of turn only
                the rest is added; otherwise (cut off, or another stop id) the end of turn is too.
        """
        if not messages_so_far or messages_so_far[-1].role != "assistant":
            raise ConfigError("messages_so_far must end with the assistant's turn")
        if not new_messages:
            raise ConfigError("new_messages is empty; there is nothing to answer")
        is_plain = all(message.role == "user" for message in new_messages)
        before = _SHORT if is_plain and self._is_local else messages_so_far[:-1]
        tail = self._tail(before, new_messages)
        if tail is None:
            raise ConfigError("the chat template leaves out earlier assistant turns; start over")
        if last_id is not None and last_id == self.end_of_turn_id:
            tail = tail.removeprefix(self._end_of_turn)
        return self._encode(tail)

    def completion(self, text: str) -> list[int]:
        """Return the ids of an assistant turn to be learned: the text and its end of turn."""
        end = self.end_of_turn_id
        if end is None:
            end = self.tokenizer.eos_token_id
        return [*self._encode(text), *([] if end is None else [end])]

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end a turn: end of sequence and the template's end of turn."""
        ids = {self.tokenizer.eos_token_id, self.end_of_turn_id}
        return frozenset(index for index in ids if index is not None)

    @cached_property
    def end_of_turn_id(self) -> int | None:
        """The special token the template writes after an assistant turn, if it is one."""
        _, _, tail = self._text(
            [Message("user", "a"), Message("assistant", _PROBE)], should_prompt=False
        ).partition(_PROBE)
        ids = self._encode(tail)
        special = self._special_ids()
        return ids[0] if ids and ids[0] in special else None

    @cached_property
    def _end_of_turn(self) -> str:
        token = self.tokenizer.convert_ids_to_tokens(self.end_of_turn_id)
        return token if isinstance(token, str) else ""

    def _special_ids(self) -> set[int]:
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        marked = {index for index, token in added.items() if token.special}
        return marked | set(self.tokenizer.all_special_ids)

    @cached_property
    def is_append_only(self) -> bool:
        """Whether a later prompt always begins with the earlier one and the raw reply.

        Checked once with turns that think; False for templates that drop earlier thinking.
        """
        reply = "<think>why</think>\n<action>look</action>"
        chat = [Message("user", "task")]
        try:
            for turn in range(3):
                prompt = self._text(chat)
                chat += [Message("assistant", reply), Message("user", f"seen {turn}")]
                if not self._text(chat).startswith(prompt + reply):
                    return False
        except ConfigError:
            return False
        return True

    def _tail(self, before: Sequence[Message], new: Sequence[Message]) -> str | None:
        """Return the text after an assistant turn, None where the template drops that turn."""
        chat = [*before, Message("assistant", _PROBE), *new]
        _, found, tail = self._text(chat).partition(_PROBE)
        return tail if found else None

    @cached_property
    def _is_local(self) -> bool:
        """Whether what follows a turn depends on no earlier message, as in nearly all templates.

        Then it is rendered from a short chat: rendering all turns each time is quadratic work.
        """
        if not self.is_append_only:
            return False
        longer = [
            Message("system", "rules"),
            *_SHORT,
            Message("assistant", "<think>why</think>\n<action>look</action>"),
            Message("user", "seen"),
        ]
        new = [Message("user", "seen more")]
        return self._tail(_SHORT, new) == self._tail(longer, new) is not None

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of sampled ids without the tokens that end a turn."""
        end = len(ids)
        while end and ids[end - 1] in self.stop_ids:
            end -= 1
        text: str = self.tokenizer.decode(list(ids[:end]), skip_special_tokens=True)
        return text

    def _encode(self, text: str) -> list[int]:
        known = self._encoded.get(text)
        if known is None:
            if len(self._encoded) >= _MAX_ENCODED:
                self._encoded.clear()
            ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            known = self._encoded[text] = tuple(ids)
        return list(known)

    def _text(self, messages: Sequence[Message], *, should_prompt: bool = True) -> str:
        try:
            return self._apply(messages, should_prompt)
        except Exception as error:
            merged = _without_system(messages)
            if len(merged) == len(messages):
                raise ConfigError(f"the chat template refused the messages: {error}") from error
        try:
            # Some templates know no system role: its text then opens the first user message.
            return self._apply(merged, should_prompt)
        except Exception as error:
            raise ConfigError(f"the chat template refused the messages: {error}") from error

    def _apply(self, messages: Sequence[Message], should_prompt: bool) -> str:
        text: str = self.tokenizer.apply_chat_template(
            [{"role": message.role, "content": message.content} for message in messages],
            tokenize=False,
            add_generation_prompt=should_prompt,
        )
        return text


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Return the chat with a leading system message moved into the first user message."""
    if len(messages) < 2 or messages[0].role != "system" or messages[1].role != "user":
        return list(messages)
    opening = Message("user", f"{messages[0].content}\n\n{messages[1].content}")
    return [opening, *messages[2:]]
