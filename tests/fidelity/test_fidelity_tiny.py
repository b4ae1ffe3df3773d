"""Real weights: a small model overfitted on one game, measured through the command line."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from fidelity_worlds import READER, panel, suite

pytest.importorskip("torch", reason="the train extra is not installed")

from dreamgym.cli import main
from dreamgym.dream.annotate import AnnotateConfig, Annotator
from dreamgym.dream.examples import ExampleConfig
from dreamgym.dream.experience import ExperienceConfig
from dreamgym.dream.prompt import PromptConfig, step_messages, step_target
from dreamgym.fidelity.direct import START, DirectChat
from dreamgym.fidelity.repeat import repeat
from dreamgym.fidelity.subject import Subject, Variant
from dreamgym.fit import FitConfig, TokenStream, train_on_stream
from dreamgym.llm.base import Message
from dreamgym.llm.engine import make_engine
from dreamgym.llm.local import LocalChat
from dreamgym.llm.models import save_model
from dreamgym.llm.render import Renderer
from dreamgym.llm.tiny import build_model, build_tokenizer
from dreamgym.rl.learner import Learner, LearnerConfig
from dreamgym.rl.optim import OptimConfig
from dreamgym.types import Rollout

PROMPT = PromptConfig(style="compact", scenario="relevant", past="actions", neighbours=0, history=0)
ASK = ExperienceConfig(prompt=PROMPT, max_tokens=96, retries=0, check_ledger=False)


@functools.cache
def episode() -> Rollout:
    return next(e for e in panel().episodes if e.policy == "expert")


@functools.cache
def fitted() -> tuple[Any, Any]:
    """Return (model, tokenizer): answers in the right form, mostly the wrong thing."""
    config = AnnotateConfig(negatives=1, neighbours=0, history=0, relabel=0, wrong_share=0.0)
    annotator = Annotator(READER, panel().tasks, buffer=None, config=config)
    examples = annotator.annotate(episode())
    texts = [m.content for e in examples for m in step_messages(PROMPT, e.context)]
    texts += [
        step_target(PROMPT, rationale=e.rationale, next_text=e.next_text, reward=0.0, done=False)
        for e in examples
    ]
    tokenizer = build_tokenizer(texts, vocab_size=420)
    model = build_model(tokenizer, hidden=48, layers=2, heads=2, kv_heads=2, seed=1)
    fit = FitConfig(steps=60, examples_per_step=6, mixture=ExampleConfig(renumber=0.0))
    stream = TokenStream(examples, [], Renderer(tokenizer), PROMPT, fit)
    optim = OptimConfig(learning_rate=4e-3, optimizer="muon")
    learner = Learner(model, tokenizer, LearnerConfig(optim=optim))
    train_on_stream(learner, stream.batch, config=fit)
    return learner.model, tokenizer


@functools.cache
def subject() -> Subject:
    model, tokenizer = fitted()
    engine = make_engine(model, max_batch=32)
    return Subject(
        name="tiny",
        suite=suite(),
        chat=LocalChat(engine, tokenizer, "tiny"),
        direct=DirectChat(engine, tokenizer, "tiny"),
        ask=ASK,
        reader=READER,
        buffer=None,
        agents={},
        max_steps=12,
    )


def test_sixteen_copies_in_one_batch_read_one_world() -> None:  # EXP-12
    found = asyncio.run(repeat(Variant(subject()), [episode()], panel().tasks, copies=16))
    assert found.faults < 16, "the small model has to answer for this to mean anything"
    assert found.identical == found.groups == 1 and found.max_reward_sd == 0.0


def test_a_direct_answer_starts_where_reasoning_would_have_been() -> None:
    asked = [Message("user", "task: put a pen in shelf.\naction: go to desk 1")]

    async def both() -> tuple[str, str]:
        chat, direct = subject().chat, subject().direct
        said = await chat.reply(asked, seed=0, max_tokens=8)
        again = await direct.reply(asked, seed=0, max_tokens=8, session="s")
        direct.release("s")
        return said.text, again.text

    said, direct = asyncio.run(both())
    assert said.startswith("<think>")
    assert direct.startswith(START) and "<think>" not in direct


def test_a_model_folder_is_measured_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    save_model(*fitted(), folder)
    arguments = [
        *("fidelity", "--model", str(folder), "--out", str(tmp_path / "out")),
        *("--option", "size=tiny", "--tasks", "2", "--ablate", "reasoning", "--json"),
        *("--policy", "expert", "--policy", "random"),
        *("--set", "questions=20", "--set", "drift_episodes=2", "--set", "free_tasks=1"),
        *("--set", "ablation_questions=10", "--set", "ablation_tasks=1", "--set", "copies=2"),
        *("--set", "max_steps=6", "--set", "ask.retries=0", "--set", "ask.max_tokens=96"),
    ]
    assert main(arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((tmp_path / "out" / "fidelity.json").read_text())
    assert shown["calibration"]["n"] > 0 and shown["calibration"]["ece"] is not None
    assert set(shown["ablations"]) == {"full", "reasoning"}
    assert shown["real_transitions"]["panel"] > 0
    assert (tmp_path / "out" / "fidelity.html").exists()
