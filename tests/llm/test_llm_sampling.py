from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.llm.sampling import BELOW_ONE, Sampler, invert, uniforms

CPU = torch.device("cpu")


@given(st.integers(-(2**63), 2**64), st.integers(1, 40), st.integers(1, 40))
def test_a_longer_stream_starts_with_the_shorter_one(seed: int, first: int, more: int) -> None:
    assert np.array_equal(uniforms(seed, first + more)[:first], uniforms(seed, first))


def test_sampled_frequencies_are_the_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.0, 0.2, 0.3])
    count = 4000
    sampler = Sampler([1.0] * count, range(count), [1] * count, device=CPU)
    ids, logprobs = sampler.pick(probabilities.log().expand(count, 4), 0)
    shares = np.bincount(ids.numpy(), minlength=4) / count
    np.testing.assert_allclose(shares, probabilities.numpy(), atol=0.03)
    assert shares[1] == 0
    np.testing.assert_allclose(logprobs.exp().numpy(), probabilities[ids].numpy(), rtol=1e-5)


def test_logprobs_are_of_the_tempered_distribution() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    ids, logprobs = Sampler([0.5], [3], [1], device=CPU).pick(logits, 0)
    expected = torch.log_softmax(logits / 0.5, dim=-1)[0, ids[0]]
    torch.testing.assert_close(logprobs[0], expected)


def test_greedy_and_sampled_sequences_share_a_batch() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.5]]).expand(400, 3)
    temperatures = [0.0, 1.0] * 200
    ids, _ = Sampler(temperatures, range(400), [1] * 400, device=CPU).pick(logits, 0)
    assert set(ids[::2].tolist()) == {1}
    assert set(ids[1::2].tolist()) == {0, 1, 2}


def test_keeping_some_sequences_keeps_their_random_numbers() -> None:
    logits = torch.zeros(6, 1000)
    sampler = Sampler([1.0] * 6, range(6), [5] * 6, device=CPU)
    before = sampler.pick(logits, 3).ids_B
    order = torch.tensor([4, 1, 2])
    sampler.keep(order)
    assert torch.equal(sampler.pick(logits[:3], 3).ids_B, before[order])


def test_the_largest_draw_never_picks_an_impossible_token() -> None:
    logits = torch.full((1, 50), float("-inf"))
    logits[:, :3] = torch.tensor([0.1, 0.7, 0.3])
    logprobs = torch.log_softmax(logits, dim=-1)
    assert invert(logprobs, torch.tensor([BELOW_ONE])).item() == 2
    assert invert(logprobs, torch.tensor([0.0])).item() == 0
