"""Text files as they are read and replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from qanat.core.errors import ConfigError
from qanat.deploy.text_files import read_file, read_text, replace_file, rewrite_file


def test_a_file_is_replaced_whole_and_keeps_its_mode_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(b"old")
    path.chmod(0o750)
    rewrite_file(path, "new\r\n\udcff")
    assert path.read_bytes() == b"new\r\n\xff"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert os.listdir(tmp_path) == ["run.sh"]


def test_files_of_windows_keep_their_encoding(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes("vllm serve 模型\r\n".encode("utf-16"))
    assert read_file(path) == "vllm serve 模型\r\n"
    rewrite_file(path, "vllm serve 新\r\n")
    assert path.read_bytes() == "vllm serve 新\r\n".encode("utf-16")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.sh").write_text("old")
    (tmp_path / "link.sh").symlink_to("real.sh")
    rewrite_file(tmp_path / "link.sh", "new")
    assert (tmp_path / "link.sh").is_symlink() and (tmp_path / "real.sh").read_text() == "new"


def test_a_file_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="no"):
        rewrite_file(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["run.sh"]


def test_a_new_file_has_the_mode_that_any_new_file_has(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    replace_file(tmp_path / "new", b"text")
    assert (tmp_path / "new").read_bytes() == b"text"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="image cannot be read: it is no text in UTF-8"):
        read_text(tmp_path / "image")
    with pytest.raises(ConfigError, match="none cannot be read: no such file"):
        read_text(tmp_path / "none")
