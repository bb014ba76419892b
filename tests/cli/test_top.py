"""`qanat top` against the real HTTP application, and against servers that cannot be read."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from qanat.bench.live.watch import View, Watched, read_all
from qanat.bench.online.target import Target
from qanat.cli.main import main
from qanat.cli.top_screen import BARS, Screen, spark
from qanat.deploy.verify.address import read_address
from tests.support.app_server import AppServer, serving
from tests.support.server_process import free_port
from tests.support.small_service import SmallService

SHORT = ("--interval", "0.05")


@pytest.fixture(scope="module")
def server() -> Iterator[AppServer]:
    with serving() as running:
        running.say(["a", "b", "c", "STOP"])
        body = {"prompt": "abcd", "max_tokens": 3}
        assert running.post("/v1/completions", body).status_code == 200
        running.wait_until_idle()
        yield running


def free_url() -> str:
    return f"http://127.0.0.1:{free_port()}"


def test_one_snapshot_is_plain_text(server: AppServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--base-url", server.url, *SHORT]) == 0
    output = capsys.readouterr()
    assert output.err == "" and "\x1b" not in output.out
    lines = output.out.splitlines()
    assert lines[0].startswith(f"{server.url}  ")
    rows = {line[:14].strip(): line[14:] for line in lines[1:]}
    assert rows["requests"].startswith("0 running, 0 waiting")
    assert "ms" in rows["TTFT"] and rows["TTFT"].endswith("(since the start)")
    assert rows["queue"].startswith("mean ") and "p50 <= 300" in rows["queue"]
    assert rows["KV cache"] == "0.0% in use"
    assert rows["prefix cache"].startswith("0.0% of 4 prompt tokens")
    assert rows["speculation"] == "-"


def test_the_snapshot_for_programs(server: AppServer, capsys: pytest.CaptureFixture[str]) -> None:
    absent = free_url()
    urls = ("--base-url", server.url, absent, "--once", f"--base_url={server.url}/v1", "--json")
    assert main(["top", *urls, *SHORT]) == 1
    output = capsys.readouterr()
    here, away = json.loads(output.out)["servers"]
    assert here["server"] == server.url and here["duration_s"] >= 0.05
    assert here["latency_ms"]["ttft"]["count"] == 1
    assert here["step_tokens"]["count"] >= 3
    assert isinstance(here["decisions"], list)
    assert away["server"] == absent and "nothing listens" in away["error"]
    assert "cannot be read" in output.err


def test_a_server_that_cannot_be_reached_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    url = free_url()
    assert main(["top", "--once", "--base-url", url]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"qanat top: error: {url} cannot be read: refused: nothing listens")


def test_a_server_without_metrics_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def hide(handler: Any, _: dict[str, Any]) -> bool:
        handler.refuse(404, "no such path")
        return True

    with SmallService({"/metrics": hide}) as service:
        assert main(["top", "--once", "--base-url", service.url]) == 1
    assert "GET /metrics has the status 404" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--base-url", "nowhere"], "nowhere is no address"),
        (["--interval", "0"], "--interval: 0.0 is too small"),
        (["http://127.0.0.1:8000"], "named with --base-url"),
        (["--header", "x"], "NAME=VALUE"),
    ],
)
def test_bad_flags_are_named(arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", *arguments]) == 2
    assert part in capsys.readouterr().err


def test_without_once_readings_go_on_as_lines_of_json(server: AppServer) -> None:
    command = [sys.executable, "-m", "qanat", "top", "--json", "--base-url", server.url, *SHORT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        try:
            lines = [json.loads(process.stdout.readline())["servers"][0] for _ in range(3)]
        finally:
            process.kill()
    assert lines[0]["generation_tokens_per_s"] is None
    assert lines[2]["generation_tokens_per_s"] == 0
    assert lines[2]["duration_s"] > lines[1]["duration_s"] > 0


def drawn(views: list[View]) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    console.print(Screen().draw(views))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_screen_has_a_panel_for_each_server(server: AppServer) -> None:
    watched = [Watched(Target(read_address(url), ""), None, 10.0) for url in (server.url, free_url())]

    async def twice() -> list[View]:
        await read_all(watched)
        return await read_all(watched)

    text = drawn(asyncio.run(twice()))
    assert server.url in text and "TTFT" in text and BARS[0] in text
    assert "nothing listens" in text


def test_the_course_of_a_rate() -> None:
    assert spark([0.0, 0.0]) == "▁▁"
    assert spark([0.0, 5.0, 10.0]) == "▁▅█"
    assert spark([]) == ""
