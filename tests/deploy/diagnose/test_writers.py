from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qanat.deploy.diagnose import writers
from qanat.deploy.diagnose.log_source import source_of
from qanat.deploy.diagnose.writers import has_writer


def test_whoever_can_write_is_seen_and_readers_are_not(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.touch()
    before = has_writer(str(log))
    assert before is not True
    with log.open("rb"):
        assert has_writer(str(log)) is before
    with log.open("ab"):
        assert has_writer(str(log)) is True
    with log.open("r+b"):
        assert has_writer(str(log)) is True
    assert has_writer(str(log)) is before


def test_another_process_is_seen_until_it_has_ended(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    link = tmp_path / "link.log"
    with log.open("wb") as file:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=file)
    link.symlink_to(log)
    assert has_writer(str(link)) is True and source_of(str(link)).may_grow()
    child.communicate(b"\n", timeout=60)
    assert has_writer(str(link)) is not True


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc as the host's administrator sees it: one process, one local file system."""
    processes = tmp_path / "proc"
    (processes / "1" / "fd").mkdir(parents=True)
    (processes / "self" / "ns").mkdir(parents=True)
    (processes / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    (processes / "self" / "mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/a rw\n")
    monkeypatch.setattr(writers, "_PROCESSES", processes)
    return processes


def test_where_all_is_seen_a_log_without_writer_has_ended(machine: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.touch()
    assert has_writer(str(log)) is False and not source_of(str(log)).may_grow()
    assert has_writer(str(tmp_path / "none.log")) is None


def _is_nothing_shown(machine: Path) -> None:
    (machine / "1" / "fd").rmdir()
    (machine / "1").rmdir()


def _is_one_process_locked(machine: Path) -> None:
    (machine / "17").mkdir()
    (machine / "17" / "fd").touch()  # no folder that can be listed


def _are_processes_of_others_hidden(machine: Path) -> None:
    (machine / "1").rename(machine / "17")


def _is_a_container(machine: Path) -> None:
    (machine / "self" / "ns" / "pid").unlink()
    (machine / "self" / "ns" / "pid").symlink_to("pid:[4026532281]")


def _has_no_namespaces(machine: Path) -> None:
    (machine / "self" / "ns" / "pid").unlink()


def _is_served_to_other_hosts(machine: Path) -> None:
    (machine / "17" / "fd").mkdir(parents=True)
    (machine / "17" / "comm").write_text("nfsd\n")


def _has_no_mounts(machine: Path) -> None:
    (machine / "self" / "mountinfo").unlink()


@pytest.mark.parametrize(
    "hide",
    [
        _is_nothing_shown,
        _is_one_process_locked,
        _are_processes_of_others_hidden,
        _is_a_container,
        _has_no_namespaces,
        _is_served_to_other_hosts,
        _has_no_mounts,
    ],
)
def test_where_processes_cannot_be_seen_nothing_is_claimed(
    machine: Path, tmp_path: Path, hide: Callable[[Path], None]
) -> None:
    log = tmp_path / "a.log"
    log.touch()
    hide(machine)
    assert has_writer(str(log)) is None and source_of(str(log)).may_grow()


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        (["/ nfs4"], None),
        (["/ ext4", "{folder} nfs4"], None),
        (["/ ext4", "{folder} ext4", "{folder} fuse.sshfs"], None),
        (["/ ext4", "{folder} virtiofs", "{folder}/with\\040space ceph"], None),
        (["/ nfs4", "{folder} xfs"], False),
        (["/ nfs4", "{folder}/with\\040space tmpfs"], False),
        (["/ ext4", "{folder}/with nfs4"], False),
    ],
)
def test_files_that_other_hosts_may_write_are_known_by_their_file_system(
    machine: Path, tmp_path: Path, mounts: list[str], expected: bool | None
) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "a.log").touch()
    (tmp_path / "link.log").symlink_to(folder / "a.log")
    rows = []
    for number, mount in enumerate(mounts):
        point, kind = mount.format(folder=str(tmp_path).replace(" ", "\\040")).split()
        rows.append(f"{number} 0 0:{number} / {point} rw shared:1 - {kind} from rw\n")
    (machine / "self" / "mountinfo").write_text("".join(rows))
    assert has_writer(str(folder / "a.log")) is expected
    assert has_writer(str(tmp_path / "link.log")) is expected


def test_root_of_another_space_of_processes_sees_no_writers_of_this_one(tmp_path: Path) -> None:
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("no right to make a space of processes")
    log = tmp_path / "a.log"
    program = f"from qanat.deploy.diagnose.writers import has_writer; print(has_writer({str(log)!r}))"
    with log.open("wb"):
        ran = subprocess.run(
            [*apart, sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
    assert ran.stdout == "None\n"
