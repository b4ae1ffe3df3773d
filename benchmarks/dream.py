"""Environment steps per second of a dream, many episodes at once, against the naive way.

    python -m benchmarks.dream --json [--model DIR] [--threads 1]

Dreams of the household suite with prompts as in training: ledger, history, retrieved transitions.
The model really reads every prompt and writes a fixed number of tokens; what the episode goes on
with is the logged answer, so that the work is the same whatever the weights say (random ones by
default).  The naive way asks the same questions one at a time and forgets its cache in between.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import platform
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from dreamgym.dream.annotate import scenario_tasks
from dreamgym.dream.env import DreamConfig, DreamSuite
from dreamgym.dream.experience import ExperienceConfig, ExperienceModel
from dreamgym.dream.prompt import PromptConfig, step_target
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.envs.household.suite import HouseholdSuite
from dreamgym.errors import FaultError
from dreamgym.llm.base import GenerateRequest, Generation, Message, Reply
from dreamgym.llm.engine import KVEngine
from dreamgym.llm.local import LocalChat
from dreamgym.llm.tiny import build_model, build_tokenizer, entity_names
from dreamgym.pipeline.models import MACROS
from dreamgym.replay.buffer import Neighbour, ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.rollout.episode import EpisodeLimits
from dreamgym.rollout.group import run_groups
from dreamgym.types import Origin, Rollout, Task, Transition

NEW_TOKENS = 40
"""Tokens written per step: about what a fitted model writes, reasoning included."""
STEPS = 6
"""Steps per episode."""
CONCURRENT = (1, 8, 64, 256)
NAIVE_EPISODES = 8
RATIO_LIMIT, LLM_SHARE_LIMIT = 3.0, 0.95
PROMPT = PromptConfig(style="compact", scenario="relevant", past="actions", neighbours=1, history=1)


class TimedEngine(KVEngine):
    """An engine that knows how long it computed."""

    seconds = 0.0

    def run_batch(self, requests: Sequence[GenerateRequest]) -> list[Generation | FaultError]:
        started = time.perf_counter()
        try:
            return super().run_batch(requests)
        finally:
            self.seconds += time.perf_counter() - started


class TimedBuffer(ReplayBuffer):
    """A replay buffer that knows how long it searched."""

    seconds = 0.0
    num_queries = 0

    def query(self, *args: Any, **options: Any) -> list[Neighbour]:
        started = time.perf_counter()
        try:
            return super().query(*args, **options)
        finally:
            self.seconds += time.perf_counter() - started
            self.num_queries += 1


class Dubbed:
    """The model's work with the log's words: reads and writes for real, says what is right."""

    def __init__(self, inner: LocalChat, answers: dict[tuple[str, str], str]) -> None:
        self.name = inner.name
        self.tokens = self.calls = 0
        self._inner = inner
        self._answers = answers

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        said = await self._inner.reply(
            messages, seed=seed, max_tokens=max_tokens, temperature=temperature, session=session
        )
        self.calls += 1
        self.tokens += said.prompt_tokens + said.completion_tokens
        text = self._answers[messages[0].content.split("\n")[0], _asked(messages)]
        return Reply(
            text=text,
            prompt_tokens=said.prompt_tokens,
            completion_tokens=said.completion_tokens,
            logprobs=said.logprobs,
        )

    def release(self, session: str) -> None:
        self._inner.release(session)


class Naive:
    """One question at a time, nothing kept between two."""

    def __init__(self, inner: Dubbed) -> None:
        self.name = inner.name
        self._inner = inner
        self._gate = asyncio.Semaphore(1)

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 0.0,
        session: str | None = None,
    ) -> Reply:
        async with self._gate:
            return await self._inner.reply(
                messages, seed=seed, max_tokens=max_tokens, temperature=temperature
            )

    def release(self, session: str) -> None:
        """There is no session."""


class Lap(NamedTuple):
    """One measurement."""

    steps: int
    seconds: float
    llm_seconds: float
    tokens: int
    retrieval_seconds: float
    queries: int


def _asked(messages: Sequence[Message]) -> str:
    return messages[-1].content.rpartition("action: ")[2]


@functools.cache
def episodes() -> tuple[Rollout, ...]:
    """Return logged episodes, one per game; a game's actions are all different."""
    suite = HouseholdSuite(size="tiny", num_tasks=120, max_steps=40)
    groups = asyncio.run(
        run_groups(
            suite,
            suite.policy("survey"),
            suite.tasks("train"),
            group_size=1,
            seed=0,
            limits=EpisodeLimits(max_steps=40),
            origin=Origin.REAL,
        )
    )
    sentences: dict[str, Rollout] = {}
    for group in groups:
        rollout = group.rollouts[0]
        if len(_distinct(rollout)) >= STEPS:
            sentences.setdefault(rollout.task.instruction, rollout)
    return tuple(sentences.values())


def _distinct(rollout: Rollout) -> list[Transition]:
    """Return the first steps of an episode as long as no action comes twice."""
    seen: set[str] = set()
    found = []
    for transition in rollout.transitions[:STEPS]:
        if transition.action in seen:
            break
        seen.add(transition.action)
        found.append(transition)
    return found


def answers() -> dict[tuple[str, str], str]:
    """Return (task line, action) -> the reply that says what the log says."""
    reader, table = HouseholdReader(), {}
    for rollout in episodes():
        for transition in _distinct(rollout):
            text = reader.natural(transition.next_observation.text)
            table[f"task: {rollout.task.instruction}", transition.action] = step_target(
                PROMPT, rationale="", next_text=text, reward=0.0, done=False
            )
    return table


