"""GRPO and PPO from groups of rollouts to parameters."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch
from rl_fakes import (
    TASK,
    make_group,
    make_learner,
    make_rollout,
    moved,
    parameters,
    random_completions,
    turn,
)

from dreamgym.errors import ConfigError
from dreamgym.rl.algorithm import ALGORITHMS, Algorithm, make_algorithm
from dreamgym.rl.grpo import GRPO, GRPOConfig
from dreamgym.rl.learner import LearnerConfig
from dreamgym.rl.optim import OptimConfig
from dreamgym.rl.ppo import PPO, PPOConfig, whiten
from dreamgym.types import Completion, RolloutGroup, StopReason

VALUES = LearnerConfig(value_head=True)


def test_alg_01_dead_groups_are_counted_and_move_nothing() -> None:
    learner = make_learner()
    before = parameters(learner)
    groups = [make_group([0, 0, 0, 0], seed=1), make_group([1, 1, 1, 1], seed=2)]
    result = GRPO().update(learner, groups)
    assert (result.num_samples, result.num_steps) == (0, 0)
    assert result.metrics["groups/all_fail"] == 1
    assert result.metrics["groups/all_pass"] == 1
    assert "groups/informative" not in result.metrics
    assert moved(before, parameters(learner)) == 0.0
    # kept in the batch, they still have no policy gradient
    kept = GRPO(GRPOConfig(dead_groups="keep")).update(learner, groups)
    assert kept.num_samples == 8
    assert kept.metrics["update/gradient_norm"] == 0.0
    assert all(math.isfinite(v) for v in kept.metrics.values())


def test_alg_02_dropping_dead_groups_leaves_the_gradient_of_the_live_one() -> None:
    live, dead = make_group([1, 0, 0, 1], seed=3), make_group([0, 0, 0], seed=4)
    states = []
    for groups, mode in (([live], "drop"), ([live, dead], "drop"), ([live, dead], "keep")):
        learner = make_learner()
        learner.freeze_reference()
        learner.sft_step([s for g in groups[:1] for s in GRPO().samples([g])[0]])
        algorithm = GRPO(GRPOConfig(kl_coef=0.04, dead_groups=mode))  # type: ignore[arg-type]
        algorithm.update(learner, groups)
        states.append(parameters(learner))
    assert moved(states[0], states[1]) == 0.0
    assert moved(states[0], states[2]) > 0


def test_alg_05_a_group_size_of_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="GRPO needs group size >= 2"):
        GRPOConfig(group_size=1)
    with pytest.raises(ConfigError, match="group size"):
        make_algorithm("grpo", group_size=1)


def test_alg_09_an_unscorable_rollout_is_left_out_and_counted() -> None:
    group = make_group([1, None, 0, 0], seed=5)
    samples, counts = GRPO().samples([group])
    assert {s.rollout_id for s in samples} == {"r5-0", "r5-2", "r5-3"}
    assert max(a for s in samples for a in s.advantages) == pytest.approx(1.1547, abs=1e-4)
    assert counts["groups/unscorable_rollouts"] == 1
    result = GRPO().update(make_learner(), [group])
    assert all(math.isfinite(v) for v in result.metrics.values())


def test_alg_13_long_failures_do_not_outweigh_short_successes() -> None:
    """One row per turn: shares make both trajectories weigh the same in the trajectory mean."""
    success = [turn([1], [2], restart=i > 0) for i in range(2)]
    failure = [turn([1], [3], restart=i > 0) for i in range(8)]
    group = RolloutGroup(
        task=TASK,
        rollouts=(
            make_rollout(success, reward=1.0, name="won"),
            make_rollout(failure, reward=0.0, name="lost"),
        ),
    )
    samples, _ = GRPO().samples([group])
    by_name = {"won": 0.0, "lost": 0.0}
    for sample in samples:
        by_name[sample.rollout_id] += sample.weight
    assert by_name == {"won": pytest.approx(1.0), "lost": pytest.approx(1.0)}
    assert len(samples) == 10
    advantages = {s.rollout_id: max(s.advantages, key=abs) for s in samples}
    assert advantages["won"] == pytest.approx(0.7071, abs=1e-4)
    assert advantages["lost"] == pytest.approx(-0.7071, abs=1e-4)


def test_ctx_05_a_cut_rollout_stays_in_the_baseline_but_is_not_trained() -> None:
    cut = msgspec.structs.replace(turn([1, 2], [3, 4, 5]), finish="length")
    rollouts = (
        make_rollout([turn([1, 2], [3, 4])], reward=1.0, name="whole"),
        make_rollout([cut], reward=0.0, name="cut"),
    )
    algorithm = GRPO(GRPOConfig(mask_truncated=True, scale="mean"))
    samples, _ = algorithm.samples([RolloutGroup(task=TASK, rollouts=rollouts)])
    assert [s.rollout_id for s in samples] == ["whole"]
    assert max(samples[0].advantages) == 0.5
    result = algorithm.update(make_learner(), [RolloutGroup(task=TASK, rollouts=rollouts)])
    assert result.num_tokens == 2


def success_token_group(learner_seed: int, step: int, token_rates: list[float]) -> RolloutGroup:
    """Return a group in which a rollout succeeds if its one sampled token is even."""
    generator = torch.Generator().manual_seed(learner_seed * 1000 + step)
    drawn = torch.multinomial(
        torch.tensor(token_rates), 16, replacement=True, generator=generator
    ).tolist()
    rollouts = tuple(
        make_rollout(
            [
                Completion(
                    text="",
                    context_ids=(1, 2, 3),
                    token_ids=(token,),
                    logprobs=(math.log(token_rates[token]),),
                )
            ],
            reward=float(token % 2 == 0),
            name=f"{step}-{i}",
        )
        for i, token in enumerate(drawn)
    )
    return RolloutGroup(task=TASK, rollouts=rollouts)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_learns_a_one_token_task(name: str) -> None:
    algorithm: Algorithm = make_algorithm(name)
    config = LearnerConfig(value_head=algorithm.needs_values, optim=OptimConfig(learning_rate=1e-2))
    learner = make_learner(config)

    def rates() -> list[float]:
        with torch.no_grad():
            logits = learner.model(input_ids=torch.tensor([[1, 2, 3]])).logits[0, -1]
        probabilities: list[float] = torch.softmax(logits, -1).tolist()
        return probabilities

    before = sum(rates()[::2])
    for step in range(25):
        algorithm.update(learner, [success_token_group(0, step, rates())])
    assert sum(rates()[::2]) > max(0.9, before)


def test_ppo_needs_a_value_head_and_says_so() -> None:
    with pytest.raises(ConfigError, match="value_head=True"):
        PPO().update(make_learner(), [make_group([1, 0], seed=6)])


def test_ppo_learns_from_single_rollouts_and_its_values_move_to_the_returns() -> None:
    learner = make_learner(LearnerConfig(value_head=True, optim=OptimConfig(learning_rate=1e-2)))
    algorithm = PPO(PPOConfig(value_clip=None))
    groups = [make_group([1.0], seed=7), make_group([0.0], seed=8)]
    samples, _ = algorithm.samples(learner, groups)
    for _ in range(20):
        algorithm.update(learner, groups)
    found = learner.values(samples)
    means = [
        sum(v for v, m in zip(row, s.mask, strict=True) if m) / sum(s.mask)
        for row, s in zip(found, samples, strict=True)
    ]
    assert means[0] > 0.7
    assert means[1] < 0.3


def test_ppo_06_only_stops_outside_the_task_are_bootstrapped() -> None:
    learner = make_learner(VALUES)
    assert learner.value_head is not None
    with torch.no_grad():
        learner.value_head.bias.fill_(0.6)
    algorithm = PPO(PPOConfig(whiten=False))
    found = {}
    for stop in (StopReason.TERMINATED, StopReason.TURN_LIMIT, StopReason.CONTEXT):
        rollout = make_rollout([turn([1], [2, 3])], reward=0.0, stop=stop)
        samples, _ = algorithm.samples(learner, [RolloutGroup(task=TASK, rollouts=(rollout,))])
        found[stop] = samples[0].advantages
    assert found[StopReason.TERMINATED] == pytest.approx((0, -0.6, -0.6))
    assert found[StopReason.TURN_LIMIT] == pytest.approx((0, -0.6, -0.6))
    assert found[StopReason.CONTEXT] == pytest.approx((0, 0, 0))


def test_ppo_kl_in_the_reward_is_k1_per_token() -> None:
    learner = make_learner(VALUES)
    learner.freeze_reference()
    rollout = make_rollout([turn([1], [2, 3], logprob=-1.0)], reward=1.0)
    group = RolloutGroup(task=TASK, rollouts=(rollout,))
    algorithm = PPO(PPOConfig(kl_coef=0.1, whiten=False))
    (sample,), metrics = algorithm.samples(learner, [group])
    reference = learner.reference_logprobs([sample])[0]
    last = 1.0 - 0.1 * (-1.0 - reference[2])
    assert sample.advantages[2] == pytest.approx(last)
    assert sample.advantages[1] == pytest.approx(last - 0.1 * (-1.0 - reference[1]))
    mean = 0.1 * (-2.0 - reference[1] - reference[2]) / 2
    assert metrics["kl/reward_penalty"] == pytest.approx(mean)


def test_a_detached_value_trunk_leaves_the_policy_alone() -> None:
    group = RolloutGroup(task=TASK, rollouts=(make_rollout(random_completions(9, 2), reward=1.0),))
    moves = []
    for trunk in ("detached", "shared"):
        learner = make_learner(LearnerConfig(value_head=True, value_trunk=trunk))
        assert learner.value_head is not None
        with torch.no_grad():
            learner.value_head.weight.fill_(0.1)
        algorithm = PPO(PPOConfig(whiten=False, epochs=1, minibatches=1))
        samples, _ = algorithm.samples(learner, [group])
        flat = [msgspec.structs.replace(s, advantages=(0.0,) * len(s.mask)) for s in samples]
        before = parameters(learner)
        learner.update(flat, algorithm.objective)
        moves.append(moved(before, parameters(learner)))
    assert moves[0] == 0.0
    assert moves[1] > 0


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_sampled_tokens() -> None:
    learner = make_learner(VALUES)
    groups = [make_group([1.0, 0.0, 0.5], seed=10)]
    samples, _ = PPO(PPOConfig(whiten=False)).samples(learner, groups)
    numbers = torch.tensor(
        [a for s in whiten(samples) for a, m in zip(s.advantages, s.mask, strict=True) if m],
        dtype=torch.float64,
    )
    assert float(numbers.mean()) == pytest.approx(0.0, abs=1e-9)
    assert float(numbers.std()) == pytest.approx(1.0, abs=1e-6)


def test_unknown_names_and_options_say_what_was_meant() -> None:
    with pytest.raises(ConfigError, match="did you mean 'grpo'"):
        make_algorithm("grpp")
    with pytest.raises(ConfigError, match="did you mean 'clip_high'"):
        make_algorithm("grpo", clip_hihg=0.3)
    with pytest.raises(ConfigError, match="scale"):
        make_algorithm("grpo", scale="rank")
    with pytest.raises(ConfigError, match="k1"):
        make_algorithm("grpo", kl_coef=0.1, kl_kind="k1")
    with pytest.raises(ConfigError, match="fixed_length"):
        make_algorithm("ppo", aggregate="fixed")
