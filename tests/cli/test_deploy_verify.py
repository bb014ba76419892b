from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.main import main
from qanat.deploy.verify.checks import load
from qanat.deploy.verify.run import symptoms
from tests.deploy.verify.faults import FAULTS, Faulty, other_protocol, silence
from tests.support.server_process import ServerProcess, free_port
from tests.support.small_service import SmallService

WITHOUT_SERVICE = {"not_reachable", "tls_failed"}


def verify(*arguments: str) -> int:
    return main(["deploy", "verify", *arguments])


def verified(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = verify(*arguments, "--json")
    report = json.loads(capsys.readouterr().out)
    return code, report


def outcomes(report: dict[str, Any]) -> dict[str, Any]:
    return {outcome["check"]: outcome for outcome in report["checks"]}


def test_a_good_service_passes_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    with SmallService() as service:
        code, report = verified(capsys, service.url)
    assert code == 0 and report["is_ok"] is True
    assert (report["model"], report["max_model_len"]) == ("small", 256)
    statuses = {name: outcome["status"] for name, outcome in outcomes(report).items()}
    assert {name for name, status in statuses.items() if status != "ok"} == {"key", "drafts"}
    assert statuses["key"] == statuses["drafts"] == "skipped"


@pytest.mark.parametrize(
    ("symptom", "fault"),
    [
        pytest.param(name, one, id=f"{name}-{n}")
        for name, faults in FAULTS.items()
        for n, one in enumerate(faults)
    ],
)
def test_a_faulty_service_is_found_out(
    symptom: str, fault: Faulty, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_KEY", "a-secret-key")
    monkeypatch.setattr(load, "MAX_WAIT_S", 0.1)
    with SmallService(fault.overrides, fault.alter) as service:
        code, report = verified(capsys, service.url, "--wait-s", "0", "--only", fault.check, *fault.flags)
    outcome = outcomes(report)[fault.check]
    entry = symptoms()[symptom]
    assert (outcome["symptom"], outcome["status"]) == (symptom, entry.level), outcome
    assert outcome["seen"] and outcome["meaning"] == entry.meaning and outcome["advice"] == entry.advice
    assert code == (1 if entry.level == "fail" else 0)
    assert "a-secret-key" not in json.dumps(report)


def test_every_symptom_has_a_service_that_shows_it() -> None:
    assert set(symptoms()) == set(FAULTS) | WITHOUT_SERVICE


def test_where_nothing_listens_everything_else_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = verified(capsys, f"http://127.0.0.1:{free_port()}", "--wait-s", "0.2")
    first, *others = report["checks"]
    assert code == 1
    assert (first["check"], first["symptom"]) == ("ready", "not_reachable")
    assert {outcome["status"] for outcome in others} == {"skipped"}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl program")
def test_https_with_a_certificate_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=small",
        "-keyout",
        key,
        "-out",
        cert,
    ]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *map(str, words), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with SmallService(tls=context) as service:
        code, report = verified(capsys, service.url, "--ca-file", str(cert))
        assert (code, service.url[:8]) == (0, "https://"), report
        code, report = verified(capsys, service.url, "--wait-s", "60")
    assert code == 1 and outcomes(report)["ready"]["symptom"] == "tls_failed"


def test_https_to_a_port_without_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with SmallService() as service:
        url = service.url.replace("http:", "https:")
        code, report = verified(capsys, url, "--wait-s", "0", "--timeout-s", "2")
    assert code == 1 and outcomes(report)["ready"]["symptom"] in ("tls_failed", "broken_off")


def test_a_service_that_comes_later_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    def starting(handler: Any, request: Any) -> bool:
        if handler.server.count("health") > 2:
            return False
        handler.refuse(503, "loading")
        return True

    with SmallService({"/health": starting}) as service:
        code, report = verified(capsys, service.url, "--only", "completion", "--wait-s", "60")
    assert code == 0 and set(outcomes(report)) == {"ready", "model", "completion"}


def test_the_table_says_what_a_fault_means_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    (fault,) = FAULTS["sampling_fails"]
    with SmallService(fault.overrides) as service:
        assert verify(service.url, "--only", "temperature") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == service.url
    place = next(number for number, line in enumerate(lines) if line.startswith("fail"))
    assert "temperature" in lines[place] and "device error" in lines[place]
    assert lines[place + 1].strip().startswith("means: ") and "to do: " in "\n".join(lines[place + 2 :])
    assert lines[-1] == "4 checks: 1 fail, 3 ok"
    assert "\x1b" not in "\n".join(lines)


def test_what_a_service_says_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    def coloured(path: str, request: Any, value: Any) -> None:
        if "choices" in value:
            value["choices"][0]["text"] = "\x1b[2J\x1b]0;title\x07 red"

    with SmallService(alter=coloured) as service:
        assert verify(service.url, "--only", "completion") == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output and "red" in output


def test_the_key_is_sent_and_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def guarded(handler: Any, request: Any) -> bool:
        seen.append(handler.headers.get("Authorization"))
        if seen[-1] == "Bearer sesame-open":
            return False
        handler.refuse(401, f"the key {seen[-1]} is wrong")
        return True

    def echoing(handler: Any, request: Any) -> bool:
        handler.refuse(500, f"no engine for {handler.headers.get('Authorization')}")
        return True

    monkeypatch.setenv("SERVICE_KEY", "sesame-open")
    with SmallService({"/v1/models": guarded, "/v1/completions": echoing}) as service:
        assert verify(service.url, "--api-key-env", "SERVICE_KEY", "--only", "key", "completion") == 1
    assert set(seen) == {"Bearer sesame-open", None}
    output = capsys.readouterr()
    assert "sesame" not in output.out + output.err and "no engine for Bearer ***" in output.out


def test_ops_009_a_health_check_that_stays_green_is_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    """/health answers and the engine does not."""
    with SmallService({"/v1/completions": silence}) as service:
        code, report = verified(capsys, service.url, "--only", "completion", "--timeout-s", "2")
    assert code == 1 and outcomes(report)["ready"]["status"] == "ok"
    assert outcomes(report)["completion"]["symptom"] == "no_answer_in_time"


def test_ops_006_a_port_with_another_protocol_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with SmallService({"/health": other_protocol}) as service:
        code, report = verified(capsys, service.url, "--wait-s", "60")
    outcome = outcomes(report)["ready"]
    assert code == 1 and outcome["symptom"] == "no_http" and "--data-parallel-rpc-port" in outcome["advice"]


def test_only_and_skip_take_lists_with_commas(capsys: pytest.CaptureFixture[str]) -> None:
    with SmallService() as service:
        _, report = verified(capsys, service.url, "--only", "chat,stop", "window", "--skip", "window")
    assert list(outcomes(report)) == ["ready", "model", "completion", "chat", "stop"]


def test_the_list_of_checks_needs_no_service(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 27 and lines[0].split()[0] == "ready"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the URL"),
        (["127.0.0.1:8000"], "did you mean http://127.0.0.1:8000"),
        (["ftp://127.0.0.1"], "no address"),
        (["http://127.0.0.1:99999"], "URL"),
        (["http://a:b@127.0.0.1"], "--api-key-env"),
        (["http://127.0.0.1/v1?key=1"], "leave out"),
        (["http://a", "http://b"], "one URL"),
        (["http://a", "--only", "speed"], "there is no check speed; there are: ready"),
        (["http://a", "--only", "ready", "--skip", "ready"], "no check"),
        (["http://a", "--skip", "model"], "--model"),
        (["http://a", "--api-key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY is not set"),
        (["https://a", "--ca-file", "no-such.pem"], "--ca-file no-such.pem"),
        (["--plan", "no-such.yaml"], "no-such.yaml"),
        (["http://a", "--concurrency", "0"], "--concurrency"),
        (["http://a", "--timeout-s", "0"], "--timeout-s"),
        (["http://a", "--modle", "x"], "--model"),
    ],
)
def test_mistakes_of_the_command_line_are_told(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(*arguments) == 2
    assert said in capsys.readouterr().err


def test_help_is_complete_and_loads_no_service_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("--help") == 0
    text = capsys.readouterr().out
    assert all(flag in text for flag in ("--only", "--api-key-env", "--plan", "--wait-s", "Examples:"))
    code = (
        "import sys; from qanat.cli.main import main; main(['deploy', 'verify', '--help']); "
        "sys.exit(bool({'asyncio', 'yaml', 'torch', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_plan_fills_url_model_window_and_concurrency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import msgspec

    from qanat.deploy.plan.files import encode_plan
    from tests.deploy.plan.example_plans import single_node

    with SmallService() as service:
        plan = single_node()
        node = msgspec.structs.replace(plan.nodes[0], address="127.0.0.1")
        role = msgspec.structs.replace(plan.roles[0], flags={**plan.roles[0].flags, "max-model-len": 256})
        wish = msgspec.structs.replace(plan.wish, concurrency=3)
        plan = msgspec.structs.replace(
            plan,
            nodes=(node,),
            roles=(role,),
            wish=wish,
            port=service.server_address[1],
            served_model_name="small",
        )
        (tmp_path / "plan.yaml").write_text(encode_plan(plan), encoding="utf-8")
        code, report = verified(capsys, "--plan", str(tmp_path), "--only", "concurrency", "window")
    assert code == 0, report
    assert report["url"] == service.url
    assert outcomes(report)["concurrency"]["seen"].startswith("3 streams")
    assert "255 + 1 tokens" in outcomes(report)["window"]["seen"]


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    """A real process at a service that never answers ends at once and says nothing of tracebacks."""
    import signal
    import threading

    asked = threading.Event()

    def silence(handler: Any, request: Any) -> bool:
        asked.set()
        handler.server.is_over.wait()
        return True

    with SmallService({"/v1/completions": silence}) as service:
        process = subprocess.Popen(
            [sys.executable, "-m", "qanat", "deploy", "verify", service.url, "--only", "completion"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in error


def test_a_terminal_gets_colours_and_unbroken_lines() -> None:
    import pty

    (fault,) = FAULTS["sampling_fails"]
    ours, theirs = pty.openpty()
    with SmallService(fault.overrides) as service, open(ours, "rb", buffering=0) as terminal:
        command = [sys.executable, "-m", "qanat", "deploy", "verify", service.url, "--only", "temperature"]
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "40"}
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        output = b""
        with contextlib.suppress(OSError):  # the terminal is closed at the other end
            while piece := terminal.read(4096):
                output += piece
        assert process.wait(60) == 1
    lines = output.decode().split("\r\n")
    (failed,) = [line for line in lines if "temperature" in line]
    assert failed.startswith("\x1b[1;31mfail\x1b[0m") and failed.endswith("device error")


@pytest.mark.slow
def test_qanat_with_the_demo_model_passes(capsys: pytest.CaptureFixture[str]) -> None:
    import qanat_demo

    with ServerProcess(
        [
            str(qanat_demo.model_path()),
            "--served-model-name",
            "demo",
            "--max-num-seqs",
            "16",
            "--max-model-len",
            "2048",
        ]
    ) as server:
        code, report = verified(capsys, server.base_url, "--model", "demo", "--concurrency", "12")
    statuses = {name: outcome["status"] for name, outcome in outcomes(report).items()}
    assert code == 0, report
    assert {name: status for name, status in statuses.items() if status != "ok"} == {
        "key": "skipped",
        "drafts": "skipped",
    }
    assert report["max_model_len"] == 2048
