from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from curriculum_fakes import generated_task, group, proposing, seed_task, template_key, validate
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym.curriculum.generate import TaskGenerator
from dreamgym.curriculum.sampler import (
    CurriculumSampler,
    TaskSampler,
    UniformSampler,
    make_sampler,
)
from dreamgym.errors import ConfigError, DataError, UserError
from dreamgym.llm.scripted import ScriptedChat
from dreamgym.types import Task


def seeds(count: int) -> list[Task]:
    return [seed_task(n) for n in range(count)]


def with_pool(num_seeds: int, num_generated: int, **options: Any) -> CurriculumSampler:
    sampler = CurriculumSampler(seeds(num_seeds), seed=0, **options)
    sampler.add_generated(generated_task(n) for n in range(num_generated))
    return sampler


def test_cur_06_at_most_lambda_of_a_batch_is_generated_and_few_seeds_repeat() -> None:
    sampler = with_pool(3, 100, max_generated_share=0.5, pool_size=100)
    batch = sampler.next_batch(16)
    assert len(batch) == 16
    assert sum(task.generated for task in batch) == 8
    assert Counter(t.id for t in batch if not t.generated).most_common()[0][1] == 3
    assert sampler.metrics()["generated_share"] == 0.5


@settings(max_examples=80, deadline=None)
@given(
    st.floats(0, 1), st.integers(1, 40), st.integers(1, 5), st.integers(0, 30), st.integers(1, 20)
)
def test_share_of_generated_tasks_never_exceeds_lambda(
    share: float, n: int, num_seeds: int, num_generated: int, pool_size: int
) -> None:
    sampler = with_pool(num_seeds, num_generated, max_generated_share=share, pool_size=pool_size)
    for _ in range(3):
        batch = sampler.next_batch(n)
        generated = [task for task in batch if task.generated]
        assert len(batch) == n
        assert len(generated) <= share * n + 1e-6
        assert len({task.id for task in generated}) == len(generated)
        assert len(sampler.pool) <= pool_size


def test_whole_shares_are_not_lost_to_rounding() -> None:
    sampler = with_pool(3, 64, max_generated_share=0.29)
    assert sum(task.generated for task in sampler.next_batch(100)) == 29


def test_uniform_passes_over_all_tasks_before_any_repeats() -> None:
    sampler = UniformSampler(seeds(5), seed=1)
    played = [task.id for _ in range(5) for task in sampler.next_batch(3)]
    for start in (0, 5, 10):
        assert len(set(played[start : start + 5])) == 5


def test_tasks_of_high_variance_are_played_more_but_none_is_given_up() -> None:
    sampler = CurriculumSampler(seeds(10), seed=0)
    for task in seeds(10):
        rewards = [1.0, 0.0] if task.id == "seed-4" else [0.0, 0.0]
        sampler.observe(group(task, rewards))
    counts = Counter(task.id for _ in range(300) for task in sampler.next_batch(1))
    assert counts["seed-4"] > 2.5 * max(counts[f"seed-{n}"] for n in range(10) if n != 4)
    assert len(counts) == 10


def test_cur_09_uniform_and_variance_are_both_there_and_count_tokens_alike() -> None:
    samplers: list[TaskSampler] = [
        make_sampler(name, seeds(4), seed=7) for name in ("uniform", "variance")
    ]
    for sampler in samplers:
        assert len(sampler.next_batch(4)) == 4
        sampler.observe(group(seed_task(), [1.0, 0.0]))
    assert [sampler.metrics()["tokens"] for sampler in samplers] == [6.0, 6.0]
    with pytest.raises(ConfigError, match="did you mean 'uniform'"):
        make_sampler("unifrom", seeds(1), seed=0)
    with pytest.raises(ConfigError, match="poolsize"):
        make_sampler("variance", seeds(1), seed=0, poolsize=3)


def test_cur_10_solved_for_real_but_never_in_the_dream_is_flagged_not_called_hard() -> None:
    sampler = CurriculumSampler(seeds(3), seed=0, disagree_after=8)
    for task in seeds(2):
        sampler.observe(group(task, [0.0] * 8))
    assert sampler.disagreements() == []
    sampler.report_real("seed-0", True)
    sampler.report_real("seed-1", False)
    assert sampler.disagreements() == ["seed-0"]
    assert sampler.metrics()["disagreements"] == 1.0
    sampler.observe(group(seed_task(0), [1.0, 0.0]))  # the dream can do it after all
    assert sampler.disagreements() == []


