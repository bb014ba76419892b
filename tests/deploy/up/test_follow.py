from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.up.follow import Follower


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "log")
    assert follower.read() == []
    (tmp_path / "log").write_text("one\ntw")
    assert follower.read() == ["one"]
    with (tmp_path / "log").open("a") as file:
        file.write("o\r3/9\r\n")
    assert follower.read() == ["two", "3/9", ""]
    assert list(follower.last) == ["one", "two", "3/9"]


def test_a_link_to_another_run_is_read_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("a long first log\n")
    (tmp_path / "second").write_text("b\n")
    link = tmp_path / "log"
    link.symlink_to("first")
    follower = Follower(link)
    assert follower.read() == ["a long first log"]
    link.unlink()
    link.symlink_to("second")
    assert follower.read() == ["b"]


def test_a_log_that_was_cut_is_read_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\n")
    follower = Follower(log)
    follower.read()
    log.write_text("new\n")
    assert follower.read() == ["new"]


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_any_bytes_are_read_in_any_pieces(tmp_path_factory, pieces: list[bytes]) -> None:  # type: ignore[no-untyped-def]
    log = tmp_path_factory.mktemp("log") / "log"
    follower = Follower(log)
    lines = []
    with log.open("wb") as file:
        for piece in pieces:
            file.write(piece)
            file.flush()
            lines += follower.read()
    whole = b"".join(pieces).replace(b"\r", b"\n").split(b"\n")[:-1]
    assert lines == [line.decode(errors="replace").rstrip() for line in whole]
