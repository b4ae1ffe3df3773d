"""The whole method in one file to read: clone a little, run GRPO in a suite, evaluate for real.

    python recipes/reference_grpo.py --iterations 20

Nothing here comes from `dreamgym.rl` or `dreamgym.rollout`: advantages, masks, loss, episodes and
loop are written out, as plainly as possible.  A test holds the library equal to the three
functions of part 1, so this file is also the specification of the library's maths.

A dream is just another suite, so the only line that changes between reinforcement learning in
reality and in a dream is the one marked below.  What is left out: batching over episodes (the
library's engine does that), resuming, records, curriculum, probe.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dreamgym.envs.base import Suite
from dreamgym.envs.table import make_suite
from dreamgym.llm.tiny import build_model, build_tokenizer
from dreamgym.seeds import derive_random, derive_seed
from dreamgym.types import Task

# ---------------------------------------------------------------------------------------------
# 1. The maths
# ---------------------------------------------------------------------------------------------

EPS = 1e-6
CLIP = 0.2


def advantages(rewards: Sequence[float]) -> list[float]:
    """GRPO: (r - mean) / (std + eps) within the group, std with n - 1.

    A group of equal rewards teaches nothing: exactly 0, not noise divided by noise.
    """
    if max(rewards) - min(rewards) <= 1e-6:
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    std = (sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)) ** 0.5
    return [(r - mean) / (std + EPS) for r in rewards]


@dataclass(frozen=True)
class Turn:
    """Ids read since the last turn, and ids sampled in answer, with their log-probabilities."""

    context: list[int]
    sampled: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class Tokens:
    """One episode as tokens; mask 1 where the agent sampled, logprobs 0.0 where it did not."""

    ids: list[int]
    mask: list[int]
    logprobs: list[float]


def sequence(turns: Sequence[Turn]) -> Tokens:
    """Put the turns behind each other: observations are read, only the agent's tokens trained."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for turn in turns:
        ids += turn.context + turn.sampled
        mask += [0] * len(turn.context) + [1] * len(turn.sampled)
        logprobs += [0.0] * len(turn.context) + turn.logprobs
    return Tokens(ids, mask, logprobs)


def grpo_loss(new: Tensor, old: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Clipped surrogate, mean over sampled tokens; all [B, T], aligned with the token at t."""
    ratio = torch.exp(torch.where(mask > 0, new - old, 0.0))
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    return -torch.where(mask > 0, surrogate, 0.0).sum() / mask.sum()


def token_logprobs(model: Any, ids: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probability of each token given those before it; 0 for the first.  [B, T] -> [B, T]."""
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1] / temperature
    picked = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(picked, (1, 0))


