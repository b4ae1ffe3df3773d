from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym.abstraction import AbstractionSettings, RuleMapper, read_page
from dreamgym.abstraction.mapper import Kind
from dreamgym.errors import ConfigError
from dreamgym.types import Observation

SAMPLES = Path(os.environ.get("DREAMGYM_SAMPLES", Path(__file__).resolve().parents[2].parent))
MINIWOB = SAMPLES / "shared" / "samples" / "s09_miniwob_demo.json"

TREE = r"""RootWebArea 'Dashboard / Admin', focused
	[12] link 'Skip to content'
	[20] heading 'Lifetime Sales'
	StaticText '$0.00'
	[25] alert ''
		StaticText 'One or more indexers are invalid.'
	[30] generic '', clickable
		[31] button 'Reload Data'
		[32] button 'Can\'t stop, won\'t stop'
	[40] textbox 'Filter', required
	[41] checkbox 'Only mine', checked='true'
	[42] combobox 'Status'
		[43] option 'Pending', selected='true'
		[44] option 'Complete'
	[50] table 'Last Orders'
		[51] row ''
			[52] columnheader 'Customer'
			[53] columnheader 'Total'
		[54] row ''
			[55] cell 'Ann Lee'
			[56] cell ''
				[57] link '$45.00'
	[463] button 'Total Commits'
	[70] figure 'Sales by month'
		StaticText 'Jan 120'
		StaticText 'Feb 80'
"""

HTML = """<html><head><title>Log in</title><script>alert("no")</script></head><body>
<nav><a id="home" href="/">Home</a></nav>
<div class="flash-error">Wrong password.</div>
<form><label for="u">User name</label><input id="u" type="text" value="ann">
<label>Password</label><input id="p" type="password">
<label><input id="k" type="checkbox"> Keep me logged in</label>
<input type="hidden" id="token" value="s3cret"><div style="display: none"><a id="x">x</a></div>
<button id="go">Log in</button></form>
<table><tr><th>Day<th>Hours<tr><td>Mon<td>8 <a id="e1">edit</a></table></body></html>"""

SHOP = (
    "Instruction: [SEP] i need a blue mug, size 12 oz [2 pack] [SEP] Back to Search [SEP] < Prev "
    "[SEP] color [SEP] blue [SEP] red [SEP] size [SEP] 12 oz [2 pack] [SEP] 8 oz [SEP] Mug of clay "
    "[SEP] Price: $9.5 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] "
    "Buy Now"
)


def mapped(text: str, task: str, actions: tuple[str, ...] | None = None) -> str:
    return RuleMapper().map(Observation(text=text, actions=actions), task).text


def test_an_accessibility_tree_becomes_title_elements_table_and_message() -> None:
    text = mapped(TREE, "Show the total commits of Ann Lee")
    assert text.startswith("Page: Dashboard / Admin\n")
    assert "Message: One or more indexers are invalid." in text
    assert '[463] button: "Total Commits"' in text
    assert 'Table "Last Orders":\nCustomer | Total\nAnn Lee | [57] $45.00' in text
    assert 'Table "Sales by month":\nJan 120\nFeb 80' in text


def test_states_choices_and_escaped_names_are_read() -> None:
    page = read_page(TREE)
    assert page is not None
    elements = {element.id: element for element in page.elements}
    assert elements["41"].states == ("checked",)
    assert elements["42"].choices == (("43", "Pending (selected)"), ("44", "Complete"))
    assert elements["32"].description == "Can't stop, won't stop"
    assert {"30", "31"} <= elements.keys()  # a clickable box does not hide its buttons


def test_html_keeps_labels_and_messages_and_drops_what_is_hidden() -> None:
    page = read_page(HTML)
    assert page is not None
    labels = {element.id: element.description for element in page.elements}
    assert labels["u"] == "User name" and labels["p"] == "Password"
    assert labels["k"] == "Keep me logged in"
    assert page.title == "Log in" and page.messages == ("Wrong password.",)
    assert not {"x", "token"} & labels.keys()
    assert page.tables[0].rows == (("Day", "Hours"), ("Mon", "8 [e1] edit"))
    text = mapped(HTML, "Log in as ann")
    assert "alert(" not in text and "s3cret" not in text


@pytest.mark.skipif(not MINIWOB.is_file(), reason=f"needs the sample {MINIWOB}")
def test_a_recorded_miniwob_dom_keeps_its_refs() -> None:  # sample s09
    demo = json.loads(MINIWOB.read_text("utf-8"))
    text = mapped(json.dumps(demo["states"][0]["dom"]), demo["utterance"])
    assert '[5] button: "ok"' in text


def test_a_dom_names_fields_by_the_text_before_them() -> None:
    dom = {
        "tag": "BODY",
        "ref": 1,
        "children": [
            {"tag": "SPAN", "ref": 2, "text": "Amount", "children": []},
            {"tag": "INPUT_text", "ref": 3, "value": "7", "children": []},
            {"tag": "INPUT_checkbox", "ref": 4, "value": True, "children": []},
        ],
    }
    text = mapped(json.dumps(dom), "Enter the amount")
    assert '[3] textbox: "Amount" (value: 7)' in text
    assert "[4] checkbox" in text and "(checked)" in text


