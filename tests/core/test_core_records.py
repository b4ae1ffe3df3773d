from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym.errors import DataError, StoreError
from dreamgym.records import (
    RecordWriter,
    decode_line,
    encode_line,
    read_json,
    read_records,
    write_json_atomic,
)
from dreamgym.types import (
    SCHEMA_VERSION,
    Completion,
    Observation,
    Origin,
    Rollout,
    StopReason,
    Task,
    Transition,
)


class Note(msgspec.Struct, frozen=True):
    id: int
    text: str = ""
    reward: float | None = None


def rollout(text: str, reward: float | None) -> Rollout:
    seen = Observation(text=text, actions=("look",))
    transition = Transition(
        task_id="t",
        suite="s",
        episode_id="e",
        step=0,
        instruction=text,
        observation=seen,
        action=text,
        next_observation=seen,
        reward=reward,
        terminated=True,
        truncated=False,
        success=False,
        origin=Origin.DREAM,
    )
    completion = Completion(text=text, context_ids=(1, 2), token_ids=(3,), logprobs=(-0.25,))
    return Rollout(
        id="e",
        task=Task(id="t", suite="s", instruction=text),
        attempt=0,
        transitions=(transition,),
        completions=(completion,),
        stop=StopReason.TERMINATED,
        reward=reward,
        success=False,
        counters={"no_effect": 1},
    )


@given(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=40),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_decoding_an_encoded_record_gives_the_record(text: str, reward: float | None) -> None:
    record = rollout(text, reward)
    line = encode_line(record)
    assert line.count(b"\n") == 1
    again = decode_line(line, Rollout)
    assert encode_line(again) == line
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert again == record


def test_buf_12_a_lone_surrogate_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    with RecordWriter(path, "note") as writer:
        writer.write(Note(1, "price \ud83d cut"))
        writer.write(Note(2, "two\u2028lines \U0001f642"))
    result = read_records(path, Note)
    assert [note.text for note in result.records] == [
        "price \ud83d cut",
        "two\u2028lines \U0001f642",
    ]
    assert result.quarantined == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_buf_12_a_reward_that_is_not_finite_is_refused(tmp_path: Path, value: float) -> None:
    with (
        RecordWriter(tmp_path / "notes.jsonl", "note") as writer,
        pytest.raises(DataError, match="not finite"),
    ):
        writer.write(Note(1, reward=value))
    assert read_records(tmp_path / "notes.jsonl", Note).records == []


def test_buf_12_broken_lines_are_quarantined_with_their_place_and_the_rest_loads(
    tmp_path: Path,
) -> None:
    path = tmp_path / "foreign.jsonl"
    lines = [
        b'\xef\xbb\xbf{"id":1,"text":"bom"}\r',
        '{"id":2,"text":"a\u2028b"}\r'.encode(),
        b'{"id":3,"text":"\\ud83d\\ude42"}',
        b"",
        b'{"id":4,"reward":NaN}',
        b'{"id":5,"reward":1e999}',
        b'{"id":6,"text":"latin1 \xe9"}',
        b'{"id":"seven"}',
        b"[1, 2]",
        b"not json",
        b'{"id":8,"te',
    ]
    path.write_bytes(b"\n".join(lines))
    result = read_records(path, Note)
    assert result.header is None
    assert result.records == [Note(1, "bom"), Note(2, "a\u2028b"), Note(3, "\U0001f642")]
    assert [q.line for q in result.quarantined] == [5, 6, 7, 8, 9, 10, 11]
    assert {q.file for q in result.quarantined} == {str(path)}
    assert "NaN" in result.quarantined[0].reason
    assert "byte 0xE9" in result.quarantined[2].reason
    assert "not a Note" in result.quarantined[3].reason


def test_buf_12_the_public_torture_file_loads_but_for_two_lines() -> None:
    samples = Path(__file__).resolve().parents[2].parent / "shared" / "samples"
    path = samples / "s16_unicode_torture.jsonl"
    if not path.exists():
        pytest.skip("the sample files are not beside this checkout (../shared/samples)")
    result = read_records(path, dict[str, Any])
    assert [r["id"] for r in result.records] == ["u1", "u2", "u3"]
    assert result.records[0]["obs"] == "price 3\u202819.99 \ud83d cut"
    assert [q.line for q in result.quarantined] == [4, 5]
    assert all(encode_line(record) for record in result.records)


