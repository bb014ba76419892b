from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.client.recording import Recording, Store


def recording_of(pieces: list[bytes], index: int = 0) -> Recording:
    recording = Recording(index, 0)
    take(recording, pieces, 0)
    return recording


def take(recording: Recording, pieces: list[bytes], first_ns: int) -> None:
    for number, piece in enumerate(pieces):
        recording.times_ns.append(first_ns + number)
        recording.pieces.append(piece)
        recording.num_held_bytes += len(piece)


@given(st.lists(st.lists(st.binary(min_size=1, max_size=20), max_size=6), max_size=5), st.integers(0, 60))
def test_what_came_is_read_again_from_memory_or_file(answers: list[list[bytes]], budget_bytes: int) -> None:
    store = Store(budget_bytes)
    recordings = [recording_of(pieces, number) for number, pieces in enumerate(answers)]
    for recording in recordings:
        store.keep(recording)
    assert sum(recording.num_held_bytes for recording in recordings) <= budget_bytes
    for recording, pieces in zip(recordings, answers, strict=True):
        assert list(store.read(recording)) == list(enumerate(pieces))
    store.close()


def test_a_running_answer_can_be_written_in_parts() -> None:
    store = Store()
    recording = recording_of([b"a", b"bc"])
    store.spill(recording)
    other = recording_of([b"xyz"])
    store.spill(other)
    take(recording, [b"def"], 2)
    store.spill(recording)
    take(recording, [b"g"], 3)
    assert list(store.read(recording)) == [(0, b"a"), (1, b"bc"), (2, b"def"), (3, b"g")]
    assert list(store.read(other)) == [(0, b"xyz")]
    assert store.num_file_bytes == 9
    recording.forget()
    assert list(store.read(recording)) == []
    store.close()