def test_shop_values_keep_brackets_and_spelling() -> None:  # PAR-03, PAR-05
    actions = tuple(
        f"click[{value}]"
        for value in (
            "back to search",
            "< prev",
            "blue",
            "red",
            "12 oz [2 pack]",
            "8 oz",
            "buy now",
        )
    )
    text = mapped(SHOP, "i need a blue mug, size 12 oz [2 pack]", actions)
    assert "Page: Mug of clay" in text
    assert "[size] option choices: [12 oz [2 pack]] | [8 oz]" in text
    assert "[Buy Now] button" in text
    assert "Price: $9.5" in text


def test_a_results_page_shows_products_with_their_price() -> None:
    parts = ["Instruction:", "buy a lamp", "Back to Search", "Page 1 (Total results: 2)", "Next >"]
    parts += ["B0AAAAAAA1", "Brass lamp", "$20.0", "B0AAAAAAA2", "Oak chair", "$70.0"]
    text = mapped(" [SEP] ".join(parts), "buy a lamp")
    assert '[B0AAAAAAA1] product: "Brass lamp, $20.0"' in text
    assert "[Next >] button" in text


def test_alfworld_text_loses_only_its_banner() -> None:
    seen = "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.\n\nYour task"
    assert mapped(seen, "put a pen") == "You are in the middle of a room.\nYour task"


def test_at_most_the_configured_number_is_shown_and_the_rest_is_counted() -> None:
    lines = ["RootWebArea 'Links'", *(f"\t[{i}] link 'word{i}'" for i in range(40))]
    chosen = RuleMapper(AbstractionSettings(min_elements=3, max_elements=5))
    text = chosen.map(Observation(text="\n".join(lines)), "click word17").text
    assert "[17] link" in text
    assert text.count("link:") == 3
    assert "(37 more elements are not shown)" in text


def test_a_long_list_of_choices_keeps_those_that_fit() -> None:
    lines = ["RootWebArea 'Form'", "\t[1] combobox 'Country'"]
    lines += [f"\t\t[{i + 2}] option 'Land {i}'" for i in range(60)]
    lines += ["\t\t[90] option 'Norway'"]
    text = mapped("\n".join(lines), "Choose Norway as country")
    assert "[90] Norway" in text and "49 more" in text


def test_equal_buttons_are_told_apart_by_what_they_belong_to() -> None:
    lines = ["RootWebArea 'Shop'"]
    for number, name in enumerate(("Green lamp with shade", "Red chair made of oak")):
        lines += [f"\t[{number}1] link '{name}'", "\tStaticText '$5'"]
        lines += [f"\t[{number}2] button 'Add to Cart'"]
    text = mapped("\n".join(lines), "Add the red chair to the cart")
    assert '[12] button: "Add to Cart (Red chair made of oak)"' in text


def test_actions_on_hidden_elements_are_left_out_and_others_stay() -> None:
    lines = ["RootWebArea 'Links'", *(f"\t[a{i}] link 'word{i}'" for i in range(20))]
    actions = (*(f"click('a{i}')" for i in range(20)), "scroll(0, 100)", "go_back()")
    observation = Observation(text="\n".join(lines), actions=actions)
    kept = RuleMapper().map(observation, "click word7").actions
    assert kept is not None
    assert {"click('a7')", "scroll(0, 100)", "go_back()"} <= set(kept)
    assert len(kept) < len(actions)


def test_an_error_at_the_end_of_a_very_long_page_survives() -> None:  # CTX-07
    lines = ["RootWebArea 'Catalogue'", *(f"\t[{i}] link 'Item {i} of many'" for i in range(1500))]
    lines += ["\t[9001] alert ''", "\t\tStaticText 'Your session has expired.'"]
    lines += ["\t[9002] button 'Sign in'"]
    page = "\n".join(lines)
    assert len(page) > 40_000
    text = mapped(page, "Sign in again")
    assert "Message: Your session has expired." in text and "[9002] button" in text
    assert len(text) < 2000


def test_words_in_angle_brackets_make_no_page() -> None:
    for text in ("You can search[<keywords>] here.", "3 < a and b > 2", "Type <b> to go back."):
        assert read_page(text) is None


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"min_elements must be in 1\.\.max_elements \(2\); got 3"
    ):
        AbstractionSettings(min_elements=3, max_elements=2)
    with pytest.raises(ConfigError, match="max_texts must be at least 0; got -1"):
        AbstractionSettings(max_texts=-1)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.text(max_size=60))
def test_any_text_is_mapped_without_an_error(text: str, task: str) -> None:
    kinds: tuple[Kind, ...] = ("auto", "axtree", "html", "dom", "shop")
    for kind in kinds:
        RuleMapper(kind=kind).map(Observation(text=text), task)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("abc '\"[]\\:,", max_size=12), min_size=1, max_size=12))
def test_every_id_shown_is_an_id_of_the_page(names: list[str]) -> None:
    lines = ["RootWebArea 'x'", *(f"\t[{i + 100}] button {name!r}" for i, name in enumerate(names))]
    page = read_page("\n".join(lines))
    assert page is not None
    assert [e.id for e in page.elements] == [str(i + 100) for i in range(len(names))]
