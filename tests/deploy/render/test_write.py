from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.errors import ConfigError
from qanat.deploy.render import exchange
from qanat.deploy.render.exchange import STAGING
from qanat.deploy.render.model import Files, RenderedFile
from qanat.deploy.render.write import MARKER, write_folder

ENV = RenderedFile("# env\n\n# about\nA=''\n", is_edited_by_hand=True)
FIRST: Files = {
    "env.sh": ENV,
    "nodes/a/serve.sh": RenderedFile("serve a\n", is_executable=True),
    "nodes/b/serve.sh": RenderedFile("serve b\n", is_executable=True),
    "plan.yaml": RenderedFile("plan: 1\n"),
}
SECOND: Files = {
    "env.sh": RenderedFile("# env\n\n# about\nA=''\n\n# other\nB=''\n", is_edited_by_hand=True),
    "nodes/a/serve.sh": RenderedFile("serve a again\n", is_executable=True),
    "nodes/c/serve.sh": RenderedFile("serve c\n", is_executable=True),
    "plan.yaml": RenderedFile("plan: 1\n"),
}


def snapshot(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Content, mode and time of every file."""
    return {
        str(path.relative_to(folder)): (path.read_text(), path.stat().st_mode, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def states(folder: Path, files: Files, **options: bool) -> dict[str, str]:
    return {change.path: change.state for change in write_folder(folder, files, **options)}


def test_a_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "deployment"
    assert set(states(folder, FIRST).values()) == {"new"}
    for path, file in FIRST.items():
        assert (folder / path).read_text() == file.text
        assert os.access(folder / path, os.X_OK) is file.is_executable
    assert not (folder / STAGING).exists()


def test_a_second_time_touches_nothing(tmp_path: Path) -> None:
    write_folder(tmp_path, FIRST)
    before = snapshot(tmp_path)
    assert set(states(tmp_path, FIRST).values()) == {"unchanged"}
    assert snapshot(tmp_path) == before


def test_another_plan_replaces_adds_and_removes(tmp_path: Path) -> None:
    write_folder(tmp_path, FIRST)
    assert states(tmp_path, SECOND) == {
        "env.sh": "changed",
        "nodes/a/serve.sh": "changed",
        "nodes/b/serve.sh": "removed",
        "nodes/c/serve.sh": "new",
        "plan.yaml": "unchanged",
    }
    assert not (tmp_path / "nodes/b").exists()
    assert set(states(tmp_path, SECOND).values()) == {"unchanged"}


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "nodes/b").mkdir(parents=True)
    (tmp_path / "nodes/b/notes.txt").write_text("mine")
    (tmp_path / "logs").mkdir()
    write_folder(tmp_path, FIRST)
    write_folder(tmp_path, SECOND)
    assert (tmp_path / "nodes/b/notes.txt").read_text() == "mine"
    assert (tmp_path / "logs").is_dir()


def test_a_file_of_others_with_one_of_the_names_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("mine")
    before = snapshot(tmp_path)
    with pytest.raises(ConfigError, match="not as they were rendered: plan.yaml"):
        write_folder(tmp_path, FIRST)
    assert snapshot(tmp_path) == before
    assert states(tmp_path, FIRST, is_overwriting=True)["plan.yaml"] == "changed"


def test_an_edited_script_is_not_replaced(tmp_path: Path) -> None:
    write_folder(tmp_path, FIRST)
    (tmp_path / "nodes/a/serve.sh").write_text("edited\n")
    with pytest.raises(ConfigError, match="nodes/a/serve.sh.*--overwrite"):
        write_folder(tmp_path, SECOND)
    assert (tmp_path / "nodes/b/serve.sh").exists()
    write_folder(tmp_path, SECOND, is_overwriting=True)
    assert (tmp_path / "nodes/a/serve.sh").read_text() == "serve a again\n"


def test_an_edited_script_that_is_no_longer_needed_stays(tmp_path: Path) -> None:
    write_folder(tmp_path, FIRST)
    (tmp_path / "nodes/b/serve.sh").write_text("edited\n")
    assert states(tmp_path, SECOND)["nodes/b/serve.sh"] == "left"
    assert (tmp_path / "nodes/b/serve.sh").read_text() == "edited\n"


def test_edits_of_the_file_for_edits_stay(tmp_path: Path) -> None:
    write_folder(tmp_path, FIRST)
    (tmp_path / "env.sh").write_text("# env\n\n# about\nA=192.0.2.1\n")
    assert states(tmp_path, FIRST)["env.sh"] == "kept"
    assert states(tmp_path, SECOND, is_overwriting=True)["env.sh"] == "kept"
    assert (tmp_path / "env.sh").read_text() == "# env\n\n# about\nA=192.0.2.1\n\n# other\nB=''\n"
    before = snapshot(tmp_path)
    write_folder(tmp_path, SECOND)
    assert snapshot(tmp_path) == before


def test_a_lost_mode_is_put_right(tmp_path: Path) -> None:
    write_folder(tmp_path, FIRST)
    (tmp_path / "nodes/a/serve.sh").chmod(0o644)
    assert states(tmp_path, FIRST)["nodes/a/serve.sh"] == "changed"
    assert os.access(tmp_path / "nodes/a/serve.sh", os.X_OK)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "deployment"
    assert set(states(folder, FIRST, is_dry_run=True).values()) == {"new"}
    assert not folder.exists()
    write_folder(folder, FIRST)
    before = snapshot(folder)
    assert states(folder, SECOND, is_dry_run=True)["nodes/b/serve.sh"] == "removed"
    assert snapshot(folder) == before


@pytest.mark.parametrize("link", ["nodes", "nodes/a", "nodes/a/serve.sh", "plan.yaml", MARKER])
def test_links_are_refused(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "deployment"
    (folder / link).parent.mkdir(parents=True)
    (folder / link).symlink_to(outside)
    with pytest.raises(ConfigError, match="symbolic link"):
        write_folder(folder, FIRST, is_overwriting=True)
    assert list(outside.iterdir()) == []


def test_a_stale_file_behind_a_link_is_not_removed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "deployment", tmp_path / "outside"
    write_folder(folder, FIRST)
    shutil.move(folder / "nodes/b", outside)
    (folder / "nodes/b").symlink_to(outside)
    with pytest.raises(ConfigError, match="symbolic link"):
        write_folder(folder, SECOND)
    assert (outside / "serve.sh").exists()


@pytest.mark.parametrize("path", ["../victim", "/etc/victim", "", "nodes/../../victim"])
def test_a_marker_cannot_name_files_elsewhere(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "deployment"
    folder.mkdir()
    (tmp_path / "victim").write_text("")
    (folder / MARKER).write_text(json.dumps({"format": 1, "files": {path: "0" * 64}}))
    with pytest.raises(ConfigError, match="damaged"):
        write_folder(folder, FIRST)
    assert (tmp_path / "victim").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}', '{"files": {}, "format": 99}'])
def test_a_damaged_marker_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    with pytest.raises(ConfigError, match="damaged|another version"):
        write_folder(tmp_path, FIRST)


def test_files_in_the_way_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        write_folder(tmp_path / "file", FIRST)
    (tmp_path / "nodes").write_text("")
    with pytest.raises(ConfigError, match="where a folder has to be"):
        write_folder(tmp_path, FIRST)
    (tmp_path / "nodes").unlink()
    (tmp_path / "plan.yaml").mkdir()
    with pytest.raises(ConfigError, match="is not a file"):
        write_folder(tmp_path, FIRST)


def break_after(monkeypatch: pytest.MonkeyPatch, num_calls: int, error: BaseException) -> None:
    """Lets the replacing of files fail after some of them."""
    left = [num_calls]
    replace = os.replace

    def breaking(source: Any, target: Any) -> None:
        if STAGING not in str(target):
            if left[0] == 0:
                raise error
            left[0] -= 1
        replace(source, target)

    monkeypatch.setattr(exchange.os, "replace", breaking)


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    return {path: (text, mode) for path, (text, mode, _) in snapshot(folder).items()}


@pytest.mark.parametrize("num_calls", range(4))
def test_a_failure_half_way_leaves_the_old_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_calls: int
) -> None:
    write_folder(tmp_path, FIRST)
    before = contents(tmp_path)
    real = exchange.recover

    def recover(folder: Path) -> dict[str, str]:
        monkeypatch.undo()
        return real(folder)

    monkeypatch.setattr(exchange, "recover", recover)
    break_after(monkeypatch, num_calls, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(ConfigError, match="No space left on device; the folder is as it was"):
        write_folder(tmp_path, SECOND)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("num_calls", range(4))
def test_a_run_that_was_killed_is_undone_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_calls: int
) -> None:
    write_folder(tmp_path, FIRST)
    before = contents(tmp_path)
    kill_a_rendering(tmp_path, SECOND, monkeypatch, num_calls)
    assert (tmp_path / STAGING).is_dir()
    write_folder(tmp_path, FIRST)
    assert contents(tmp_path) == before


def leave_journal(folder: Path, journal: str) -> None:
    (folder / STAGING).mkdir(parents=True)
    (folder / STAGING / "journal.json").write_text(journal)


@pytest.mark.parametrize("path", ["../victim/x", "/etc/victim", "", ".", "nodes/../../victim/x"])
@pytest.mark.parametrize("key", ["old", "new"])
def test_a_journal_cannot_name_files_elsewhere(tmp_path: Path, key: str, path: str) -> None:
    folder, victim = tmp_path / "deployment", tmp_path / "victim" / "x"
    victim.parent.mkdir()
    victim.write_text("precious")
    leave_journal(folder, json.dumps({"old": {}, "new": {}, key: {path: "0" * 64}}))
    (folder / STAGING / "victim").mkdir()
    (folder / STAGING / "victim/x").write_text("evil")
    before = snapshot(tmp_path)
    with pytest.raises(ConfigError, match=r"journal\.json is damaged: .* is no file of this folder"):
        write_folder(folder, FIRST)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "journal", ["", "3", "[]", '{"x": 1}', '{"old": [], "new": []}', '{"old": {}, "new": {"a": 3}}', "\xff"]
)
def test_a_damaged_journal_is_told(tmp_path: Path, journal: str) -> None:
    leave_journal(tmp_path, journal)
    with pytest.raises(ConfigError, match=r"journal\.json is damaged; look what the folder .* holds"):
        write_folder(tmp_path, FIRST)


def test_a_journal_cannot_reach_through_links(tmp_path: Path) -> None:
    folder, outside = tmp_path / "deployment", tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("precious")
    digest = hashlib.sha256(b"precious").hexdigest()
    leave_journal(folder, json.dumps({"old": {}, "new": {"nodes/x": digest}}))
    (folder / "nodes").symlink_to(outside)
    with pytest.raises(ConfigError, match="symbolic link"):
        write_folder(folder, FIRST)
    assert (outside / "x").read_text() == "precious"


def kill_a_rendering(folder: Path, files: Files, monkeypatch: pytest.MonkeyPatch, num_calls: int) -> None:
    """Leaves the folder as a killed rendering does, after some of its files were replaced."""
    monkeypatch.setattr(exchange, "recover", lambda folder: {})
    break_after(monkeypatch, num_calls, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write_folder(folder, files)
    monkeypatch.undo()


@pytest.mark.parametrize("num_calls", [1, 2, 3])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_was_written_into_env_sh_after_a_kill_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool, num_calls: int
) -> None:
    if not is_first:
        write_folder(tmp_path, FIRST)
    kill_a_rendering(tmp_path, SECOND, monkeypatch, num_calls)
    text = (tmp_path / "env.sh").read_text()
    (tmp_path / "env.sh").write_text(text.replace("A=''", "A=10.1.1.1"))
    assert states(tmp_path, SECOND)["env.sh"] == "kept"
    assert (tmp_path / "env.sh").read_text() == SECOND["env.sh"].text.replace("A=''", "A=10.1.1.1")
    assert not (tmp_path / STAGING).exists()


def test_a_script_that_was_edited_after_a_kill_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path, FIRST)
    kill_a_rendering(tmp_path, SECOND, monkeypatch, 2)
    (tmp_path / "nodes/a/serve.sh").write_text("edited\n")
    with pytest.raises(ConfigError, match=r"nodes/a/serve\.sh"):
        write_folder(tmp_path, SECOND)
    assert (tmp_path / "nodes/a/serve.sh").read_text() == "edited\n"


def test_a_rendering_that_is_killed_for_real_is_undone(tmp_path: Path) -> None:
    write_folder(tmp_path, FIRST)
    program = (
        "import os, signal, sys, pathlib\n"
        "from qanat.deploy.render import exchange\n"
        "from qanat.deploy.render.write import write_folder\n"
        "from tests.deploy.render.test_write import SECOND, STAGING\n"
        "replace, done = os.replace, []\n"
        "def dying(source, target):\n"
        "    if STAGING not in str(target):\n"
        "        done.append(target)\n"
        "        if len(done) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    replace(source, target)\n"
        "exchange.os.replace = dying\n"
        "write_folder(pathlib.Path(sys.argv[1]), SECOND)\n"
    )
    before = contents(tmp_path)
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "nodes/a/serve.sh").read_text() == "serve a again\n"
    write_folder(tmp_path, FIRST)
    assert contents(tmp_path) == before


def test_a_folder_that_cannot_be_filled_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(exchange, "_write", refuse)
    with pytest.raises(ConfigError, match="Disk quota exceeded"):
        write_folder(tmp_path / "deployment", FIRST)
    assert list(tmp_path.iterdir()) == []


def test_two_renderings_do_not_mix(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another rendering"):
            write_folder(tmp_path, FIRST)
    finally:
        os.close(handle)


names = st.sampled_from(["a", "b/c", "b/d", "e/f/g"])
sets = st.dictionaries(names, st.builds(RenderedFile, st.sampled_from(["1\n", "2\n"]), st.booleans()))


@settings(max_examples=30, deadline=None)
@given(st.lists(sets, min_size=1, max_size=4))
def test_the_folder_always_holds_the_last_set(
    tmp_path_factory: pytest.TempPathFactory, series: list[Files]
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "foreign").write_text("mine")
    for files in series:
        write_folder(folder, files)
        expected = {path: file.text for path, file in files.items()} | {"foreign": "mine"}
        found = {path: text for path, (text, _, _) in snapshot(folder).items() if path != MARKER}
        assert found == expected
    folders = {path for path in folder.rglob("*") if path.is_dir()}
    assert all(any(folder.iterdir()) for folder in folders)
