"""The sentences of the page: what they claim and what they leave open."""

from __future__ import annotations

import doctest

import msgspec
import pytest
from report_run_folder import summary as full_summary

from dreamgym.report import wording
from dreamgym.report.data import DreamSummary, StageSuccess, Summary
from dreamgym.report.wording import gap_sentence, headline, interval, percent, points


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def summary_of(**stages: StageSuccess) -> Summary:
    return Summary(real_success=stages)


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(wording).failed == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 %"), (1.0, "100 %"), (0.999, "99.9 %"), (0.0042, "0.4 %"), (0.635, "64 %")],
)
def test_a_share_short_of_certain_never_reads_as_certain(value: float, text: str) -> None:
    assert plain(percent(value)) == text


def test_points_and_intervals_read_as_words() -> None:
    assert points(0.01) == "+1 point"
    assert points(0.001) == "0 points"
    assert plain(interval((0.588, 0.677))) == "59–68 %"


def test_the_headline_counts_games_and_real_transitions() -> None:
    summary = msgspec.convert(full_summary(), type=Summary)
    sentences = [plain(sentence) for sentence in headline(summary)]
    assert sentences == [
        "On n=400 games in rooms never seen, sampled success went from 21 % (warm start) to "
        "63 % after dreaming (0 real transitions in RL, 600 seen by the probe) and "
        "71 % after S2R (3,000 real transitions).",
        "The 95 % intervals before and after dreaming do not overlap.",
        "RL on real transitions alone (3,000 real transitions) reached 35 %.",
        "The 95 % intervals of S2R and this baseline do not overlap.",
    ]


def test_a_run_without_results_has_no_headline() -> None:
    assert headline(Summary()) == []
    assert headline(summary_of(dream=StageSuccess(n=400))) == []


def test_a_first_result_alone_is_no_change() -> None:
    (sentence,) = headline(summary_of(warm_start=StageSuccess(sampled=0.2, n=100)))
    assert plain(sentence).endswith("sampled success is 20 % (warm start).")


def test_overlapping_intervals_settle_nothing() -> None:
    summary = summary_of(
        warm_start=StageSuccess(sampled=0.5, n=20, ci95=(0.30, 0.70)),
        dream=StageSuccess(sampled=0.6, n=20, ci95=(0.39, 0.78)),
    )
    assert "does not settle whether they differ" in headline(summary)[1]


def test_different_numbers_of_games_are_not_given_as_one() -> None:
    summary = summary_of(
        warm_start=StageSuccess(sampled=0.5, n=100), dream=StageSuccess(sampled=0.6, n=400)
    )
    assert headline(summary)[0].startswith("On games in rooms never seen")


def test_evl_07_dream_and_real_are_subtracted_and_never_averaged() -> None:
    summary = Summary(
        real_success={"dream": StageSuccess(sampled=0.30, n=400)},
        dream=DreamSummary(final_success=0.90),
    )
    sentence = plain(gap_sentence(summary))
    assert "claimed 90 %" in sentence
    assert "reached 30 %" in sentence
    assert "+60 points" in sentence
    assert "60 %" not in sentence
    assert "30 %" in plain(headline(summary)[0])
    assert "90 %" not in plain(headline(summary)[0])


def test_evl_07_there_is_no_gap_without_a_real_number() -> None:
    assert gap_sentence(Summary(dream=DreamSummary(final_success=0.9))) == ""
