"""Supervised fine-tuning: batches, resuming, learning."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_fakes import VOCABULARY, make_learner, moved, parameters

from dreamgym.errors import ConfigError, DataError
from dreamgym.rl.sft import SFTConfig, SftExample, batches, fit_sft, plan_epoch
from dreamgym.seeds import derive_random


def copy_examples(count: int) -> list[SftExample]:
    """Return sequences `x y SEP x y`, of which the second half is to be learned."""
    rng = derive_random("copy", 0)
    out = []
    for _ in range(count):
        size = rng.randint(1, 4)
        word = [rng.randrange(3, 9) for _ in range(size)]
        out.append(SftExample(token_ids=(*word, 1, *word), mask=(0,) * (size + 1) + (1,) * size))
    return out


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 80))
def test_an_epoch_holds_every_example_once_within_the_budget(
    lengths: list[int], budget: int
) -> None:
    plan = plan_epoch(lengths, budget, 0, 0)
    assert sorted(i for batch in plan for i in batch) == list(range(len(lengths)))
    assert all(len(b) == 1 or sum(lengths[i] for i in b) <= budget for b in plan)
    assert plan == plan_epoch(lengths, budget, 0, 0)


def test_epochs_differ_and_any_step_can_be_reached_directly() -> None:
    examples = copy_examples(20)
    straight = batches(lambda epoch: examples, 30, seed=1)
    first = [next(straight) for _ in range(25)]
    later = batches(lambda epoch: examples, 30, seed=1, start=17)
    assert [next(later) for _ in range(8)] == first[17:]
    per_epoch = len(plan_epoch([len(e.token_ids) for e in examples], 30, 1, 0))
    assert first[:per_epoch] != first[per_epoch : 2 * per_epoch]


def test_res_01_five_steps_and_five_more_equal_ten(tmp_path: Path) -> None:
    examples = copy_examples(12)
    config = SFTConfig(steps=10, batch_tokens=40, warmup_steps=2, learning_rate=5e-3)
    straight = make_learner()
    whole = fit_sft(straight, examples, config)
    first = make_learner()
    half = fit_sft(first, examples, config, stop_after=5)
    first.save(tmp_path)
    second = make_learner()
    second.load(tmp_path)
    rest = fit_sft(second, examples, config, state=half.state)
    assert half.losses + rest.losses == whole.losses
    assert (half.state.step, rest.state.step) == (5, 10)
    assert moved(parameters(straight), parameters(second)) == 0.0


def test_a_small_model_learns_and_the_callbacks_see_it() -> None:
    learner = make_learner()
    train = copy_examples(60)
    seen: list[tuple[int, float]] = []
    result = fit_sft(
        learner,
        train,
        SFTConfig(steps=40, batch_tokens=200, learning_rate=2e-2, warmup_steps=4, eval_every=20),
        progress=lambda step, loss: seen.append((step, loss)),
        evaluate=lambda step: {"loss": learner.sft_loss(train[:10])},
    )
    assert [step for step, _ in seen] == list(range(1, 41))
    assert result.losses[0] > 2.5
    assert result.losses[-1] < 1.5
    assert [step for step, _ in result.evaluations] == [20, 40]
    assert result.evaluations[1][1]["loss"] < result.evaluations[0][1]["loss"]


def test_a_wall_clock_limit_ends_the_run() -> None:
    result = fit_sft(make_learner(), copy_examples(8), SFTConfig(seconds=0.2, batch_tokens=20))
    assert 0 < result.state.step < 2000
    assert result.state.seconds < 5


def test_a_provider_may_draw_fresh_examples_each_epoch() -> None:
    asked: list[int] = []

    def provide(epoch: int) -> list[SftExample]:
        asked.append(epoch)
        return [SftExample(token_ids=(epoch % VOCABULARY, 1), mask=(0, 1))]

    fit_sft(make_learner(), provide, SFTConfig(steps=3, batch_tokens=8))
    assert asked == [0, 1, 2, 3]


def test_bad_input_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="set steps or seconds"):
        SFTConfig()
    with pytest.raises(DataError, match="no example"):
        fit_sft(make_learner(), [], SFTConfig(steps=1))
    untrained = SftExample(token_ids=(1, 2), mask=(0, 0))
    with pytest.raises(DataError, match="no example"):
        fit_sft(make_learner(), [untrained], SFTConfig(steps=1))
