"""A log in which something ended for good is never told as one without a fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.deploy.diagnose.diagnosis import LogDiagnosis, diagnose_logs
from qanat.deploy.diagnose.lines import read_line
from qanat.deploy.diagnose.log_report import json_report, text_report
from qanat.deploy.diagnose.log_source import LogSource
from qanat.deploy.knowledge.kinds.logs import LogQuotation
from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.knowledge.load import load_knowledge

START = (
    "(APIServer pid=71) INFO 11-17 08:12:05 [api_server.py:1896] vLLM API server version 0.18.0\n"
    "(Worker_TP0 pid=3) INFO 11-17 08:12:15 [default_loader.py:308] Loading weights took 3.2 seconds\n"
)
READY = "(APIServer pid=71) INFO:     Application startup complete.\n"
OOM = "(Worker_TP5 pid=9) ERROR 11-17 09:01:12 [a.py:815] torch.OutOfMemoryError: NPU out of memory.\n"

FATAL = {
    "!!!!!!! Segfault encountered !!!!!!!": "L092",
    "Fatal Python error: Segmentation fault": "L092",
    "Segmentation fault (core dumped)": "L092",
    "serve.sh: line 9: 4021 Aborted                 (core dumped) vllm serve a": "L092",
    "Bus error (core dumped)": "L093",
    "E30008: 2026-11-17-08:14:00.100.200 aicore exception, aivec error exception": "L094",
    "[ERROR] RuntimeError: ACL stream synchronize failed, error code:507035": "L094",
    "ACL stream synchronize failed, error code is 507014": "L095",
    "[ERROR] RuntimeError: something nobody has described": "unknown",
    "E12345: 2026-11-17-08:14:00.100.200 something nobody has described": "unknown",
    "EZ1234: something nobody has described": "unknown",
    "call failed, error code is 107002": "unknown",
    "Some_Error(EI0099): something nobody has described": "unknown",
    "[PID: 749] 2026-12-29-03:16:15.787.356 Some_Error(EI0099): something nobody has described": "unknown",
    "[PID: 749] 2026-12-29-03:16:15.787.356 Get_Socket_Timeout(EI0006): Getting socket times out.": "L043",
    "Execution_Error_ROCE_CQE(EI0013): An error CQE occurred during operator execution.": "L120",
    "aclrtSetDeviceImpl: open device 0 failed, runtime result = 107001.": "L107",
    "        lost heartbeat of device 0, runtime result = 507010": "L110",
    "terminate called after throwing an instance of 'std::runtime_error'": "unknown",
    "Quit (core dumped)": "unknown",
    "run.sh: line 4: vllm: command not found": "L098",
    "bash: /deployment/serve.sh: No such file or directory": "L099",
    "Killed": "L085",
    "OSError: [Errno 28] No space left on device": "L100",
    "HFValidationError: Repo id must be in the form 'a/b': '/models/Qwen3'": "L101",
    "PermissionError: [Errno 13] Permission denied: '/a'": "L102",
    "ImportError: libhccl.so: cannot open shared object file: No such file or directory": "L026",
    "RuntimeError: HCCL function error: hcclAllReduce, error code is 4": "L097",
}
HARMLESS = (
    "(Worker_TP3 pid=7) INFO 11-17 08:14:10 [a.py:1] all is well, error code 0\n",
    'INFO:     10.0.0.9:40404 - "POST /v1/completions HTTP/1.1" 200 OK\n',
    "(APIServer pid=71) INFO 11-17 08:14:11 [logger.py:40] Received request cmpl-1: prompt: 'Traceback (most recent "
    "call last): ValueError: NPU out of memory, Segmentation fault (core dumped)', params: None\n",
    "(Worker_TP3 pid=7) WARNING 11-17 08:14:12 [a.py:1] a slow path is taken\n",
    "export HCCL_BUFFSIZE=200\n",
    "\x1b[31mEvery word: of it\x1b[0m\n",
    "E1: a short word and a colon\n",
    "\n",
)


def diagnose(folder: Path, text: str) -> LogDiagnosis:
    path = folder / "a.log"
    path.write_text(text)
    diagnosis = diagnose_logs([LogSource(str(path), "file")])
    text_report(diagnosis)
    json_report(diagnosis)
    return diagnosis


def names(diagnosis: LogDiagnosis, consequences: bool = False) -> list[str]:
    found = diagnosis.of(Severity.ERROR, consequences=consequences)
    return [one.signature.name if one.signature else "unknown" for one in found]


@pytest.mark.parametrize("line", FATAL)
@pytest.mark.parametrize("before", ["", START, START + READY])
def test_an_end_is_a_fault(line: str, before: str, tmp_path: Path) -> None:
    diagnosis = diagnose(tmp_path, f"{before}{line}\n")
    assert diagnosis.has_faults and names(diagnosis) == [FATAL[line]]
    assert "nothing wrong found" not in text_report(diagnosis)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(HARMLESS), max_size=90), st.sampled_from(list(FATAL)), st.data())
def test_an_end_is_found_wherever_it_stands_and_nothing_without_one(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], fatal: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    assert not diagnose(folder, START + READY + "".join(lines)).has_faults
    at = data.draw(st.integers(0, len(lines)))
    text = START + READY + "".join([*lines[:at], f"{fatal}\n", *lines[at:]])
    assert names(diagnose(folder, text)) == [FATAL[fatal]]


def test_what_was_killed_behind_a_crash_is_no_first_fault(tmp_path: Path) -> None:
    diagnosis = diagnose(tmp_path, f"{START}Fatal Python error: Segmentation fault\nKilled\n")
    assert names(diagnosis) == ["L092"] and names(diagnosis, consequences=True) == ["L085"]


def test_collectives_that_fail_behind_another_rank_follow(tmp_path: Path) -> None:
    late = (
        "(Worker_TP1 pid=5) ERROR 11-17 09:01:16 [a.py:815] RuntimeError: HCCL function error: hcclAllReduce, "
        "error code is 4\n"
        "(EngineCore pid=92) ERROR 11-17 09:01:17 [multiproc_executor.py:228] Worker proc VllmWorker-5 died "
        "unexpectedly, shutting down executor.\n"
    )
    # Clocks decide, not the order in the file.
    diagnosis = diagnose(tmp_path, START + READY + late + OOM)
    assert names(diagnosis) == ["L022"] and names(diagnosis, consequences=True) == ["L097", "L055"]
    assert names(diagnose(tmp_path, START + READY + late)) == ["L097"]


def test_a_fault_of_an_earlier_start_has_no_consequences_in_the_next(tmp_path: Path) -> None:
    again = START.replace("11-17 08", "11-17 10")
    diagnosis = diagnose(tmp_path, f"{START}{OOM}{again}Killed\n")
    assert diagnosis.num_starts == 2 and names(diagnosis) == ["L022", "L085"]


@pytest.mark.parametrize(
    "entry", load_knowledge().tables["quotations"].entries.values(), ids=lambda one: one.name
)
def test_what_users_wrote_is_no_fault(entry: LogQuotation, tmp_path: Path) -> None:
    assert re.match(entry.pattern, read_line(entry.example, 1).text)
    assert not re.match(entry.pattern, read_line(entry.near_miss, 1).text)
    for fatal in FATAL:
        line = entry.example.replace("ValueError: a", f"Traceback (most recent call last): {fatal}")
        assert fatal in line and not diagnose(tmp_path, START + READY + line + "\n").has_faults


def test_nothing_steers_the_terminal() -> None:
    line = "a\x1bc\x1b]0;title\x07b\x9b2Jc\x08\x08d\x7f\x1b(0e\x9d0;x\x9cf"
    assert read_line(line, 1).whole == "abcdef"
