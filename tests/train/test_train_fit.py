"""Fitting the experience model: what is learned, from which examples, and exact resuming."""

from __future__ import annotations

import pytest
import torch
from household_worlds import COMPACT, annotated, tokenizer

from dreamgym.dream.examples import ChatExample, ExampleConfig, ExampleStream
from dreamgym.fit import FitConfig, TokenStream, encode_example, train_on_stream
from dreamgym.llm.base import Message
from dreamgym.llm.render import Renderer
from dreamgym.llm.tiny import build_model
from dreamgym.rl.learner import Learner, LearnerConfig
from dreamgym.rl.optim import OptimConfig
from dreamgym.rl.sft import SftExample

EXTRA = ChatExample(
    messages=(Message("user", "write a scenario"),), target="desk 1: surface: pen 1", kind="write"
)


def renderer() -> Renderer:
    return Renderer(tokenizer())


def parts(example: SftExample) -> tuple[list[int], list[int]]:
    """Return (ids not learned, ids learned)."""
    pairs = list(zip(example.token_ids, example.mask, strict=True))
    return [i for i, m in pairs if not m], [i for i, m in pairs if m]


def test_the_mask_covers_exactly_the_answer_and_its_end_token() -> None:
    render = renderer()
    source = ExampleStream(annotated(), COMPACT, ExampleConfig(), seed=0)
    for index in range(20):
        chat = source.draw(index)
        example = encode_example(render, chat)
        prompt, answer = parts(example)
        assert example.mask == (0,) * len(prompt) + (1,) * len(answer)
        assert prompt == render.first(list(chat.messages))
        assert answer[-1] == render.end_of_turn_id
        assert render.decode(answer) == chat.target
        assert render.end_of_turn_id not in answer[:-1]


def test_after_a_stated_conflict_only_the_last_answer_is_learned() -> None:
    render = renderer()
    config = ExampleConfig(conflict_share=1.0)
    source = ExampleStream(annotated(), COMPACT, config, seed=0)
    asked = [chat for chat in map(source.draw, range(20)) if len(chat.messages) == 3]
    assert asked
    for chat in asked:
        prompt, answer = parts(encode_example(render, chat))
        wrong = render.completion(chat.messages[1].content)
        joined = " ".join(map(str, prompt))
        assert " ".join(map(str, wrong)) in joined, "the wrong answer is read"
        assert render.decode(answer) == chat.target, "and not learned"


def stream(config: FitConfig, extra: list[ChatExample] | None = None) -> TokenStream:
    return TokenStream(annotated(), extra or [], renderer(), COMPACT, config)


def test_a_batch_depends_only_on_the_seed_and_its_number() -> None:
    config = FitConfig(examples_per_step=3)
    one, other = stream(config), stream(config)
    batches = [one.batch(i) for i in range(4)]
    assert [other.batch(i) for i in (3, 1)] == [batches[3], batches[1]]
    assert all(len(batch) == 3 for batch in batches)
    assert stream(FitConfig(examples_per_step=3, seed=1)).batch(0) != batches[0]
    regrouped = stream(FitConfig(examples_per_step=6)).batch(0)
    assert regrouped == [*batches[0], *batches[1]]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_other_modes_come_in_their_share(share: float) -> None:
    config = FitConfig(examples_per_step=200, extra_share=share)
    wanted = encode_example(renderer(), EXTRA)
    found = stream(config, [EXTRA]).batch(0).count(wanted)
    assert found / 200 == pytest.approx(share, abs=0.1)
    assert wanted not in stream(config).batch(0)


def make_learner() -> Learner:
    model = build_model(tokenizer(), hidden=16, heads=2, layers=1, intermediate=24, max_context=512)
    return Learner(model, tokenizer(), LearnerConfig(optim=OptimConfig(learning_rate=5e-2)))


def test_fitting_lowers_the_loss_and_reports_the_last_steps() -> None:
    config = FitConfig(steps=24, examples_per_step=4)
    losses: list[float] = []
    mean = train_on_stream(
        make_learner(),
        stream(config).batch,
        config=config,
        on_step=lambda step, loss: losses.append(loss),
    )
    assert len(losses) == 24
    assert mean == pytest.approx(sum(losses[-20:]) / 20)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_res_01_fitting_goes_on_exactly_from_a_step() -> None:
    config = FitConfig(steps=6, examples_per_step=2)
    straight, parts = make_learner(), make_learner()
    train_on_stream(straight, stream(config).batch, config=config)
    seen: list[int] = []

    def until_3(step: int, loss: float) -> None:
        seen.append(step)
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_on_stream(parts, stream(config).batch, config=config, on_step=until_3)
    resumed = make_learner()
    resumed.load_state_dict({k: v.clone() for k, v in parts.state_dict().items()})
    train_on_stream(resumed, stream(config).batch, config=config, start=3)
    assert seen == [0, 1, 2]
    for one, other in zip(straight.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)


class Rates:
    """Stands where a learner would and keeps the learning rates it was given."""

    config = LearnerConfig(optim=OptimConfig(learning_rate=1.0))

    def __init__(self) -> None:
        self.rates: list[float] = []

    def sft_step(self, examples: list[SftExample], *, learning_rate: float) -> float:
        self.rates.append(learning_rate)
        return 1.0


def test_the_learning_rate_warms_up_and_then_falls_to_almost_nothing() -> None:
    learner = Rates()
    train_on_stream(learner, lambda index: [], config=FitConfig(steps=100))  # type: ignore[arg-type]
    rates = learner.rates
    assert rates[:20] == sorted(rates[:20])
    assert rates[19:] == sorted(rates[19:], reverse=True)
    assert max(rates) <= 1.0
    assert rates[0] == pytest.approx(0.05)
    assert 0.02 <= rates[-1] < 0.04


def test_no_steps_is_no_training() -> None:
    learner = Rates()
    assert train_on_stream(learner, lambda i: [], config=FitConfig(), steps=0) == 0.0  # type: ignore[arg-type]
    assert learner.rates == []
