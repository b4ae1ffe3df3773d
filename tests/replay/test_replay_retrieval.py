from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_fakes import TableEncoder, transition

from dreamgym.errors import ConfigError
from dreamgym.replay.buffer import Query, ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.types import Origin


def memory_buffer(capacity: int = 100) -> ReplayBuffer:
    return ReplayBuffer(None, HashedNgramEncoder(dim=64), capacity=capacity)


def test_the_most_similar_transitions_come_first_with_cosine_one_for_the_same_text() -> None:
    buffer = memory_buffer()
    buffer.add(transition(n, action=f"open drawer {n}") for n in range(20))
    found = buffer.query("You stand at place 7.", "open drawer 7", k=3, suite="household")
    assert found[0].transition.action == "open drawer 7"
    assert found[0].similarity == pytest.approx(1.0, abs=1e-5)
    similarities = [neighbour.similarity for neighbour in found]
    assert similarities == sorted(similarities, reverse=True) and len(found) == 3


def test_similarity_is_the_weighted_mean_of_action_and_state() -> None:
    table = {"s": [1.0, 0.0], "t": [0.6, 0.8], "a": [0.0, 1.0], "b": [0.8, 0.6]}
    buffer = ReplayBuffer(None, TableEncoder(table, 2), capacity=9, action_weight=0.25)
    buffer.add([transition(state="s", action="a")])
    (found,) = buffer.query("t", "b", k=1, suite="household")
    assert found.similarity == pytest.approx(0.25 * 0.6 + 0.75 * 0.6)


def test_query_many_equals_single_queries() -> None:
    buffer = memory_buffer(capacity=500)
    rng = random.Random(3)
    words = ["mug", "pen", "desk", "shelf", "drawer", "open", "take", "heat"]
    buffer.add(
        transition(n, state=" ".join(rng.choices(words, k=5)), action=rng.choice(words))
        for n in range(300)
    )
    queries = [
        Query(state=" ".join(rng.choices(words, k=5)), action=rng.choice(words), suite="household")
        for _ in range(30)
    ]
    many = buffer.query_many(queries, k=4)
    for query, found in zip(queries, many, strict=True):
        alone = buffer.query(query.state, query.action, k=4, suite="household")
        assert [n.transition for n in alone] == [n.transition for n in found]


def test_copies_of_one_answer_do_not_fill_the_neighbours() -> None:
    buffer = memory_buffer()
    same = [transition(0, task=f"t{n}", state="s", action="open", answer="x") for n in range(10)]
    buffer.add([*same, transition(1, state="s", action="open", answer="y")])
    found = buffer.query("s", "open", k=5, suite="household")
    assert [n.transition.next_observation.text for n in found] == ["x", "y"]


def test_exp_14_only_the_same_suite_is_retrieved() -> None:
    buffer = memory_buffer()
    buffer.add([transition(suite="webshop"), transition(suite="household", state="far away")])
    found = buffer.query("You stand at place 0.", "open drawer", k=5, suite="household")
    assert [n.transition.suite for n in found] == ["household"]
    assert buffer.query("anything", "open drawer", k=5, suite="alfworld") == []


def test_emb_05_empty_text_is_similar_to_nothing_and_never_ranked_first() -> None:
    buffer = memory_buffer()
    buffer.add([transition(0, state="", action=""), transition(1), transition(2, state="")])
    found = buffer.query("You stand at place 1.", "open drawer", k=9, suite="household")
    assert [n.transition.step for n in found] == [1, 2]
    assert all(-1.0 <= n.similarity <= 1.0 for n in found)
    assert buffer.query("", "", k=5, suite="household") == []


def test_emb_05_a_text_with_a_zero_vector_is_never_retrieved() -> None:
    encoder = TableEncoder({"a": [-1.0, 0.0], "q": [1.0, 0.0]}, 2)
    buffer = ReplayBuffer(None, encoder, capacity=9)
    buffer.add([transition(0, state="zero", action="zero"), transition(1, state="a", action="a")])
    found = buffer.query("q", "q", k=5, suite="household")
    assert [n.transition.step for n in found] == [1]
    assert found[0].similarity == pytest.approx(-1.0)


def test_emb_06_fewer_items_than_k_and_an_empty_buffer() -> None:
    buffer = memory_buffer()
    assert buffer.query("s", "a", k=5, suite="household") == []
    buffer.add([transition(0), transition(1)])
    assert len(buffer.query("s", "open drawer", k=5, suite="household")) == 2
    with pytest.raises(ConfigError, match="k must be at least 1"):
        buffer.query("s", "a", k=0, suite="household")


