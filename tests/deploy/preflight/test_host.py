from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qanat.core.errors import ConfigError
from qanat.deploy.preflight.host import ThisHost
from qanat.deploy.preflight.recording import (
    RecordedHost,
    RecordingHost,
    decode_recording,
    encode_recording,
)

HOST = ThisHost()


def test_a_command_and_its_exit_code() -> None:
    output = HOST.run(sys.executable, "-c", "import sys; print('out'); sys.stderr.write('err'); sys.exit(3)")
    assert output.exit_code == 3 and not output.is_good
    assert "out" in output.text and "err" in output.text


def test_a_command_that_is_not_there_and_one_that_hangs() -> None:
    assert HOST.run("no-such-program-anywhere").problem == "not found"
    output = HOST.run(sys.executable, "-c", "input(); import time; time.sleep(1000)", timeout_s=60)
    assert output.exit_code == 1  # standard input is empty, so that nothing waits for a person
    output = HOST.run(sys.executable, "-c", "import time; time.sleep(1000)", timeout_s=0.2)
    assert output.problem == "timed out"


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.write_text("no program")
    path.chmod(0o755)
    assert HOST.run(str(path)).problem == "not allowed"


def test_files_of_the_kernel_can_be_read() -> None:
    # They refuse reads of several megabytes at once.
    path = "/proc/sys/net/ipv4/ip_local_port_range"
    if not Path(path).exists():
        pytest.skip("this kernel has no such file")
    assert len((HOST.read(path) or "").split()) == 2
    assert HOST.read("/proc/none") is None and HOST.names("/none") is None


def test_a_long_file_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * (5 * 2**20))
    assert len(HOST.read(str(path)) or "") == 4 * 2**20


def test_room_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    here = HOST.free_bytes(str(tmp_path))
    assert here and HOST.free_bytes(str(tmp_path / "a" / "b")) is not None


def test_names() -> None:
    assert "127.0.0.1" in HOST.resolve("localhost")
    assert HOST.resolve("no.such.host.invalid") == () and HOST.resolve("a" * 300) == ()


def test_a_recording_answers_as_the_host_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PORT", "tcp://10.0.0.1:8000")
    monkeypatch.setenv("VLLM_API_KEY", "not for anybody")
    monkeypatch.setenv("UNRELATED", "x")
    (tmp_path / "file").write_text("two\nlines\n")
    recorder = RecordingHost(HOST)
    output = recorder.run(sys.executable, "-c", "print(1); print(2)")
    assert recorder.run(sys.executable, "-c", "print(1); print(2)") is output
    asked = [
        recorder.read(str(tmp_path / "file")),
        recorder.read(str(tmp_path / "none")),
        recorder.names(str(tmp_path)),
        recorder.exists(str(tmp_path)),
        recorder.resolve("localhost"),
        recorder.bind_error("203.0.113.77", 0),
        recorder.free_bytes(str(tmp_path)),
    ]
    recorder.variables()
    text = encode_recording(recorder.recording)
    assert "not for anybody" not in text and "UNRELATED" not in text
    replayed = RecordedHost(decode_recording(text, "host.yaml"))
    assert replayed.run(sys.executable, "-c", "print(1); print(2)") == output
    assert asked == [
        replayed.read(str(tmp_path / "file")),
        replayed.read(str(tmp_path / "none")),
        replayed.names(str(tmp_path)),
        replayed.exists(str(tmp_path)),
        replayed.resolve("localhost"),
        replayed.bind_error("203.0.113.77", 0),
        replayed.free_bytes(str(tmp_path)),
    ]
    assert replayed.variables()["VLLM_PORT"] == "tcp://10.0.0.1:8000"
    assert replayed.run("npu-smi", "info").problem == "not found"
    assert (replayed.host_name(), replayed.now_s()) == (recorder.host_name(), recorder.recording.time_s)


@pytest.mark.parametrize("text", ["", "- a", "nope: 1", "commands: {a: 1}", "{"])
def test_what_is_no_recording_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="host.yaml"):
        decode_recording(text, "host.yaml")