def test_a_git_lfs_pointer_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    with pytest.raises(DataError, match="Git LFS pointer, data not present"):
        read_records(path, Note)


def test_a_newer_schema_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text(f'{{"schema_version":{SCHEMA_VERSION + 1},"kind":"note"}}\n{{"id":1}}\n')
    with pytest.raises(DataError, match=f"schema version {SCHEMA_VERSION + 1}.*upgrade"):
        read_records(path, Note)
    with pytest.raises(DataError, match="upgrade"):
        RecordWriter(path, "note")


def test_another_kind_or_a_foreign_file_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    RecordWriter(path, "note").close()
    with pytest.raises(DataError, match="holds 'note' records; expected 'rollout'"):
        RecordWriter(path, "rollout")
    with pytest.raises(DataError, match="expected 'rollout'"):
        read_records(path, Note, kind="rollout")
    path.write_text('{"id":1}\n')
    with pytest.raises(DataError, match="not a DreamGym record file"):
        RecordWriter(path, "note")


def test_the_header_keeps_the_provenance_of_the_first_writer(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.jsonl"
    for seed in (1, 2):
        with RecordWriter(path, "note", {"seed": seed}) as writer:
            writer.write(Note(seed))
    result = read_records(path, Note)
    assert result.header is not None
    assert result.header.provenance == {"seed": 1}
    assert result.records == [Note(1), Note(2)]


def test_a_torn_last_line_is_moved_to_quarantine_on_reopening(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with RecordWriter(path, "note") as writer:
        writer.write(Note(1))
    whole = path.read_bytes()
    torn = b'{"id":2,"text":"' + b"x" * 100_000
    path.write_bytes(whole + torn)
    assert read_records(path, Note).quarantined[0].line == 3
    with RecordWriter(path, "note") as writer:
        writer.write(Note(3))
    result = read_records(path, Note)
    assert (result.records, result.quarantined) == ([Note(1), Note(3)], [])
    assert path.with_name("a.jsonl.quarantine").read_bytes() == torn + b"\n"


def test_a_last_line_that_only_lacks_its_newline_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with RecordWriter(path, "note") as writer:
        writer.write(Note(1))
    path.write_bytes(path.read_bytes()[:-1])
    with RecordWriter(path, "note") as writer:
        writer.write(Note(2))
    assert read_records(path, Note).records == [Note(1), Note(2)]


def test_a_torn_header_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"schema_ver')
    with RecordWriter(path, "note") as writer:
        writer.write(Note(1))
    assert read_records(path, Note, kind="note").records == [Note(1)]


def test_a_closed_writer_refuses_to_write(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "a.jsonl", "note", fsync=True)
    writer.write(Note(1))
    writer.close()
    writer.close()
    with pytest.raises(StoreError, match="is closed"):
        writer.write(Note(2))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*none\.jsonl"):
        read_records(tmp_path / "none.jsonl", Note)
    with pytest.raises(DataError, match=r"none\.json"):
        read_json(tmp_path / "none.json")


_SAVER = """
import sys
from dreamgym.records import RecordWriter, write_json_atomic
writer = RecordWriter(sys.argv[2], "note")
print("ready", flush=True)
for number in range(1_000_000):
    write_json_atomic(sys.argv[1], {"number": number, "text": "x" * 20_000 + str(number)})
    writer.write({"id": number, "text": "y" * 20_000})
"""


def test_buf_08_a_file_is_the_old_or_the_new_version_whenever_the_writer_is_killed(
    tmp_path: Path,
) -> None:
    target, log = tmp_path / "state.json", tmp_path / "log.jsonl"
    write_json_atomic(target, {"number": -1, "text": "x" * 20_000 + "-1"})
    total = 0
    for kill in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", _SAVER, str(target), str(log)],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.01 + 0.013 * kill)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        state = read_json(target)
        assert state["text"] == "x" * 20_000 + str(state["number"])
        RecordWriter(log, "note").close()  # mends whatever was torn
        result = read_records(log, Note)
        assert result.quarantined == []
        assert len(result.records) >= total
        total = len(result.records)
    assert total > 0


def test_atomic_json_refuses_nan_and_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json_atomic(path, {"a": 1})
    with pytest.raises(DataError, match="cannot hold NaN"):
        write_json_atomic(path, {"a": float("nan")})
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