def test_emb_07_the_query_task_is_excluded_by_id_and_by_near_text_and_counted() -> None:
    buffer = memory_buffer()
    buffer.add(
        [
            transition(0, task="T"),
            transition(1, task="copy", instruction="Place one mug onto the shelf"),
            transition(2, task="other", instruction="put a bowl in shelf."),
        ]
    )
    found = buffer.query(
        "You stand at place 0.", "open drawer", k=5, suite="household",
        exclude_task="T", exclude_near_duplicates_of="put a mug in shelf.",
    )  # fmt: skip
    assert [n.transition.task_id for n in found] == ["other"]
    metrics = buffer.metrics()
    assert (metrics["excluded/task"], metrics["excluded/near_duplicate"]) == (1.0, 1.0)


def test_emb_08_ties_keep_their_order_over_save_and_load(tmp_path: Path) -> None:
    encoder = HashedNgramEncoder(dim=64)
    buffer = ReplayBuffer(tmp_path, encoder, capacity=50)
    dream = [transition(n, state="s", origin=Origin.DREAM) for n in range(5)]
    real = [transition(n, state="s") for n in range(10, 15)]
    buffer.add([*dream, *real])
    before = [n.transition for n in buffer.query("s", "open drawer", k=10, suite="household")]
    assert before == [*real, *dream]
    again = ReplayBuffer(tmp_path, encoder, capacity=50)
    after = [n.transition for n in again.query("s", "open drawer", k=10, suite="household")]
    assert after == before


def test_buf_15_no_counter_decides_what_is_retrieved() -> None:
    buffer = memory_buffer()
    assert buffer.metrics()["mean_similarity"] == 0.0  # nothing retrieved yet: no 0/0
    buffer.add([transition(0, state="s", answer="failed")])
    for _ in range(5):
        buffer.query("s", "open drawer", k=1, suite="household")
    buffer.add([transition(1, state="s!", answer="never seen")])
    (found,) = buffer.query("s!", "open drawer", k=1, suite="household")
    assert found.transition.next_observation.text == "never seen"


def test_an_origin_can_be_asked_for() -> None:
    buffer = memory_buffer()
    buffer.add([transition(0), transition(1, origin=Origin.DREAM)])
    for origin in ("real", "dream"):
        found = buffer.query("s", "open drawer", k=5, suite="household", origin=origin)
        assert [n.transition.origin for n in found] == [origin]


episodes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=40
)


@settings(deadline=None, max_examples=60)
@given(episodes, st.integers(0, 3), st.integers(1, 8))
def test_retrieval_never_returns_the_querys_own_episode_or_task(
    logged: list[tuple[int, int, int, bool]], own: int, k: int
) -> None:
    buffer = memory_buffer()
    buffer.add(
        transition(
            step, task=f"t{task}", episode=f"e{episode}",
            origin=Origin.REAL if real else Origin.DREAM,
        )
        for task, episode, step, real in logged
    )  # fmt: skip
    state = "You stand at place 2."
    by_episode = buffer.query(state, "open drawer", k=k, suite="household",
                              exclude_episode=f"e{own}")  # fmt: skip
    assert f"e{own}" not in {n.transition.episode_id for n in by_episode}
    by_task = buffer.query(state, "open drawer", k=k, suite="household", exclude_task=f"t{own}")
    assert f"t{own}" not in {n.transition.task_id for n in by_task}
    assert len(by_task) <= k


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=80, unique=True), st.integers(1, 6))
def test_top_k_agrees_with_sorting_everything(numbers: list[int], k: int) -> None:
    encoder = HashedNgramEncoder(dim=64)
    buffer = ReplayBuffer(None, encoder, capacity=200, action_weight=0.5)
    rows = [transition(n, action=f"open drawer {n % 7}") for n in numbers]
    buffer.add(rows)
    found = buffer.query("You stand at place 13.", "open drawer 3", k=k, suite="household")
    s, a = encoder.encode(["You stand at place 13.", "open drawer 3"])
    states = encoder.encode([row.observation.text for row in rows]) @ s
    actions = encoder.encode([row.action for row in rows]) @ a
    expected = sorted((0.5 * states + 0.5 * actions).tolist(), reverse=True)[:k]
    assert [n.similarity for n in found] == pytest.approx(expected, abs=2e-5)


def test_a_query_over_a_full_buffer_is_fast_enough_for_every_dreamt_step() -> None:
    buffer = ReplayBuffer(None, HashedNgramEncoder(), capacity=10_000)
    places = [f"desk {n}" for n in range(40)]
    buffer.add(
        transition(n, state=f"On the {places[n % 40]}, you see a pen {n // 40}.",
                   action=f"open {places[n % 37]}")
        for n in range(10_000)
    )  # fmt: skip
    started = time.process_time()
    for n in range(100):
        buffer.query(f"On the desk {n}, you see a mug.", "open desk 3", k=5, suite="household",
                     exclude_task="t9")  # fmt: skip
    assert (time.process_time() - started) / 100 < 0.02  # generous: about 1 ms on an idle core
    json.dumps(buffer.metrics())
