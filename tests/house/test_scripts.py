"""The scripts a person runs: what they say, and that a second run is quick because it has nothing to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.checkout import ROOT, load_script

how_to_ask = load_script("how_to_ask")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("name", ["setup", "test", "check-web"])
def test_help_describes_the_script(name: str) -> None:
    result = run(f"scripts/{name}", "--help")
    assert result.returncode == 0
    assert f"scripts/{name} [" in result.stdout
    assert "#" not in result.stdout


@pytest.mark.parametrize("name", ["setup", "check"])
def test_unknown_argument_is_refused_before_anything_is_done(name: str, tmp_path: Path) -> None:
    result = run(f"scripts/{name}", "--wrong", QANAT_VENV=str(tmp_path / "venv"))
    assert result.returncode == 1
    assert "unknown argument --wrong" in result.stderr
    assert not (tmp_path / "venv").exists()


def test_setup_stops_if_there_is_no_python(tmp_path: Path) -> None:
    """A search path with the tools that setup uses, and without any Python."""
    for tool in ("bash", "cat", "cksum", "dirname", "grep"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(os.path.realpath(found))
    result = run(
        str(tmp_path / "bash"), "scripts/setup", QANAT_VENV=str(tmp_path / "venv"), PATH=str(tmp_path)
    )
    assert result.returncode == 1
    assert "Python >= 3.11 with venv is needed" in result.stderr
    assert "apt-get install" in result.stderr


def test_a_check_that_lacks_a_program_says_that_nothing_was_shown(tmp_path: Path) -> None:
    """A search path with neither a browser nor a way to install one."""
    for tool in ("bash", "dirname"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(os.path.realpath(found))
    result = run(str(tmp_path / "bash"), "scripts/check-web", PATH=str(tmp_path))
    assert result.returncode == 77
    assert result.stderr.startswith("NOT SHOWN: chromium is not installed")
    assert "apt-get install chromium" in result.stderr


def test_how_to_ask_reads_the_servers_own_flags() -> None:
    options = how_to_ask.parse(["model", "--port=81", "--api-key", "secret", "--max-num-seqs", "4"])
    assert (options.host, options.port, options.api_key) == ("127.0.0.1", 81, ["secret"])


def test_how_to_ask_ends_when_the_server_does() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert how_to_ask.main([str(ended.pid), "--port", "9"]) == 1


@pytest.mark.parametrize("arguments", [("--port", "0"), ("--uds", "socket")])
def test_how_to_ask_leaves_unknown_addresses_to_the_server(arguments: tuple[str, str], capsys) -> None:
    assert how_to_ask.main([str(os.getpid()), *arguments]) == 0
    assert capsys.readouterr().out == ""
