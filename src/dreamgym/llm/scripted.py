"""Deterministic stand-ins for models: they answer from what they are asked.

For demos, dry runs and tests.  A fixed list of answers would hide a wrong prompt; a function of
the prompt does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from dreamgym.llm.base import Finish, GenerateRequest, Generation, Message, Reply


class ScriptedChat:
    """A chat model whose answer is a function of the messages.

    The function may raise `ModelError` to play an outage.  Answers longer than `max_tokens`
    words are cut and reported as such; a "token" here is a word.
    """

    def __init__(
        self, answer: Callable[[Sequence[Message]], str], *, name: str = "scripted"
    ) -> None:
        self.name = name
        self.num_calls = 0
        self.released: Counter[str] = Counter()
        self._answer = answer

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        """Answer the chat; seed, temperature and session have no effect."""
        self.num_calls += 1
        text = self._answer(messages)
        words = text.split()
        finish: Finish = "stop"
        if len(words) > max_tokens:
            text, finish = " ".join(words[:max_tokens]), "length"
        return Reply(
            text=text,
            finish=finish,
            prompt_tokens=sum(len(message.content.split()) for message in messages),
            completion_tokens=min(len(words), max_tokens),
        )

    def release(self, session: str) -> None:
        """Count the release."""
        self.released[session] += 1


class ScriptedEngine:
    """A token engine whose continuation is a function of the context ids.

    `answer` returns the ids to generate, stop id included if there is one.  All
    log-probabilities are 0: the continuation is certain.
    """

    def __init__(
        self, answer: Callable[[Sequence[int]], Sequence[int]], *, max_context: int = 2048
    ) -> None:
        self.version = 0
        self.max_context = max_context
        self.num_calls = 0
        self.released: Counter[str] = Counter()
        self._answer = answer

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue the context, cut at the window and at the first stop id."""
        self.num_calls += 1
        room = min(request.max_new_tokens, self.max_context - len(request.token_ids))
        ids: list[int] = []
        finish: Finish = "length"
        for token in list(self._answer(request.token_ids))[: max(room, 0)] if room > 0 else ():
            ids.append(token)
            if token in request.stop_ids:
                finish = "stop"
                break
        return Generation(
            token_ids=tuple(ids),
            logprobs=(0.0,) * len(ids),
            finish=finish,
            version=self.version,
        )

    def set_version(self, version: int) -> None:
        """Name the weights in use."""
        self.version = version

    def sync(self, version: int | None = None) -> None:
        """Pretend to take over new weights."""
        self.set_version(self.version + 1 if version is None else version)

    def release(self, session: str) -> None:
        """Count the release."""
        self.released[session] += 1
