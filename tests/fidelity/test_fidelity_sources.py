"""What is measured can be a demo run, a dream folder, a model folder or an endpoint."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fidelity_worlds import ASK, honest, panel, player, subject, tasks
from msgspec.structs import replace

from dreamgym.cli import main
from dreamgym.errors import ConfigError
from dreamgym.fidelity.run import measure_source
from dreamgym.fidelity.settings import FidelitySettings
from dreamgym.fidelity.sources import Source, load_source
from dreamgym.fidelity.steps import score_steps
from dreamgym.fidelity.subject import NO_REASONING, Instructed, Meter, Variant
from dreamgym.llm.base import Message
from dreamgym.llm.budget import BudgetSpent, Limits
from dreamgym.llm.connect import EndpointSettings
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.pipeline.settings import SuiteSettings
from dreamgym.replay.guard import EVALUATION_SPLITS

pytest.importorskip("torch", reason="the train extra is not installed")

TINY = ("--set", "model.hidden=16", "--set", "model.layers=1", "--set", "model.vocab_size=600")
SMALL = FidelitySettings(
    suite=SuiteSettings(options={"size": "tiny", "num_tasks": 6}),
    tasks=2,
    policies=("expert", "random"),
    max_steps=8,
    questions=20,
    negatives=0,
    drift_episodes=2,
    free_tasks=2,
    ablate=(),
    copies=2,
    ask=ASK,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sources")


@functools.cache
def demo_source(folder: Path) -> Source:
    """Return the source of a demo run that got as far as an unfitted model."""
    from dreamgym.demo.config import DemoConfig, LogConfig
    from dreamgym.demo.context import DemoContext
    from dreamgym.demo.models import new_models
    from dreamgym.demo.stages import collect_logs
    from dreamgym.runs import RunFolder

    config = DemoConfig()
    small = replace(config.experience, hidden=16, layers=1, vocab_size=600)
    config = replace(
        config,
        experience=small,
        logs=LogConfig(tasks=6, random_share=0.0, agent_episodes=2),
        clone=replace(config.clone, episodes=2),
    )
    with RunFolder(folder / "demo", config) as run:
        ctx = DemoContext(config, run)
        collect_logs(ctx)
        model, tokenizer = new_models(ctx, "experience")
        for name in ("experience", "warm_start"):
            ctx.save_model(name, model, tokenizer)
    return load_source(FidelitySettings(run=str(folder / "demo"), tasks=5))


def test_a_demo_run_brings_its_agents_buffer_and_unseen_tasks(folder: Path) -> None:
    source = demo_source(folder)
    one = source.subject
    assert set(one.agents) == {"warm_start"} and one.name == "experience"
    assert getattr(one.agents["warm_start"], "temperature", None) == 0
    assert one.max_steps == 15 and one.origins.transitions > 0
    assert one.buffer is not None and len(one.buffer) > 0
    assert {task.split for task in source.tasks} == {"valid_unseen"} and len(source.tasks) == 5
    assert source.seen_tasks and not source.seen_tasks & {task.id for task in source.tasks}


def test_nothing_of_the_run_is_changed_but_its_lock(folder: Path) -> None:
    demo_source(folder)
    before = {p: p.read_bytes() for p in (folder / "demo").rglob("*") if p.is_file()}
    load_source(FidelitySettings(run=str(folder / "demo"), tasks=5))
    after = {p: p.read_bytes() for p in (folder / "demo").rglob("*") if p.is_file()}
    lock = folder / "demo" / "lock"
    assert {k: v for k, v in before.items() if k != lock} == {
        k: v for k, v in after.items() if k != lock
    }


def test_evaluation_episodes_never_enter_the_buffer(folder: Path) -> None:  # EMB-07
    one = demo_source(folder).subject
    assert one.buffer is not None
    size = len(one.buffer)
    asyncio.run(
        score_steps(
            Variant(replace(subject(), buffer=one.buffer, ask=ASK)),
            panel().episodes[:2],
            tasks=panel().tasks,
            negatives=0,
            seed=0,
        )
    )
    assert len(one.buffer) == size
    assert not any(
        split in transition.task_id
        for transition in one.buffer.transitions
        for split in EVALUATION_SPLITS
    )


def test_a_model_a_run_does_not_have_is_named_with_those_it_has(folder: Path) -> None:
    demo_source(folder)
    settings = FidelitySettings(run=str(folder / "demo"), model="experiense")
    with pytest.raises(ConfigError, match="did you mean 'experience'"):
        load_source(settings)


def test_a_dream_folder_is_loaded_with_how_it_is_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = folder / "logs.jsonl"
    collected = ["collect", "--policy", "noisy", "--tasks", "6", "--option", "size=tiny"]
    assert main([*collected, "--out", str(logs)]) == 0
    fit = ["fit", "--logs", str(logs), "--out", str(folder / "em"), "--set", "fit.steps=1"]
    assert main([*fit, *TINY, "--set", "accuracy_examples=1", "--set", "ask.retries=0"]) == 0
    capsys.readouterr()
    settings = FidelitySettings(run=str(folder / "em"), tasks=3)
    source = load_source(settings)
    assert source.subject.ask.retries == 0 and source.subject.name == "em"
    assert source.subject.buffer is not None and source.subject.origins.transitions > 0
    assert len(source.tasks) == 3 and len(source.seen_tasks) == 6 - 1  # one is held out


def test_an_endpoint_needs_a_place_and_is_the_only_thing_measured(tmp_path: Path) -> None:
    endpoint = EndpointSettings(url="http://127.0.0.1:9/v1", model="m")
    with pytest.raises(ConfigError, match="give --out"):
        load_source(FidelitySettings(endpoint=endpoint))
    with pytest.raises(ConfigError, match="more than one"):
        FidelitySettings(endpoint=endpoint, run="runs/demo")
    source = load_source(FidelitySettings(endpoint=endpoint, out=str(tmp_path), tasks=2))
    assert source.subject.name == "m" and source.subject.price is None
    assert isinstance(source.subject.direct, Instructed)


def test_a_model_that_follows_instructions_is_told_not_to_reason() -> None:
    heard: list[str] = []

    def listen(messages: list[Message]) -> str:
        heard.append(messages[-1].content)
        return "said"

    chat = Meter(Instructed(ScriptedChat(listen)))  # type: ignore[arg-type]  # a list is a Sequence
    reply = asyncio.run(chat.reply([Message("user", "action: look")], seed=0, max_tokens=9))
    assert heard == [f"action: look\n{NO_REASONING}"]
    assert (chat.num_calls, chat.tokens) == (1, reply.prompt_tokens + reply.completion_tokens)


class Served:
    """The scripted model behind a real HTTP endpoint on this machine."""

    def __init__(self) -> None:
        chat = player(honest)
        self.num_requests = 0
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                asked = json.loads(self.rfile.read(size))["messages"]
                served.num_requests += 1
                text = chat._answer([Message(m["role"], m["content"]) for m in asked])
                body = json.dumps(completion(text)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def __enter__(self) -> Served:
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


def completion(text: str) -> dict[str, object]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


def test_an_endpoint_is_measured_within_its_budget_and_never_paid_twice(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the endpoint extra is not installed")
    (tmp_path / "prices.toml").write_text("[models.m]\nprompt = 1.0\ncompletion = 10.0\n")
    with Served() as served:
        settings = replace(
            SMALL,
            out=str(tmp_path / "out"),
            endpoint=EndpointSettings(
                url=served.url,
                model="m",
                prices=str(tmp_path / "prices.toml"),
                budget=Limits(money=1.0),
            ),
        )
        source = replace(load_source(settings), tasks=list(tasks())[:2])
        found, folder = measure_source(source, settings)
        num_requests = served.num_requests
        again = replace(load_source(settings), tasks=list(tasks())[:2])
        measure_source(again, settings)
    assert found.fidelity.steps.overall.exact.value == 1.0
    assert num_requests > 0 and served.num_requests == num_requests  # all answers were kept
    lines = (folder / "experience.spent.jsonl").read_text().splitlines()
    assert sum('"settled"' in line for line in lines) == num_requests
    # 100 and 10 tokens a call, at 1 and 10 a million, one call a step
    assert found.fidelity.dream_cost.money_per_step == pytest.approx(0.0002)


def test_a_budget_that_ends_stops_the_measurement_with_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the endpoint extra is not installed")
    with Served() as served:
        settings = replace(
            SMALL,
            out=str(tmp_path / "out"),
            endpoint=EndpointSettings(url=served.url, model="m", budget=Limits(calls=7)),
        )
        source = replace(load_source(settings), tasks=list(tasks())[:2])
        with pytest.raises(BudgetSpent, match="raise the limit and run again to go on"):
            measure_source(source, settings)
    assert served.num_requests == 7