def models(folder: str) -> tuple[Any, Any]:
    """Return (model, tokenizer): from a folder, or small with random weights."""
    if folder:
        from dreamgym.llm.models import load_model

        loaded = load_model(folder)
        return loaded.model, loaded.tokenizer
    texts = [t.next_observation.text for r in episodes() for t in r.transitions]
    texts += [r.transitions[0].observation.text for r in episodes()] + list(answers().values())
    tokenizer = build_tokenizer(texts, vocab_size=1024, words=entity_names(texts), macros=MACROS)
    return build_model(tokenizer, hidden=128, layers=3, heads=2, kv_heads=2, seed=0), tokenizer


class Bench:
    """The model, the buffer and the tasks that all measurements share."""

    def __init__(self, folder: str) -> None:
        model, tokenizer = models(folder)
        window = int(model.config.max_position_embeddings)
        self.engine = TimedEngine(
            model, max_context=min(1024, window), max_batch=256, max_sessions=512
        )
        self.chat = Dubbed(LocalChat(self.engine, tokenizer, "bench"), answers())
        self.tasks = scenario_tasks(episodes(), HouseholdReader())
        self.buffer = TimedBuffer(None, HashedNgramEncoder(), capacity=20_000)
        self.buffer.add(t for rollout in episodes() for t in rollout.transitions)

    def lap(self, concurrent: int, *, is_naive: bool) -> Lap:
        """Dream so many episodes at once and return what it took."""
        self.engine.set_version(self.engine.version + 1)  # drops all caches
        suite = DreamSuite(
            list(self.tasks.values()),
            model=ExperienceModel(
                Naive(self.chat) if is_naive else self.chat,
                ExperienceConfig(prompt=PROMPT, max_tokens=NEW_TOKENS, retries=0),
            ),
            reader=HouseholdReader(),
            buffer=self.buffer,
            config=DreamConfig(max_steps=STEPS),
        )
        before = (self.engine.seconds, self.chat.tokens, self.buffer.seconds)
        queries = self.buffer.num_queries
        started = time.perf_counter()
        steps = asyncio.run(self._dream(suite, concurrent))
        return Lap(
            steps=steps,
            seconds=time.perf_counter() - started,
            llm_seconds=self.engine.seconds - before[0],
            tokens=self.chat.tokens - before[1],
            retrieval_seconds=self.buffer.seconds - before[2],
            queries=self.buffer.num_queries - queries,
        )

    async def _dream(self, suite: DreamSuite, concurrent: int) -> int:
        async def one(number: int) -> int:
            rollout = episodes()[number % len(episodes())]
            task: Task = self.tasks[rollout.task.id]
            env = suite.open(task, seed=number)
            await env.start()
            for transition in _distinct(rollout):
                await env.step(transition.action)
            await env.close()
            return len(_distinct(rollout))

        return sum(await asyncio.gather(*(one(number) for number in range(concurrent))))


def row(lap: Lap) -> dict[str, float | int]:
    return {
        "steps": lap.steps,
        "steps_per_second": round(lap.steps / lap.seconds, 2),
        "llm_share": round(lap.llm_seconds / lap.seconds, 4),
        "tokens_per_step": round(lap.tokens / lap.steps, 1),
        "retrieval_ms": round(1000 * lap.retrieval_seconds / max(lap.queries, 1), 3),
        "overhead_ms_per_step": round(1000 * (lap.seconds - lap.llm_seconds) / lap.steps, 3),
    }


def run(folder: str) -> dict[str, Any]:
    """Return all figures."""
    bench = Bench(folder)
    bench.lap(2, is_naive=False)  # warm-up: allocations, first tables
    naive = row(bench.lap(NAIVE_EPISODES, is_naive=True))
    dreams = {str(count): row(bench.lap(count, is_naive=False)) for count in CONCURRENT}
    ratios = {
        count: round(found["steps_per_second"] / naive["steps_per_second"], 2)
        for count, found in dreams.items()
    }
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, torch {torch.__version__}",
        "model": folder or "random weights, 128 wide, 3 layers",
        "threads": torch.get_num_threads(),
        "new_tokens": NEW_TOKENS,
        "buffer_transitions": len(bench.buffer),
        "naive": naive,
        "dream": dreams,
        "ratio_to_naive": ratios,
        "limits": {
            "ratio_at_64": {"value": ratios["64"], "limit": RATIO_LIMIT},
            "llm_share_at_64": {"value": dreams["64"]["llm_share"], "limit": LLM_SHARE_LIMIT},
        },
    }


def show(report: dict[str, Any]) -> str:
    """Return the report as a table for people."""
    lines = [str(report["machine"]), f"model: {report['model']}, {report['threads']} thread(s)", ""]
    names = list(report["naive"])
    lines.append("".join(f"{name:>22}" for name in ("episodes", *names)))
    for name, found in [("naive", report["naive"]), *report["dream"].items()]:
        lines.append("".join(f"{value!s:>22}" for value in (name, *found.values())))
    lines += [
        f"{name}: {entry['value']} (limit {entry['limit']})"
        for name, entry in report["limits"].items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of a dream against the naive way.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--model", default="", help="model folder (default: small, random)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    report = run(arguments.model)
    print(json.dumps(report, indent=1) if arguments.json else show(report))


if __name__ == "__main__":
    main()
