from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from replay_fakes import FlakyEncoder, transition

from dreamgym.errors import DataError, ModelError
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
from dreamgym.types import Observation, Origin, Transition

WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from replay_fakes import transition
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.replay.encode import HashedNgramEncoder
buffer = ReplayBuffer(Path(sys.argv[1]), HashedNgramEncoder(dim=16), capacity=100_000)
name, count, size = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
print("ready", flush=True)
for n in range(count):
    buffer.add([transition(n, task=name, state=f"{{name}} {{n}} " + "x " * (size // 2))])
"""


def open_buffer(folder: Path, *, dim: int = 32, capacity: int = 1000) -> ReplayBuffer:
    return ReplayBuffer(folder, HashedNgramEncoder(dim=dim), capacity=capacity)


def start_writer(folder: Path, name: str, *, count: int, size: int) -> subprocess.Popen[bytes]:
    code = WRITER.format(tests=str(Path(__file__).parent))
    command = [sys.executable, "-c", code, str(folder), name, str(count), str(size)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)


def finds_itself(buffer: ReplayBuffer, wanted: Transition) -> bool:
    found = buffer.query(wanted.observation.text, wanted.action, k=1, suite=wanted.suite)
    return bool(found) and found[0].transition == wanted and found[0].similarity > 0.999


def vector_file(folder: Path) -> Path:
    (path,) = folder.glob("vectors-*.f32")
    return path


def test_what_was_added_is_there_after_reopening(tmp_path: Path) -> None:
    rows = [transition(n) for n in range(5)]
    rows.append(transition(9, state="caf\u00e9 \u2028 line", origin=Origin.DREAM))
    rows.append(transition(10, state="half \ud83d"))
    buffer = open_buffer(tmp_path)
    buffer.add(rows)
    buffer.close()
    again = open_buffer(tmp_path)
    assert again.transitions == rows
    assert all(finds_itself(again, row) for row in rows)
    assert again.add(rows) == 0


def test_buf_05_four_processes_append_large_records_without_loss(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path, f"p{n}", count=200, size=20_000) for n in range(4)]
    for writer in writers:
        writer.communicate(timeout=55)
        assert writer.returncode == 0
    buffer = open_buffer(tmp_path, dim=16, capacity=100_000)
    assert len(buffer) == 800
    assert buffer.metrics()["quarantined"] == 0.0
    assert {(t.task_id, t.step) for t in buffer.transitions} == {
        (f"p{p}", n) for p in range(4) for n in range(200)
    }
    assert min(len(t.observation.text) for t in buffer.transitions) > 20_000


def test_two_open_buffers_see_each_others_rows(tmp_path: Path) -> None:
    first, second = open_buffer(tmp_path), open_buffer(tmp_path)
    first.add([transition(0)])
    assert second.add([transition(0), transition(1)]) == 1
    first.refresh()
    assert first.transitions == second.transitions == [transition(0), transition(1)]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_buf_07_vectors_lost_in_a_kill_are_rebuilt(tmp_path: Path, left: int) -> None:
    rows = [transition(n) for n in range(6)]
    open_buffer(tmp_path).add(rows)
    path = vector_file(tmp_path)
    record = 16 + 32 * 4
    os.truncate(path, left * record + (7 if left else 0))  # whole records and a torn one
    again = open_buffer(tmp_path)
    assert all(finds_itself(again, row) for row in rows)
    assert path.stat().st_size == 7 * record  # six states and one action, each once


def test_buf_07_a_damaged_vector_is_not_paired_by_position(tmp_path: Path) -> None:
    rows = [transition(n) for n in range(4)]
    open_buffer(tmp_path).add(rows)
    path = vector_file(tmp_path)
    data = bytearray(path.read_bytes())
    record = 16 + 32 * 4
    data[record + 16 : 2 * record] = b"\xff" * (record - 16)  # NaNs in the second vector
    del data[2 * record : 3 * record]  # and the third record is gone
    path.write_bytes(bytes(data))
    again = open_buffer(tmp_path)
    assert all(finds_itself(again, row) for row in rows)


def test_buf_07_an_unreadable_log_is_an_error_not_an_empty_buffer(tmp_path: Path) -> None:
    open_buffer(tmp_path).add([transition(0)])
    (tmp_path / "transitions.jsonl").write_text("not a log\n")
    with pytest.raises(DataError, match="not the log of a replay buffer"):
        open_buffer(tmp_path)


def test_a_bad_line_in_the_middle_is_counted_and_the_rest_loads(tmp_path: Path) -> None:
    rows = [transition(n, state="s", action=f"go {n}", answer="same") for n in range(3)]
    open_buffer(tmp_path).add(rows)
    path = tmp_path / "transitions.jsonl"
    lines = path.read_bytes().splitlines()
    lines[-2] = b'{"row": oops'
    path.write_bytes(b"\n".join(lines) + b"\n")
    again = open_buffer(tmp_path)
    assert again.transitions == [rows[0], rows[2]]
    assert again.metrics()["quarantined"] == 1.0


def test_buf_08_a_killed_writer_leaves_whole_records_only(tmp_path: Path) -> None:
    for attempt, delay in enumerate((0.0, 0.02, 0.05, 0.1)):
        folder = tmp_path / str(attempt)
        writer = start_writer(folder, "p", count=100_000, size=200_000)
        assert writer.stdout is not None
        writer.stdout.readline()  # it is writing now
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        buffer = open_buffer(folder, dim=16)
        held = buffer.transitions
        assert [t.step for t in held] == list(range(len(held)))
        assert buffer.add([transition(10**6)]) == 1
        assert open_buffer(folder, dim=16).transitions == [*held, transition(10**6)]


def test_buf_08_a_torn_last_line_goes_to_quarantine(tmp_path: Path) -> None:
    open_buffer(tmp_path).add([transition(0), transition(1)])
    path = tmp_path / "transitions.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"row":{"task_id":"t')
    again = open_buffer(tmp_path)
    assert again.transitions == [transition(0), transition(1)]
    assert path.read_bytes() == whole
    quarantine = tmp_path / "transitions.jsonl.quarantine"
    assert quarantine.read_bytes() == b'{"row":{"task_id":"t\n'


def test_buf_11_a_long_state_is_stored_whole_once_and_searched_fast(tmp_path: Path) -> None:
    page = "<div> item </div>\n" * 60_000 + f"<img src='data:image/png;base64,{'QUJD' * 250_000}'>"
    assert len(page) > 2_000_000
    buffer = open_buffer(tmp_path)
    started = time.process_time()
    buffer.add([transition(n, state=page, action=f"click {n}") for n in range(3)])
    (found,) = buffer.query(page, "click 2", k=1, suite="household")
    assert time.process_time() - started < 1.0
    assert found.transition.observation.text == page and found.transition.action == "click 2"
    assert (tmp_path / "transitions.jsonl").stat().st_size < 1.2 * len(page)


def test_buf_14_each_observation_is_stored_once_so_size_grows_with_steps(tmp_path: Path) -> None:
    def size(steps: int) -> int:
        folder = tmp_path / str(steps)
        seen = [Observation(text=f"view {n:04d} " + "word " * 200) for n in range(steps + 1)]
        episode = [
            Transition(
                task_id="t", suite="household", episode_id="e", step=n, instruction="i",
                observation=seen[n], action=f"go {n:04d}", next_observation=seen[n + 1],
                reward=0.0, terminated=False, truncated=False, success=False, origin=Origin.REAL,
            )
            for n in range(steps)
        ]  # fmt: skip
        buffer = open_buffer(folder)
        buffer.add(episode)
        assert open_buffer(folder).transitions == episode
        return (folder / "transitions.jsonl").stat().st_size

    per_step = (size(40) - size(20)) / 20
    assert per_step == pytest.approx((size(80) - size(40)) / 40, rel=0.01)
    assert per_step < 2 * 1010  # an observation of 1,010 characters and its row, not its history


def test_emb_01_another_encoder_is_an_error_that_names_both_and_drops_nothing(
    tmp_path: Path,
) -> None:
    rows = [transition(n) for n in range(3)]
    ReplayBuffer(tmp_path, HashedNgramEncoder(384), capacity=9).add(rows)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = HashedNgramEncoder(768, (2, 4))
    with pytest.raises(DataError) as caught:
        ReplayBuffer(tmp_path, other, capacity=9)
    for part in ("384", "768", "hashed-ngram-3-5", "hashed-ngram-2-4"):
        assert part in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    again = ReplayBuffer(tmp_path, other, capacity=9, reencode=True)
    assert again.transitions == rows and all(finds_itself(again, row) for row in rows)
    assert ReplayBuffer(tmp_path, other, capacity=9).transitions == rows


def test_emb_03_an_encoder_that_is_down_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    rows = [transition(n) for n in range(3)]
    ReplayBuffer(tmp_path, FlakyEncoder(is_up=True), capacity=9).add(rows)
    vectors = vector_file(tmp_path)
    os.truncate(vectors, 0)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ModelError, match="cannot be reached"):
        ReplayBuffer(tmp_path, FlakyEncoder(), capacity=9)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    encoder = FlakyEncoder(is_up=True)
    again = ReplayBuffer(tmp_path, encoder, capacity=9)
    assert all(finds_itself(again, row) for row in rows)
    encoder.is_up = False
    with pytest.raises(ModelError):
        again.add([transition(77)])
    assert again.transitions == rows
    assert (tmp_path / "transitions.jsonl").read_bytes() == before["transitions.jsonl"]


def test_res_04_a_checkpoint_brings_back_exactly_what_was_held(tmp_path: Path) -> None:
    buffer = open_buffer(tmp_path, capacity=6)
    buffer.add(transition(n) for n in range(3))
    buffer.add(transition(n, origin=Origin.DREAM) for n in range(10, 15))
    buffer.query("You stand at place 11.", "open drawer", k=2, suite="household")
    held, metrics = buffer.transitions, buffer.metrics()
    state = json.loads(json.dumps(buffer.state_dict()))
    assert "transitions" not in state  # the log has them

    later = [transition(n, origin=Origin.DREAM) for n in range(20, 24)]
    buffer.add(later)
    straight = buffer.transitions
    buffer.add([transition(40), transition(41), transition(42), transition(43)])

    resumed = open_buffer(tmp_path, capacity=6)
    resumed.load_state_dict(state)
    assert (resumed.transitions, resumed.metrics()) == (held, metrics)
    assert open_buffer(tmp_path, capacity=6).transitions == held  # noted in the log
    resumed.add(later)
    assert resumed.transitions == straight
    assert all(finds_itself(resumed, row) for row in straight)
    buffer.refresh()
    assert buffer.transitions == straight


def test_a_checkpoint_of_another_folder_is_refused(tmp_path: Path) -> None:
    buffer = open_buffer(tmp_path / "a")
    buffer.add([transition(0), transition(1)])
    other = open_buffer(tmp_path / "b")
    other.add([transition(7), transition(8)])
    with pytest.raises(DataError, match="not the one this checkpoint was made with"):
        other.load_state_dict(buffer.state_dict())
    assert other.transitions == [transition(7), transition(8)]
    memory = ReplayBuffer(None, HashedNgramEncoder(dim=32), capacity=9)
    with pytest.raises(DataError, match="folder"):
        memory.load_state_dict(buffer.state_dict())
