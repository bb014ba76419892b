from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qanat.deploy.diagnose import writers
from qanat.deploy.diagnose.log_source import source_of
from qanat.deploy.diagnose.writers import has_writer


def test_whoever_can_write_is_seen_and_readers_are_not(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.touch()
    before = has_writer(str(log))
    assert before is False or (before is None and os.geteuid() != 0)
    with log.open("rb"):
        assert has_writer(str(log)) is before
    with log.open("ab"):
        assert has_writer(str(log)) is True
    with log.open("r+b"):
        assert has_writer(str(log)) is True
    assert has_writer(str(log)) is before
    assert has_writer(str(tmp_path / "none.log")) is None


def test_another_process_is_seen_until_it_has_ended(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    link = tmp_path / "link.log"
    with log.open("wb") as file:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=file)
    link.symlink_to(log)
    assert has_writer(str(link)) is True and source_of(str(link)).may_grow()
    child.communicate(b"\n", timeout=60)
    assert has_writer(str(link)) is not True


def test_where_processes_cannot_be_seen_nothing_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    log.touch()
    monkeypatch.setattr(writers, "_PROCESSES", tmp_path)
    assert has_writer(str(log)) is None and source_of(str(log)).may_grow()
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "fd").touch()  # no folder that can be listed
    assert has_writer(str(log)) is None
    (tmp_path / "17" / "fd").unlink()
    assert has_writer(str(log)) is False and not source_of(str(log)).may_grow()
