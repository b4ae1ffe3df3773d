"""The files of a measurement: JSON that reads back, a page that escapes; and the command."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from fidelity_worlds import ASK, POLICIES, honest, player, suite, tasks
from msgspec.structs import replace

from dreamgym.cli import main
from dreamgym.errors import ConfigError
from dreamgym.fidelity.measure import Measured
from dreamgym.fidelity.page import render_page
from dreamgym.fidelity.panel import make_policies
from dreamgym.fidelity.result import Fidelity
from dreamgym.fidelity.run import measure_source
from dreamgym.fidelity.settings import FidelitySettings
from dreamgym.fidelity.sources import Source, bare_source
from dreamgym.fidelity.subject import ABLATIONS
from dreamgym.pipeline.settings import SuiteSettings

SETTINGS = FidelitySettings(
    run="here",
    suite=SuiteSettings(options={"size": "tiny", "num_tasks": 6}),
    tasks=2,
    policies=POLICIES,
    max_steps=12,
    questions=40,
    drift_episodes=2,
    free_tasks=2,
    ablation_questions=20,
    ablation_tasks=2,
    copies=2,
    ask=ASK,
)


def source(folder: Path) -> Source:
    chat = player(honest, name="<script>alert(1)</script>")
    made = bare_source(SETTINGS, chat, chat, out=folder)
    return replace(made, tasks=list(tasks())[:2])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Measured, Path]:
    folder = tmp_path_factory.mktemp("fidelity")
    return measure_source(source(folder), SETTINGS)


def test_the_json_reads_back_as_what_was_measured(made: tuple[Measured, Path]) -> None:
    found, folder = made
    text = (folder / "fidelity.json").read_bytes()
    assert msgspec.json.decode(text, type=Fidelity) == found.fidelity
    assert set(found.fidelity.ablations) == {"full", *ABLATIONS}


def test_the_page_escapes_what_comes_from_data_and_needs_no_network(  # SEC-08
    made: tuple[Measured, Path],
) -> None:
    page = (made[1] / "fidelity.html").read_text("utf-8")
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "src=" not in page and "default-src 'none'" in page


def test_the_page_says_in_words_what_the_dream_can_be_trusted_for(
    made: tuple[Measured, Path],
) -> None:
    page = render_page(made[0].fidelity)
    for sentence in made[0].fidelity.verdict:
        assert sentence.split(":")[0].split(".")[0] in page
    assert page.count("<svg") == 5  # all but calibration, which a scripted model has not


def test_a_second_measurement_plays_no_real_panel_again_and_says_the_same(
    made: tuple[Measured, Path],
) -> None:
    found, folder = made
    before = (folder / "episodes.jsonl").read_bytes()
    again, _ = measure_source(source(folder), SETTINGS)
    assert (folder / "episodes.jsonl").read_bytes() == before
    for part in ("steps", "drift", "free_play", "ranks", "bounds", "ablations"):
        assert getattr(again.fidelity, part) == getattr(found.fidelity, part)


def test_recorded_episodes_are_measured_without_playing(
    made: tuple[Measured, Path], tmp_path: Path
) -> None:
    recorded = replace(SETTINGS, episodes=(str(made[1] / "episodes.jsonl"),), ablate=())
    found, folder = measure_source(source(tmp_path), recorded)
    assert not (folder / "episodes.jsonl").exists()
    assert found.fidelity.steps == made[0].fidelity.steps
    assert found.fidelity.ablations == {}


def test_no_miss_is_left_out_of_the_file(made: tuple[Measured, Path]) -> None:
    found, folder = made
    lines = (folder / "misses.jsonl").read_text("utf-8").splitlines()[1:]
    wrong = [step for step in found.steps if step.is_fault or not step.exact]
    assert [json.loads(line)["action"] for line in lines] == [step.action for step in wrong]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to measure"),
        (["nowhere"], "is no run folder"),
        (["--model", "nowhere"], "give --out"),
        (["--model", "./nowhere", "--out", "x"], "does not exist"),
        (["--model", "m", "--ablate", "histori"], "did you mean 'history'"),
        (["--model", "m", "--tasks", "0"], "tasks must be at least 1; got 0"),
        (["--set", "copies=1"], "copies must be at least 2"),
        (["--set", "real_step_seconds=0"], "must be above 0"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fidelity", *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1


def test_policies_take_options_and_refuse_bad_ones() -> None:
    names = [policy.name for policy in make_policies(suite(), ["noisy:p=0.5", "expert"])]
    assert names == ["noisy:p=0.5", "expert"]
    with pytest.raises(ConfigError, match="form name:option=number"):
        make_policies(suite(), ["noisy:p"])
    with pytest.raises(ConfigError, match="household policy 'expret'"):
        make_policies(suite(), ["expret"])
    assert [p.name for p in make_policies(suite(), ["expret", "random"], optional=True)] == [
        "random"
    ]


def test_the_dry_run_prints_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fidelity", "runs/demo", "--tasks", "7", "--no-ablations", "--dry-run"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["run"], shown["tasks"], shown["ablate"]) == ("runs/demo", 7, [])
