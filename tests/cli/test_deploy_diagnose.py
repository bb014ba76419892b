"""`qanat deploy diagnose` as a user calls it."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

import qanat.deploy.diagnose.log_source as log_source
from qanat.cli.main import main
from qanat.deploy.plan.files import encode_plan
from tests.deploy.plan.example_plans import disaggregated

HERE = Path(__file__).parents[1] / "deploy/diagnose"
LOGS = HERE / "logs"
EXPECTED = yaml.safe_load((HERE / "expected.yaml").read_text())


def diagnose(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["deploy", "diagnose", *arguments])
    return code, capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, out = diagnose(capsys, *arguments, "--json")
    return code, json.loads(out)


def names(report: Any, severity: str, is_consequence: bool = False) -> list[str]:
    return [
        problem["signature"] or "unknown"
        for problem in report["problems"]
        if problem["severity"] == severity and problem["is_consequence"] is is_consequence
    ]


def test_every_log_is_expected() -> None:
    assert {path.name for path in LOGS.glob("*.log")} == set(EXPECTED)
    assert len(EXPECTED) >= 15


@pytest.mark.parametrize("name", EXPECTED)
def test_a_log_is_told_as_reasoned(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = EXPECTED[name]
    code, report = as_json(capsys, str(LOGS / name))
    assert code == wanted["exit"]
    assert report["is_ready"] is wanted["ready"]
    assert (report["stages"][-1]["stage"] if report["stages"] else None) == wanted["stage"]
    assert report["version"] == wanted["version"]
    assert report["num_starts"] == wanted["starts"]
    assert names(report, "error") == wanted.get("faults", [])
    assert names(report, "error", is_consequence=True) == wanted.get("consequences", [])
    assert names(report, "warning") == wanted.get("warnings", [])
    found = [one["rule"] for one in report["settings"] if one["severity"] != "info"]
    assert found == wanted.get("settings", [])
    if "faults" in wanted:
        first = report["problems"][0]
        assert first["line"] == wanted["line"]
        assert first["process"] == wanted.get("process", "")
        assert first["num_seen"] == wanted["num_seen"]


def test_text_puts_the_first_cause_before_what_followed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = diagnose(capsys, str(LOGS / "rank5_first.log"))
    assert code == 1
    order = [
        out.index(text) for text in ("First fault", "L022 [Worker_TP5]", "What followed", "L044", "L055")
    ]
    assert order == sorted(order)
    assert "7 times, also Worker_TP1" in out and "remedy: Lower --gpu-memory-utilization" in out


def test_logs_of_eight_ranks_are_merged_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(LOGS / f"ranks/rank_{rank}.log") for rank in range(8)]
    code, report = as_json(capsys, *files)
    first = report["problems"][0]
    assert code == 1 and first["signature"] == "L022"
    assert first["file"].endswith("rank_5.log") and first["process"] == "Worker_TP5"
    assert report["problems"][1]["signature"] == "L044"
    assert len(report["problems"][1]["processes"]) == 7


def test_what_nobody_has_described_is_shown_without_a_cause(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = diagnose(capsys, str(LOGS / "unknown_fault.log"))
    assert code == 1
    assert "IndexError: index 40960 is out of bounds" in out and "cause: not known" in out
    assert "rotary_embedding.py" in out


def test_figures_and_settings_are_read_out_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    _, report = as_json(capsys, str(LOGS / "healthy_start.log"))
    facts = {name: fact["value"] for name, fact in report["facts"].items()}
    assert facts["vllm"] == "0.18.0" and facts["kv_tokens"] == "1,540,096" and facts["world"] == "8"
    assert (
        facts["capture_s"] == "23" and facts["graphs_gib"] == "0.41" and facts["max_concurrency"] == "47.00"
    )
    _, report = as_json(capsys, str(LOGS / "align_mode.log"))
    assert report["facts"]["block_tokens"]["value"] == "2048"
    finding = next(one for one in report["settings"] if one["rule"] == "HYB002")
    assert finding["line"] == 3


def test_ops_012_a_message_about_storage_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = diagnose(capsys, str(LOGS / "streams.log"))
    assert "no disk is meant" in out and "Capture fewer sizes" in out and "GRA008" in out


def test_ops_018_the_ranks_that_others_wait_for_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = diagnose(capsys, str(LOGS / "missing_rank.log"))
    assert "no line of rank 3, 7: the others wait for them" in out
    assert as_json(capsys, str(LOGS / "missing_rank.log"))[1]["missing_ranks"] == [3, 7]
    assert as_json(capsys, str(LOGS / "healthy_start.log"))[1]["missing_ranks"] == []


def test_ops_001_too_many_sequences_for_the_states_are_told_with_both_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    log.write_text("ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (856).\n")
    _, out = diagnose(capsys, str(log))
    assert "max num seqs 1024, cache blocks 856" in out and "Lower --max-num-seqs" in out


def test_a_fault_of_an_earlier_start_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = diagnose(capsys, str(LOGS / "restart.log"))
    assert "First fault (of an earlier start)" in out
    assert "possible model len 65536" in out


def test_secrets_in_a_log_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ([], ["--json"]):
        _, out = diagnose(capsys, str(LOGS / "secrets.log"), *form)
        assert "verysecret" not in out


def test_image_says_which_version_ran(capsys: pytest.CaptureFixture[str]) -> None:
    _, report = as_json(capsys, str(LOGS / "healthy_start.log"), "--image", "v0.23.0-a3")
    assert report["version"] == "0.23.0" and report["version_from"] == "as given"
    assert main(["deploy", "diagnose", str(LOGS / "healthy_start.log"), "--image", "latest"]) == 2


def test_packed_files_standard_input_and_utf_16(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (LOGS / "atb.log").read_text()
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert names(as_json(capsys, str(packed))[1], "error") == ["L025"]
    (tmp_path / "utf16.log").write_bytes(text.encode("utf-16"))
    assert names(as_json(capsys, str(tmp_path / "utf16.log"))[1], "error") == ["L025"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, report = as_json(capsys, "-")
    assert code == 1 and report["sources"][0]["name"] == "<stdin>"


def test_a_damaged_packed_file_is_read_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "a.log.gz"
    content = (LOGS / "atb.log").read_bytes()
    # What is no repetition cannot be packed, so a cut takes away the end only.
    noise = random.Random(0).randbytes(200_000).hex().encode()
    packed.write_bytes(gzip.compress(content + noise)[:-50_000])
    code, out = diagnose(capsys, str(packed))
    assert "damaged" in out and "L025" in out and code == 1
    packed.write_bytes(gzip.compress(content)[:-12])
    assert main(["deploy", "diagnose", str(packed)]) == 2
    assert "damaged" in capsys.readouterr().err


def test_the_log_of_a_container(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "docker"
    log = LOGS / "dropped_sizes.log"
    tool.write_text(
        f'#!/bin/sh\ncase "$1 $2" in\n"logs qwen") cat {log} ;;\n'
        '"inspect --format") echo quay.io/ascend/vllm-ascend:v0.18.0rc1-a3 ;;\n*) exit 1 ;;\nesac\n'
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    code, report = as_json(capsys, "--docker", "qwen")
    assert code == 1 and report["version"] == "0.18.0rc1" and names(report, "warning") == ["L004"]
    assert main(["deploy", "diagnose", "--docker", "other"]) == 2


def fake_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    tool = folder / "docker"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    "body",
    [
        'case "$1" in inspect) sleep 600 ;; logs) cat LOG ;; esac',  # a child of the tool holds the pipe
        '[ "$1" = logs ] && cat LOG',
    ],
)
def test_an_inspection_that_hangs_or_fails_is_done_without(
    body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(tmp_path, monkeypatch, body.replace("LOG", str(LOGS / "dropped_sizes.log")) + "\ntrue")
    monkeypatch.setattr(log_source, "INSPECT_TIMEOUT_S", 0.5)
    code, report = as_json(capsys, "--docker", "qwen")
    assert code == 1 and names(report, "warning") == ["L004"]


@pytest.mark.parametrize("body", ["sleep 600", "cat LOG; sleep 600", "exec >&- 2>&-; sleep 600"])
def test_a_log_of_a_container_that_never_ends_is_left(
    body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(
        tmp_path, monkeypatch, f'[ "$1" = logs ] || exit 1\n{body}'.replace("LOG", str(LOGS / "atb.log"))
    )
    monkeypatch.setattr(log_source, "IDLE_TIMEOUT_S", 0.5)
    assert main(["deploy", "diagnose", "--docker", "qwen"]) == 2
    assert "gave nothing for 0.5 s" in capsys.readouterr().err


def test_a_container_that_runs_may_get_ready_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "begun.log"
    log.write_text(begun())
    body = 'case "$1 $3" in *Running*) echo {0} ;; *Image*) echo a ;; *) cat {1} ;; esac'
    fake_docker(tmp_path, monkeypatch, body.format("true", log))
    code, report = as_json(capsys, "--docker", "qwen")
    assert code == 0 and report["may_grow"] and report["ends_before_ready"]
    fake_docker(tmp_path, monkeypatch, body.format("false", log))
    assert as_json(capsys, "--docker", "qwen")[0] == 1


def begun() -> str:
    return "".join((LOGS / "healthy_start.log").read_text().splitlines(keepends=True)[:6])


def test_a_log_that_ends_before_the_engine_is_ready_is_not_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    log.write_text(begun())
    with log.open("a"):
        code, out = diagnose(capsys, str(log))
    assert code == 0 and "not ready yet" in out and "nothing wrong found" not in out
    os.utime(log, (time.time() - 3600,) * 2)
    code, out = diagnose(capsys, str(log))
    assert code == 1 and out.endswith("the log ends before the engine was ready\n")
    log.write_text(begun() + "KeyboardInterrupt\n")
    os.utime(log, (time.time() - 3600,) * 2)
    assert diagnose(capsys, str(log))[0] == 0
    headless = begun().replace("{'model_tag'", "{'headless': True, 'model_tag'")
    log.write_text(
        headless + "(Worker_TP0 pid=1) INFO 11-17 08:16:25 [w.py:2] Available memory: 1, total memory: 2\n"
    )
    os.utime(log, (time.time() - 3600,) * 2)
    assert diagnose(capsys, str(log))[0] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello\n", "is this the server's log?"),
        (random.Random(1).randbytes(300_000), "is no text"),
        (b"\x7fELF\x02\x01\x01\0\0 ValueError", "is no text"),
    ],
)
def test_what_is_no_log_is_not_well(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_bytes(content)
    assert main(["deploy", "diagnose", str(tmp_path / "a.log")]) == 2
    assert message in capsys.readouterr().err


def test_pipes_and_devices_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link"):
        for flags in ([], ["--metrics"], ["--bench"]):
            assert main(["deploy", "diagnose", *flags, str(tmp_path / name)]) == 2
            assert "cannot be read: it is a" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such.log"],
        [str(LOGS)],
        [str(LOGS / "atb.log"), "--interval-s", "0"],
        [str(LOGS / "atb.log"), "--unknown"],
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "diagnose", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_loads_neither_linter_nor_knowledge() -> None:
    code = "import sys, qanat.cli.deploy_actions.diagnose; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


METRICS = HERE / "metrics"


def verdicts(report: Any) -> dict[str, str]:
    return {one["question"]: one["answer"] for one in report["verdicts"]}


def test_metrics_of_a_slow_server_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = diagnose(capsys, "--metrics", str(METRICS / "slow_0.23.txt"))
    assert code == 1
    assert "Does prefix caching find anything? [cause found]" in out
    assert "no longer than one block" in out and "compare A: --enable-prefix-caching" in out
    assert "from place 3 on" in out and "B: num_speculative_tokens 2" in out
    assert "75.0 % of it is waiting" in out
    assert out.index("[cause found]") < out.index("[cannot be told]")


def test_metrics_of_a_server_without_a_cause_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = as_json(capsys, "--metrics", str(METRICS / "healthy_0.23.txt"))
    assert code == 0 and set(verdicts(report).values()) == {"not the cause", "cannot be told"}


def test_settings_of_a_log_answer_more(capsys: pytest.CaptureFixture[str]) -> None:
    log, metrics = str(LOGS / "healthy_start.log"), str(METRICS / "slow_0.23.txt")
    _, alone = as_json(capsys, "--metrics", metrics)
    code, report = as_json(capsys, log, "--metrics", metrics)
    assert code == 1 and report["is_ready"] is True
    assert verdicts(alone)["async-scheduling"] == "cannot be told"
    assert verdicts(report["performance"])["async-scheduling"] == "not the cause"
    assert report["performance"]["settings_from"] == "the log"


def test_settings_of_a_plan_answer_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(encode_plan(disaggregated()))
    metrics = str(METRICS / "slow_0.23.txt")
    _, report = as_json(capsys, "--metrics", metrics, "--plan", str(plan))
    assert report["settings_from"] == "the plan" and report["version"]
    _, prefill = as_json(capsys, "--metrics", metrics, "--plan", str(plan), "--role", "prefill")
    assert prefill["verdicts"] != report["verdicts"]
    assert main(["deploy", "diagnose", "--metrics", metrics, "--plan", str(plan), "--role", "server"]) == 2


def test_two_files_count_what_happened_in_between(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--metrics", str(METRICS / "later_0.23.txt"), "--before", str(METRICS / "healthy_0.23.txt")]
    _, report = as_json(capsys, *files)
    assert report["basis"] == "between both readings"
    caching = next(one for one in report["verdicts"] if one["question"] == "prefix-caching")
    assert caching["figures"]["prompt tokens looked up"] == "350,000"
    assert caching["figures"]["found"] == "0"


class Handler(BaseHTTPRequestHandler):
    texts: ClassVar[list[str]] = []
    num_read = 0

    def do_GET(self) -> None:
        text = self.texts[min(Handler.num_read, len(self.texts) - 1)].encode()
        Handler.num_read += 1
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def serving(*texts: str) -> Iterator[str]:
    Handler.texts, Handler.num_read = list(texts), 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_running_server_is_read_twice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A web proxy in the environment is not asked.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    before, after = (METRICS / name for name in ("healthy_0.23.txt", "later_0.23.txt"))
    with serving(before.read_text(), after.read_text()) as address:
        code, report = as_json(capsys, "--metrics", address, "--interval-s", "0.1")
    assert code in (0, 1) and "between both readings" in report["basis"]
    caching = next(one for one in report["verdicts"] if one["question"] == "prefix-caching")
    assert caching["figures"]["prompt tokens looked up"] == "350,000"


def test_a_benchmark_is_judged_with_the_settings_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    bench = str(METRICS / "bench.json")
    _, report = as_json(capsys, "--bench", bench)
    assert verdicts(report) == {
        "benchmark-load": "cannot be told",
        "benchmark-size": "not the cause",
        "published": "cannot be told",
    }
    _, both = as_json(capsys, str(LOGS / "healthy_start.log"), "--bench", bench)
    load = next(one for one in both["performance"]["verdicts"] if one["question"] == "benchmark-load")
    # The log's server has 64 places, the benchmark kept 76 requests in flight.
    assert load["answer"] == "cause found" and load["comparison"]["second"] == "--max-concurrency 64"
    assert load["figures"]["TTFT mean"] == "912 ms"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", "no-such.txt"], "no-such.txt cannot be read"),
        (["--metrics", str(LOGS / "atb.log")], "no metrics of vLLM"),
        (["--metrics", "http://127.0.0.1:1"], "cannot be reached"),
        (["--metrics", "http://"], "cannot be reached"),
        (["--bench", str(METRICS / "healthy_0.23.txt")], "is no JSON"),
        (["--bench", str(HERE / "expected.yaml")], "is no JSON"),
        (["--before", "a"], "name a log"),
        (["a.log", "--before", "a"], "--before goes with --metrics"),
        (["a.log", "--plan", "a"], "--plan is for"),
        (["--bench", str(METRICS / "bench.json"), "--plan", "no-such.yaml"], "no-such.yaml cannot be read"),
        (["--bench", str(METRICS / "bench.json"), "--plan", str(METRICS / "bench.json")], "not a plan"),
        (["--bench", str(METRICS / "bench.json"), "--role", "decode"], "--role names a role"),
        (["--metrics", str(METRICS / "slow_0.23.txt"), "--interval-s", "0"], "--interval-s"),
    ],
)
def test_what_cannot_be_read_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "diagnose", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_json_that_is_no_result_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("[]", '{"completed": "many"}', "[" * 100_000):
        (tmp_path / "a.json").write_text(text)
        assert main(["deploy", "diagnose", "--bench", str(tmp_path / "a.json")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_server_without_metrics_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("nothing") as address:
        assert main(["deploy", "diagnose", "--metrics", f"{address}/v1"]) == 2
    assert "answered 404" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "timeout_s", "said"),
    [
        (b"\x1b]0;title\x07 no status line\r\n\r\n", 60.0, "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nA: ", 1.0, "did not answer in"),
    ],
)
def test_an_address_that_answers_oddly_is_told(
    words: bytes,
    timeout_s: float,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second drips: each byte comes before the socket's timeout, all of them together never end."""
    monkeypatch.setattr("qanat.deploy.diagnose.metrics.TIMEOUT_S", timeout_s)
    is_over = threading.Event()

    def serve() -> None:
        with listener, contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(words)
                while words.startswith(b"HTTP") and not is_over.wait(0.1):
                    connection.sendall(b"a")

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    thread = threading.Thread(target=serve)
    thread.start()
    assert main(["deploy", "diagnose", "--metrics", f"http://127.0.0.1:{port}"]) == 2
    is_over.set()
    thread.join()
    output = capsys.readouterr().err
    assert said in output and "\x1b" not in output
