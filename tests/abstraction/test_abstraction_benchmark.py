from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.abstraction import KEPT_LIMIT, count_tokens, is_kept, measure, recorded_pages
from benchmarks.abstraction_pages import stored_pages

from dreamgym.abstraction import AbstractionSettings

_DEFAULT = Path(__file__).resolve().parents[2].parent / "shared" / "data"
GOLDEN = Path(os.environ.get("DREAMGYM_DATA", _DEFAULT)) / "webshop_golden_150.json.xz"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_element_needed_next_is_kept_on_stored_pages(seed: int) -> None:
    figures = measure(stored_pages(seed), AbstractionSettings(), count_tokens)
    assert figures["pages"] == 50
    assert figures["needed_kept"] >= KEPT_LIMIT, figures["lost"]
    assert figures["token_ratio"] < 0.35


@pytest.mark.skipif(not GOLDEN.is_file(), reason=f"needs {GOLDEN} (or DREAMGYM_DATA)")
def test_the_element_needed_next_is_kept_on_recorded_shop_pages() -> None:
    figures = measure(recorded_pages(GOLDEN), AbstractionSettings(), count_tokens)
    assert figures["pages"] > 200
    assert figures["needed_kept"] >= KEPT_LIMIT, figures["lost"]


def test_fewer_elements_lose_more_so_the_measure_can_fail() -> None:
    few = AbstractionSettings(min_elements=1, max_elements=1)
    assert measure(stored_pages(), few, count_tokens)["needed_kept"] < 0.8


def test_every_stored_page_holds_the_element_it_asks_for() -> None:
    for page in stored_pages():
        assert page.needed in page.text and page.instruction and page.name


def test_a_part_of_an_id_does_not_count_as_kept() -> None:
    assert is_kept('[12] button: "x"', "12")
    assert not is_kept('[123] button: "12"', "12")
