"""Reinforcement learning in a dream uses the experience model and nothing of the real engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_fixtures import collected

from dreamgym.agent.policy import ModelPolicy
from dreamgym.agent.prompt import AgentPrompt
from dreamgym.curriculum.sampler import UniformSampler
from dreamgym.dream.annotate import scenario_tasks
from dreamgym.dream.env import DreamConfig, DreamSuite
from dreamgym.dream.experience import ExperienceConfig, ExperienceModel
from dreamgym.envs.base import Suite
from dreamgym.envs.household.guard import engine_calls, engine_forbidden
from dreamgym.envs.table import make_reader, make_suite
from dreamgym.llm.base import GenerateRequest, Generation, Message
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.llm.tiny import build_model, build_tokenizer
from dreamgym.pipeline.logs import read_logs
from dreamgym.pipeline.models import log_texts, make_learner
from dreamgym.pipeline.settings import LearningSettings
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.rl.algorithm import make_algorithm
from dreamgym.rl.learner import Learner
from dreamgym.runs import RunFolder
from dreamgym.seeds import derive_random
from dreamgym.train import Loop, LoopConfig
from dreamgym.types import Origin, Rollout, Task

ACTIONS = ("look", "inventory")


class ChoosingEngine:
    """Says one of two actions, by the request's seed alone: log-probability log(1/2) at once."""

    def __init__(self, policy_ids: dict[str, tuple[int, ...]]) -> None:
        self.version = 0
        self.max_context = 1024
        self._ids = policy_ids

    async def generate(self, request: GenerateRequest) -> Generation:
        ids = self._ids[derive_random(request.seed).choice(ACTIONS)]
        return Generation(
            token_ids=ids, logprobs=(-0.7,) * len(ids), finish="stop", version=self.version
        )

    def release(self, session: str) -> None:
        """Nothing is kept."""


def dreamt(messages: Sequence[Message]) -> str:
    """Answer as a world in which looking around completes any task."""
    action = messages[-1].content.rpartition("action: ")[2]
    is_look = action.startswith("look")
    text = "You look around." if is_look else "You are not carrying anything."
    return json.dumps({"next_state": text, "reward": int(is_look), "done": is_look})


class Setup:
    """Logged tasks, a tiny learner, and a policy that acts well-formed from the start."""

    def __init__(self, folder: Path) -> None:
        rollouts: list[Rollout] = read_logs([str(collected(folder))]).rollouts
        self.transitions = [t for rollout in rollouts for t in rollout.transitions]
        self.reader = make_reader("household").learned(self.transitions)
        self.tasks: list[Task] = list(scenario_tasks(rollouts, self.reader).values())
        self.chat = ScriptedChat(dreamt)
        texts = [*log_texts(rollouts), *ACTIONS]
        tokenizer = build_tokenizer(texts, vocab_size=800)
        model = build_model(tokenizer, hidden=16, layers=1, heads=1, intermediate=32)
        self.learner: Learner = make_learner(
            model, tokenizer, LearningSettings(learning_rate=1e-3, optimizer="adamw")
        )
        self.policy = ModelPolicy(ChoosingEngine({}), tokenizer, AgentPrompt(style="compact"))
        renderer = self.policy.renderer
        self.policy.engine = ChoosingEngine(
            {a: tuple(renderer.completion(f"<action>{a}</action>")) for a in ACTIONS}
        )

    def loop(self, suite: Suite, run: RunFolder, *, origin: Origin) -> Loop:
        return Loop(
            suite=suite,
            policy=self.policy,
            learner=self.learner,
            algorithm=make_algorithm("grpo", group_size=4),
            sampler=UniformSampler(self.tasks, seed=0),
            config=LoopConfig(iterations=2, tasks_per_iteration=3, group_size=4, max_steps=2),
            stage="dream",
            seed=0,
            run=run,
            origin=origin,
            publish=lambda version: None,
        )


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return Setup(tmp_path_factory.mktemp("dream"))


def test_dream_training_learns_without_one_call_of_the_real_engine(
    setup: Setup, tmp_path: Path
) -> None:
    buffer = ReplayBuffer(None, HashedNgramEncoder(), capacity=1000)
    buffer.add(setup.transitions)
    suite = DreamSuite(
        setup.tasks,
        model=ExperienceModel(setup.chat, ExperienceConfig(check_ledger=False)),
        reader=setup.reader,
        buffer=buffer,
        config=DreamConfig(max_steps=2, verify=False),
    )
    before = engine_calls()
    weights = {k: v.clone() for k, v in setup.learner.state_dict().items() if "model/" in k}
    with engine_forbidden(), RunFolder(tmp_path / "run", {"name": "dream"}) as run:
        loop = setup.loop(suite, run, origin=Origin.DREAM)
        asyncio.run(loop.train())
        rows = run.metrics()
    assert engine_calls() == before
    assert loop.step == 2
    assert [row["rollout/fault_share"] for row in rows] == [0.0, 0.0]
    assert all(0.0 < row["rollout/success"] < 1.0 for row in rows)
    after = setup.learner.state_dict()
    assert any(not bool((after[key] == weights[key]).all()) for key in weights)
    assert setup.chat.num_calls >= 2 * 3 * 4


def test_the_same_training_in_the_real_suite_is_stopped_by_the_guard(
    setup: Setup, tmp_path: Path
) -> None:
    suite = make_suite("household", size="small", num_tasks=3)
    before = engine_calls()
    with engine_forbidden(), RunFolder(tmp_path / "run", {"name": "real"}) as run:
        asyncio.run(setup.loop(suite, run, origin=Origin.REAL).train())
        rows = run.metrics()
    assert engine_calls() == before
    assert [row["rollout/fault_share"] for row in rows] == [1.0, 1.0]
    with RunFolder(tmp_path / "allowed", {"name": "real"}) as run:
        asyncio.run(setup.loop(suite, run, origin=Origin.REAL).train())
    assert engine_calls() > before
