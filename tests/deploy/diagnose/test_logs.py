"""Reading of logs: any bytes, long lines, long files, several processes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qanat.deploy.diagnose.scan as scan_module
from qanat.deploy.diagnose.clock import Clock, show_time
from qanat.deploy.diagnose.diagnosis import LogDiagnosis, diagnose_logs
from qanat.deploy.diagnose.lines import read_line
from qanat.deploy.diagnose.log_report import json_report, text_report
from qanat.deploy.diagnose.log_source import LogSource
from qanat.deploy.diagnose.scan import BLOCK_BYTES, MAX_LINE_BYTES, ScanStatistics, scan
from qanat.deploy.diagnose.settings import redact

PIECES = st.sampled_from(
    [
        "(Worker_TP3 pid=7) ERROR 11-17 08:14:10 [a.py:1] ",
        "Traceback (most recent call last):\n",
        '  File "a.py", line 1, in f\n',
        "ValueError: x\n",
        "non-default args: {'a': [1, <X.Y: 2>, B(c=1)], ",
        "vLLM API server version 0.18.0\n",
        "Application startup complete.\n",
        "\r",
        "\x1b[31m",
        "EI0002 107030 \n",
        "export HCCL_BUFFSIZE=",
        "02-30 25:61:61",
        "\x00",
        "\ud800",
        "\n",
    ]
)


def diagnose_bytes(folder: Path, content: bytes) -> LogDiagnosis:
    path = folder / "fuzz.log"
    path.write_bytes(content)
    diagnosis = diagnose_logs([LogSource(str(path), "file")])
    text_report(diagnosis)
    json_report(diagnosis)
    return diagnosis


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=40))
def test_no_text_stops_it(tmp_path_factory, pieces: list[str]) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("fuzz")
    diagnose_bytes(folder, "".join(pieces).encode("utf-8", errors="surrogatepass"))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_stop_it(tmp_path_factory, content: bytes) -> None:  # type: ignore[no-untyped-def]
    diagnose_bytes(tmp_path_factory.mktemp("fuzz"), content)


def test_lines_are_counted_and_found_whatever_the_blocks() -> None:
    filler = b'INFO:     10.0.0.9:40404 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    num = 3 * BLOCK_BYTES // len(filler) + (1 << 20) // len(filler)
    content = filler * num + b"ValueError: numAcceptedTokens[0]=4 exceeds segment\n" + filler * num
    statistics = ScanStatistics()
    found = [line for line in scan(io.BytesIO(content), statistics) if line.literals]
    assert [line.number for line in found] == [num + 1]
    assert "numAcceptedTokens[" in found[0].literals
    assert statistics.num_lines == 2 * num + 1 and statistics.size_bytes == len(content)


def test_a_line_without_an_end_takes_no_more_memory_than_a_block() -> None:
    class Endless(io.RawIOBase):
        left = 400

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return b"x" * BLOCK_BYTES if self.left > 0 else b"\nEI0006\n" if self.left == 0 else b""

    statistics = ScanStatistics()
    lines = list(scan(Endless(), statistics))  # type: ignore[arg-type]
    assert max(len(line.text) for line in lines) <= MAX_LINE_BYTES
    assert lines[-1].text == "EI0006" and statistics.num_lines == 2


def test_the_same_fault_thousands_of_times_is_kept_once(tmp_path: Path) -> None:
    lines = "".join(
        f"(Worker_TP{number % 8} pid={number % 8}) ERROR 11-17 08:14:{number % 60:02d} [a.py:{number % 97}] "
        f"RuntimeError: tensor {number} is strange\n"
        for number in range(5_000)
    )
    diagnosis = diagnose_bytes(tmp_path, lines.encode())
    (problem,) = diagnosis.problems
    assert problem.num_seen == 5_000 and len(problem.processes) == 8


def test_prefixes_are_taken_apart() -> None:
    line = read_line(
        "2026-11-17T07:12:05.123456789Z stdout F \x1b[36m(Worker pid=1) (Worker_DP1_TP3_EP3 pid=4) "
        "ERROR 11-17 08:12:05 [v1/worker/a.py:815] boom",
        9,
    )
    assert (line.text, line.number, line.process, line.pid, line.rank) == (
        "boom",
        9,
        "Worker_DP1_TP3_EP3",
        "4",
        3,
    )
    assert (line.level, line.place, line.month, line.day) == ("ERROR", "v1/worker/a.py:815", 11, 17)
    assert line.second == 8 * 3600 + 12 * 60 + 5 and not line.is_outer_time
    plog = read_line("[ERROR] HCCL(131,python3):2026-11-17-08:15:02.311.100 [a.cc:6][131]text", 1)
    assert (plog.level, plog.process, plog.month, plog.text) == (
        "ERROR",
        "HCCL pid 131",
        11,
        "[a.cc:6][131]text",
    )
    npu = read_line(
        "[ERROR] 2026-11-17-08:14:19 (PID:134, Device:3, RankID:3) ERR00100 PTA call acl api failed", 1
    )
    assert (npu.rank, npu.level, npu.text) == (3, "ERROR", "ERR00100 PTA call acl api failed")
    torch = read_line("[rank5]:[W1117 08:12:05.123456789 compiler_depend.ts:28] Warning: x", 1)
    assert (torch.rank, torch.level, torch.second) == (5, "WARNING", 29525)
    # torch writes months without a zero in front.
    march = read_line("[rank11]:[E313 06:55:06.502205450 compiler_depend.ts:1795] x", 1)
    assert (march.level, march.month, march.day, march.text) == ("ERROR", 3, 13, "x")
    january = read_line("[W106 06:43:02.555922410 compiler_depend.ts:117] Warning: x", 1)
    assert (january.level, january.month, january.day) == ("WARNING", 1, 6)
    uvicorn = read_line("(APIServer pid=71) INFO:     Application startup complete.", 1)
    assert (uvicorn.process, uvicorn.level, uvicorn.text) == (
        "APIServer",
        "INFO",
        "Application startup complete.",
    )
    old = read_line("INFO 05-07 05:58:42 config.py:549] text", 1)
    assert (old.place, old.text) == ("config.py:549", "text")


def test_times_without_a_year_are_ordered_over_new_year() -> None:
    clock = Clock()
    after = clock.seconds(read_line("INFO 01-01 00:00:04 [a.py:1] x", 1))
    before = clock.seconds(read_line("INFO 12-31 23:59:58 [a.py:1] x", 2))
    assert after is not None and before is not None and after - before == 6
    assert show_time(before) == "12-31 23:59:58"
    assert clock.seconds(read_line("INFO 02-30 10:00:00 [a.py:1] x", 3)) is None


def test_secrets_are_taken_out() -> None:
    text = "args {'api_key': ['sk-1', 'sk-2'], 'hf_token': 'hf_3', 'model': 'a'} api-key=sk-4"
    assert redact(text) == "args {'api_key': ***, 'hf_token': ***, 'model': 'a'} api-key=***"


def test_a_fault_behind_which_the_server_was_stopped_is_not_hidden(tmp_path: Path) -> None:
    lines = (
        "Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "ZeroDivisionError: division by zero\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "b.py", line 1, in g\n'
        "KeyboardInterrupt\n"
    )
    diagnosis = diagnose_bytes(tmp_path, lines.encode())
    assert [one.headline for one in diagnosis.problems if one.signature is None] == [
        "ZeroDivisionError: division by zero"
    ]


def test_a_fault_keeps_little_of_each_line(tmp_path: Path) -> None:
    lines = "".join(f"Traceback (most recent call last):\n  {'x' * 30_000}\n" for _ in range(200))
    diagnosis = diagnose_bytes(tmp_path, (lines + "ValueError: a\n").encode())
    (problem,) = diagnosis.problems
    assert max(len(line) for line in problem.detail) <= 2000


def test_a_log_that_goes_on_behind_waiting_does_not_hang(tmp_path: Path) -> None:
    filler = b'INFO:     10.0.0.9:40404 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 5_000
    waits = b"".join(
        b"(EngineCore pid=9) INFO 11-17 09:%02d:13 [shm_broadcast.py:466] No available shared memory broadcast "
        b"block found in 60 second(s).\n" % minute
        for minute in range(4)
    )
    ready = b"INFO 11-17 08:00:00 [a.py:1] Application startup complete.\n"
    goes_on = b"(EngineCore pid=9) INFO 11-17 09:30:00 [a.py:1] something else\n"
    assert diagnose_bytes(tmp_path, ready + filler + waits).has_faults
    assert not diagnose_bytes(tmp_path, ready + filler + waits + filler + goes_on).has_faults


def test_from_very_many_faults_on_known_ones_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "MAX_LINES_IN_DETAIL", 1000)
    unknown = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: a\n'
    known = "Traceback (most recent call last):\nRuntimeError: numAcceptedTokens[0]=4 exceeds\n"
    diagnosis = diagnose_bytes(tmp_path, ((unknown + known) * 12_000).encode())
    counts = {one.signature.name if one.signature else "?": one.num_seen for one in diagnosis.problems}
    assert counts["L014"] == 12_000 and 0 < counts["?"] < 12_000
    ((_, statistics),) = diagnosis.sources
    assert statistics.num_lines == 60_000 and 0 < statistics.brief_from < 60_000
    assert f"from line {statistics.brief_from:,} on" in text_report(diagnosis)


def test_two_tracebacks_behind_each_other_are_two_faults(tmp_path: Path) -> None:
    one = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n{}Error: a\n'
    diagnosis = diagnose_bytes(tmp_path, (one.format("Value") + one.format("Type")).encode())
    assert [problem.headline for problem in diagnosis.problems] == ["ValueError: a", "TypeError: a"]