def pad(rows: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """Pad on the right with 0: causal attention never looks there."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=dtype)


def batch_loss(model: Any, sequences: Sequence[Tokens], weights: Sequence[float]) -> Tensor:
    """The GRPO loss of whole episodes; `weights` are their advantages."""
    dtype = next(model.parameters()).dtype
    mask = pad([s.mask for s in sequences], dtype)
    advantage = torch.tensor(weights, dtype=dtype)[:, None] * mask
    new = token_logprobs(model, pad([s.ids for s in sequences], torch.long))
    return grpo_loss(new, pad([s.logprobs for s in sequences], dtype), advantage, mask)


# ---------------------------------------------------------------------------------------------
# 2. The agent: a conversation as one growing list of token ids, with its key/value cache
# ---------------------------------------------------------------------------------------------

MAX_NEW_TOKENS = 24
MAX_CONTEXT = 1000


class Agent:
    """Samples actions; used for one episode."""

    def __init__(self, model: Any, tokenizer: Any, *, seed: int, greedy: bool = False) -> None:
        self.model, self.tokenizer, self.greedy = model, tokenizer, greedy
        self.generator = torch.Generator().manual_seed(seed)
        self.cache: Any = None
        self.length = 0
        self.unread: list[int] = []
        self.turns: list[Turn] = []

    def read(self, observation: str) -> list[int]:
        """Token ids of an observation and the opening of the agent's answer."""
        return encode(self.tokenizer, f"<|user|>{observation}<|end|><|assistant|>")

    @torch.no_grad()
    def act(self, observation: str) -> str:
        """Read the observation, sample until the end token; returns the text."""
        context = self.read(observation)
        if self.turns and self.turns[-1].sampled[-1] != self.tokenizer.eos_token_id:
            context = [self.tokenizer.eos_token_id, *context]  # the last answer was cut
        self.unread += context
        sampled: list[int] = []
        logprobs: list[float] = []
        while len(sampled) < MAX_NEW_TOKENS:
            out = self.model(
                input_ids=torch.tensor([self.unread]), past_key_values=self.cache, use_cache=True
            )
            self.cache = out.past_key_values
            self.length += len(self.unread)
            scores = torch.log_softmax(out.logits[0, -1], -1)
            token = int(
                scores.argmax()
                if self.greedy
                else torch.multinomial(scores.exp(), 1, generator=self.generator)
            )
            sampled.append(token)
            logprobs.append(float(scores[token]))
            self.unread = [token]
            if token == self.tokenizer.eos_token_id:
                break
        self.turns.append(Turn(context, sampled, logprobs))
        text: str = self.tokenizer.decode(sampled, skip_special_tokens=True)
        return text


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text, special tokens by their names."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def parse(text: str) -> str:
    """The first action of an answer, or an empty one, which the environment answers too."""
    found = re.search(r"<action>(.*?)</action>", text, re.DOTALL)
    return found.group(1).strip() if found else ""


# ---------------------------------------------------------------------------------------------
# 3. Episodes
# ---------------------------------------------------------------------------------------------


async def episode(suite: Suite, task: Task, agent: Agent, *, seed: int) -> float:
    """Play one episode; returns its outcome reward (1 success, 0 not)."""
    env = suite.open(task, seed=seed)
    try:
        observation = await env.start()
        while agent.length < MAX_CONTEXT:
            step = await env.step(parse(agent.act(observation.text)))
            observation = step.observation
            if step.terminated or step.truncated:
                return float(step.success)
        return 0.0
    finally:
        await env.close()


@dataclass(frozen=True)
class Shown:
    """One turn of a demonstration, as text."""

    observation: str
    answer: str


async def demonstrate(suite: Any, task: Task) -> list[Shown]:
    """One episode of the built-in searcher, who knows nothing hidden; empty if it failed."""
    env, actor = suite.open(task, seed=0), suite.policy("searcher").start(task, seed=0)
    observation, shown = await env.start(), []
    while True:
        action = parse((await actor.act(observation)).text)
        shown.append(Shown(observation.text, f"<action>{action}</action>"))
        step = await env.step(action)
        observation = step.observation
        if step.terminated or step.truncated:
            return shown if step.success else []


def tokens_of(shown: Sequence[Shown], tokenizer: Any) -> Tokens:
    """A demonstration in exactly the format the agent samples in."""
    agent = Agent(None, tokenizer, seed=0)
    turns = []
    for turn in shown:
        answer = encode(tokenizer, f"{turn.answer}<|end|>")
        turns.append(Turn(agent.read(turn.observation), answer, [0.0] * len(answer)))
    return sequence(turns)


async def success_rate(suite: Suite, split: str, model: Any, tokenizer: Any, count: int) -> float:
    """Greedy success in a split."""
    tasks = suite.tasks(split)[:count]
    agents = [Agent(model, tokenizer, seed=0, greedy=True) for _ in tasks]
    rewards = [await episode(suite, t, a, seed=0) for t, a in zip(tasks, agents, strict=True)]
    return sum(rewards) / len(rewards)


# ---------------------------------------------------------------------------------------------
# 4. The loop
# ---------------------------------------------------------------------------------------------


def clone(model: Any, sequences: Sequence[Tokens], *, steps: int) -> None:
    """Behaviour cloning: next-token loss on the demonstrator's own tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.99), weight_decay=0.0)
    for step in range(steps):
        chosen = derive_random("clone", step).sample(list(sequences), min(16, len(sequences)))
        mask = pad([s.mask for s in chosen], torch.float32)
        logprobs = token_logprobs(model, pad([s.ids for s in chosen], torch.long))
        take_step(model, optimizer, -(logprobs * mask).sum() / mask.sum())


def take_step(model: Any, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Backward, clip the gradient's norm at 1, step."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


async def grpo(
    suite: Suite, model: Any, tokenizer: Any, *, iterations: int, tasks: int, group: int, seed: int
) -> None:
    """Play groups, compare within groups, step; one optimiser step per batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.99), weight_decay=0.0)
    for iteration in range(iterations):
        sequences: list[Tokens] = []
        weights: list[float] = []
        outcomes: list[float] = []
        for task in derive_random(seed, iteration).sample(list(suite.tasks("train")), tasks):
            # every attempt opens the same instance; only the agent's sampling differs
            instance = derive_seed(seed, iteration, task.id)
            agents = [
                Agent(model, tokenizer, seed=derive_seed(instance, attempt))
                for attempt in range(group)
            ]
            rewards = [await episode(suite, task, agent, seed=instance) for agent in agents]
            outcomes += rewards
            for agent, advantage in zip(agents, advantages(rewards), strict=True):
                if advantage != 0.0:
                    sequences.append(sequence(agent.turns))
                    weights.append(advantage)
        if sequences:
            take_step(model, optimizer, batch_loss(model, sequences, weights))
        mean = sum(outcomes) / len(outcomes)
        print(
            f"iteration {iteration:3d}  success {mean:.2f}  trained on {len(sequences)} episodes",
            flush=True,
        )


async def main(options: argparse.Namespace) -> None:
    """Clone, reinforce, evaluate in rooms never seen."""
    real: Any = make_suite("household", num_tasks=1000, max_steps=20)
    tasks = real.tasks("train")[: options.shown]
    shown = [won for won in [await demonstrate(real, task) for task in tasks] if won]
    tokenizer = build_tokenizer([t.observation + t.answer for turns in shown for t in turns])
    model = build_model(tokenizer, hidden=128, layers=3, heads=2, kv_heads=2, seed=options.seed)
    clone(model, [tokens_of(turns, tokenizer) for turns in shown], steps=options.clone_steps)
    before = await success_rate(real, "valid_unseen", model, tokenizer, options.evaluate)
    suite: Suite = real  # <-- in a dream: DreamSuite(tasks, model=experience_model, reader=reader)
    await grpo(
        suite,
        model,
        tokenizer,
        iterations=options.iterations,
        tasks=options.tasks,
        group=options.group,
        seed=options.seed,
    )
    after = await success_rate(real, "valid_unseen", model, tokenizer, options.evaluate)
    print(f"real success in unseen rooms: {before:.2f} cloned, {after:.2f} after GRPO")


def parser() -> argparse.ArgumentParser:
    """Command line of this file."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--iterations", type=int, default=20)
    arguments.add_argument("--tasks", type=int, default=4, help="tasks per iteration")
    arguments.add_argument("--group", type=int, default=8, help="attempts per task")
    arguments.add_argument("--shown", type=int, default=1000, help="demonstrations to clone")
    arguments.add_argument("--clone-steps", type=int, default=400)
    arguments.add_argument("--evaluate", type=int, default=50, help="evaluation tasks")
    arguments.add_argument("--seed", type=int, default=0)
    return arguments


if __name__ == "__main__":
    asyncio.run(main(parser().parse_args()))