def test_generated_tasks_that_keep_teaching_nothing_are_retired_and_stay_out() -> None:
    sampler = with_pool(2, 2, retire_after=2)
    for _ in range(2):
        sampler.observe(group(generated_task(0), [1.0, 1.0, 1.0]))
        sampler.observe(group(seed_task(0), [1.0, 1.0, 1.0]))
        sampler.observe(group(generated_task(1), [1.0, 0.0, 1.0]))
    assert [task.id for task in sampler.pool] == ["gen-1"]
    assert sampler.add_generated([generated_task(0)]) == 0
    assert {t.id for t in sampler.next_batch(8)} >= {"seed-0", "seed-1"}  # seeds never retire
    sampler.observe(group(generated_task(0), [1.0, 0.0]))  # arrives late: nothing to learn
    assert sampler.metrics()["retired"] == 1.0


def test_a_full_pool_keeps_its_most_valuable_tasks() -> None:
    sampler = with_pool(1, 3, pool_size=3)
    for number, rewards in enumerate(([1.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0])):
        sampler.observe(group(generated_task(number), rewards))
    sampler.add_generated([generated_task(9)])
    assert [task.id for task in sampler.pool] == ["gen-0", "gen-2", "gen-9"]


def variations(instruction: str) -> list[str]:
    place = {"shelf": "desk", "desk": "fridge"}.get(instruction.rstrip(".").split()[-1], "shelf")
    return [f"put a pen in {place}.", f"put a bowl in {place}."]


def growing() -> CurriculumSampler:
    generator = TaskGenerator(
        ScriptedChat(proposing(variations, pick=2)), validate=validate,
        template_key=template_key, evaluation_tasks=[],
    )  # fmt: skip
    tasks = [seed_task(0), seed_task(1, "put a mug in desk."), seed_task(2, "put a pen in shelf.")]
    return CurriculumSampler(tasks, seed=5, generator=generator, max_generated_share=0.5, parents=1)


def play(sampler: CurriculumSampler, iterations: range) -> list[list[str]]:
    """Return the batches; the reward pattern follows from task and iteration."""
    batches = []
    for i in iterations:
        batch = sampler.next_batch(4)
        batches.append([task.id for task in batch])
        for task in batch:
            wins = (len(task.instruction) + i) % 3
            sampler.observe(group(task, [1.0] * wins + [0.0] * (4 - wins)))
        sampler.report_real("seed-1", True)
        asyncio.run(sampler.grow())
    return batches


def test_res_04_resumed_curriculum_goes_on_as_if_never_stopped() -> None:
    straight = growing()
    expected = play(straight, range(8))
    assert any(task_id.startswith("generated-") for batch in expected for task_id in batch)
    first = growing()
    start = play(first, range(3))
    state = json.loads(json.dumps(first.state_dict()))
    second = growing()
    second.load_state_dict(state)
    assert start + play(second, range(3, 8)) == expected
    assert second.pool == straight.pool
    assert second.metrics() == straight.metrics()
    assert json.dumps(second.state_dict()) == json.dumps(straight.state_dict())


def test_res_04_resumed_uniform_sampler_goes_on_as_if_never_stopped() -> None:
    straight, stopped = UniformSampler(seeds(7), seed=3), UniformSampler(seeds(7), seed=3)
    stopped.next_batch(5)
    straight.next_batch(5)
    again = UniformSampler(seeds(7), seed=99)
    again.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    for _ in range(4):
        assert again.next_batch(5) == straight.next_batch(5)


@pytest.mark.parametrize("name", ["uniform", "variance"])
def test_a_state_of_other_seed_tasks_is_refused(name: str) -> None:
    state = make_sampler(name, seeds(3), seed=0).state_dict()
    with pytest.raises(DataError, match="other seed tasks"):
        make_sampler(name, seeds(4), seed=0).load_state_dict(state)


@pytest.mark.parametrize("name", ["uniform", "variance"])
def test_evaluation_tasks_never_become_seeds(name: str) -> None:
    with pytest.raises(UserError, match="'seed-3' is an evaluation task"):
        make_sampler(name, [*seeds(3), seed_task(3, split="valid_unseen")], seed=0)
    with pytest.raises(UserError, match="'seed-1' is an evaluation task"):
        make_sampler(name, seeds(3), seed=0, forbidden_tasks={"seed-1"})
    with pytest.raises(UserError, match="at least one seed task"):
        make_sampler(name, [], seed=0)
    with pytest.raises(UserError, match="distinct ids"):
        make_sampler(name, [seed_task(1), seed_task(1)], seed=0)


def test_only_marked_variations_of_training_tasks_enter_the_pool() -> None:
    sampler = with_pool(1, 0, forbidden_tasks={"gen-5"})
    with pytest.raises(UserError, match="not marked as generated"):
        sampler.add_generated([seed_task(8)])
    with pytest.raises(UserError, match="evaluation task"):
        sampler.add_generated([generated_task(5)])


@pytest.mark.parametrize(
    "bad", [{"max_generated_share": 1.5}, {"pool_size": 0}, {"exploration": 0.0}]
)
def test_impossible_options_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make_sampler("variance", seeds(1), seed=0, **bad)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 task"):
        UniformSampler(seeds(1), seed=0).next_batch(0)
