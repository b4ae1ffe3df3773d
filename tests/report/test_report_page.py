"""The page as a reader gets it: complete, partial, hostile, and without a network."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from report_run_folder import metrics as full_metrics
from report_run_folder import rollout, write_dreams, write_run
from report_run_folder import summary as full_summary

from dreamgym.errors import DataError
from dreamgym.report import build_report

SCRIPT = "<script>x</script>"
IMAGE = "![a](http://h/x.png)"


class Page(HTMLParser):
    """The elements, attributes and texts of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\u00a0", " ").split())

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("runs")
    others = [write_run(folder / f"seed-{seed}", seed=seed) for seed in (1, 2)]
    return Page(build_report(write_run(folder / "seed-0"), other_runs=others))


def test_a_finished_run_shows_all_it_measured(page: Page) -> None:
    assert "sampled success went from 21 % (warm start) to 63 % after dreaming" in page.text
    assert "Not run yet" not in page.text
    assert "not run yet" not in page.text
    assert len(page.tags("svg")) == 12
    for said in ("pick_heat_then_place", "take/none", "8,000", "15,500", "2 min 28 s"):
        assert said in page.text, said
    assert "dreamgym demo --preset tiny --seed 0 --algorithm grpo" in page.text


def test_dreams_are_shown_with_the_reasoning_of_the_model(page: Page) -> None:
    assert "A success: put a pen in desk 1" in page.text
    assert "A failure:" in page.text
    assert "A generated task:" in page.text
    assert "The agent is at a drawer that the ledger calls closed (step 3)." in page.text
    assert "unsupported success" in page.text


def test_other_runs_stand_beside_this_one(page: Page) -> None:
    assert "Beside other runs" in page.text
    assert "seed-2" in page.text
    assert "63–67 %" in page.text


def test_the_page_needs_nothing_from_outside(page: Page) -> None:
    assert {tag for tag, _ in page.elements} & {
        "script",
        "img",
        "link",
        "iframe",
        "object",
    } == set()
    for _, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert "@import" not in page.source
    assert "url(http" not in page.source
    policies = [meta for meta in page.tags("meta") if "http-equiv" in meta]
    assert (policies[0]["content"] or "").startswith("default-src 'none'")


def test_the_page_can_be_read_aloud(page: Page) -> None:
    assert page.tags("html")[0]["lang"] == "en"
    assert len(page.tags("h1")) == 1
    for drawing in page.tags("svg"):
        assert drawing["role"] == "img"
        assert len(drawing["aria-label"] or "") > 20
    assert len(page.tags("figure")) == len(page.tags("figcaption"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        if target := attributes.get("aria-labelledby"):
            assert target in ids


def test_secrets_of_the_configuration_do_not_reach_the_page(page: Page) -> None:
    assert "k-123" not in page.source


def test_sec_08_markup_from_a_run_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    bad = f"{SCRIPT} {IMAGE} {{{{ 7 * 7 }}}}"
    folder = tmp_path / "run"
    folder.mkdir()
    content = full_summary()
    content["preset"] = bad
    content["levers"] = {bad: True}
    content["real_transitions"] = {bad: 3}
    content["stages"] = [{"name": bad, "seconds": 1.0}]
    content["dream"] = {"accuracy": {"by_kind": {SCRIPT: {"exact": 0.9, "n": 10}}}}
    content["real_success"] = {"dream": {"sampled": 0.5, "n": 4, "by_kind": {bad: {"n": 4}}}}
    (folder / "summary.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({bad: bad}), encoding="utf-8")
    (folder / "versions.json").write_text(json.dumps({bad: bad}), encoding="utf-8")
    write_dreams(folder, [rollout("won", is_success=True, observation=bad, flags=(bad,))])
    page = Page(build_report(folder))
    assert page.tags("script") == []
    assert page.tags("img") == []
    assert page.tags("a") == []
    assert "<script" not in page.source
    assert "&lt;script&gt;x&lt;/script&gt; ![a](http://h/x.png) {{ 7 * 7 }}" in page.source
    assert f"{SCRIPT} {IMAGE}" in page.text


def test_a_run_that_has_just_started_gets_a_page(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    page = Page(build_report(tmp_path))
    assert "This run has no summary yet" in page.text
    assert page.tags("svg") == []
    assert page.text.count("Not run yet.") >= 10


def test_a_run_that_is_still_dreaming_shows_its_curves(tmp_path: Path) -> None:
    rows = [json.dumps(row) for row in full_metrics() if row["stage"] == "dream"]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*rows, '{"stage": "dr']), encoding="utf-8")
    page = Page(build_report(tmp_path))
    spoken = [drawing["aria-label"] or "" for drawing in page.tags("svg")]
    assert any(text.startswith("Success over dream training") for text in spoken)
    assert "metrics.jsonl: 1 line could not be read and was skipped." in page.text


def test_what_was_switched_off_is_not_called_not_run_yet(tmp_path: Path) -> None:
    content = {"preset": "tiny", "naive": True, "levers": {"curriculum": False, "probe": False}}
    (tmp_path / "summary.json").write_text(json.dumps(content), encoding="utf-8")
    page = Page(build_report(tmp_path))
    assert "Switched off in this run (lever 'curriculum')." in page.text
    assert "Switched off in this run (lever 'probe')." in page.text
    assert "dreamgym demo --preset tiny --naive" in page.text


def test_a_long_dream_is_cut_and_says_so(tmp_path: Path) -> None:
    text = "y" * 5000
    write_dreams(tmp_path, [rollout("long", is_success=False, steps=40, observation=text)])
    page = Page(build_report(tmp_path))
    assert "… and 10 more steps." in page.text
    assert "(5000 characters)" in page.text
    assert text not in page.source


def test_half_a_character_from_a_model_does_not_stop_the_page(tmp_path: Path) -> None:
    write_dreams(tmp_path, [rollout("half", is_success=True, observation="You see @half.")])
    path = tmp_path / "records" / "dream.jsonl"
    path.write_bytes(path.read_bytes().replace(b"@half", b"\\ud83d"))
    page = Page(build_report(tmp_path))
    assert "You see ?." in page.text
    assert "could not be read" not in page.text


def test_a_page_is_replaced_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    first = build_report(tmp_path)
    assert build_report(tmp_path) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "report.html"]


def test_another_run_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="elsewhere"):
        build_report(tmp_path, other_runs=[tmp_path / "elsewhere"])
    assert not (tmp_path / "report.html").exists()


def test_template_and_style_sheet_belong_to_the_package() -> None:
    templates = files("dreamgym.report") / "templates"
    assert (templates / "report.html.j2").is_file()
    assert (templates / "report.css").is_file()


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_importing_the_report_does_not_import_matplotlib() -> None:
    code = (
        "import sys, dreamgym.report; "
        "print(sorted({'matplotlib', 'jinja2', 'numpy'} & set(sys.modules)))"
    )
    assert run_python(code).strip() == "[]"


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_missing_package_names_the_extra(package: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from pathlib import Path\n"
        "from dreamgym.errors import MissingExtra\n"
        "from dreamgym.report import build_report\n"
        f"try:\n    build_report(Path({str(tmp_path)!r}))\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    said = run_python(code)
    assert package in said
    assert "dreamgym[report]" in said
