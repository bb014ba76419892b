"""A rendered folder as input: its scripts see env.sh, nodes are compared, and nothing is told twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from qanat.cli.main import main
from qanat.deploy.plan.model import Plan
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import RenderOptions
from tests.deploy.plan.example_plans import PLANS, disaggregated, two_nodes


def write(folder: Path, plan: Plan) -> Path:
    for path, file in render(plan, RenderOptions()).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(file.text, encoding="utf-8")
    return folder


def found(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    main(["deploy", "lint", str(folder), "--json"])
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return [{**one, "file": str(Path(one["file"]).relative_to(folder))} for one in findings]


def grave(findings: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(one["rule"], one["file"]) for one in findings if one["severity"] != "info"}


@pytest.mark.parametrize("name", PLANS)
def test_it_is_clean_and_nothing_is_told_twice(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = found(write(tmp_path, PLANS[name]()), capsys)
    assert grave(findings) == set()
    told = [(one["rule"], one["message"], Path(one["file"]).parent.name) for one in findings]
    assert len(told) == len(set(told))
    assert not any(one["file"].startswith("kubernetes/") for one in findings)


def edit(folder: Path, path: str, before: str, after: str) -> None:
    text = (folder / path).read_text(encoding="utf-8")
    assert before in text
    (folder / path).write_text(text.replace(before, after), encoding="utf-8")


DAMAGE = {
    "a node with other limits": (
        two_nodes,
        "nodes/server-1/serve.sh",
        "--max-num-seqs ",
        "--max-num-seqs 1",
        ("TOP008", "nodes/server-1/serve.sh"),
    ),
    "a loopback address": (
        two_nodes,
        "env.sh",
        "\nADDRESS_SERVER_0=",
        "\nADDRESS_SERVER_0=127.0.0.1 # ",
        ("ENV017", "nodes/server-0/serve.sh"),
    ),
    "a port in the random range": (
        disaggregated,
        "nodes/prefill-0/serve.sh",
        '"36100"',
        '"23010"',
        ("PD004", "nodes/prefill-0/serve.sh"),
    ),
    "prefill with other speculation": (
        disaggregated,
        "nodes/prefill-0/serve.sh",
        '"num_speculative_tokens": 3',
        '"num_speculative_tokens": 1',
        ("HYB006", "nodes/prefill-0/serve.sh"),
    ),
    "the other proxy": (
        disaggregated,
        "proxy/serve.sh",
        "load_balance_proxy_layerwise_server_example.py",
        "load_balance_proxy_server_example.py",
        ("PD001", "proxy/serve.sh"),
    ),
    "a port that nobody listens on": (
        disaggregated,
        "proxy/serve.sh",
        "--decoder-ports 30050",
        "--decoder-ports 30051",
        ("PD022", "proxy/serve.sh"),
    ),
    "a container without the addresses of its cards": (
        disaggregated,
        "nodes/prefill-0/container.sh",
        "  --volume /etc/hccn.conf:/etc/hccn.conf:ro \\\n",
        "",
        ("PD012", "nodes/prefill-0/container.sh"),
    ),
    "a service without the addresses of its cards": (
        disaggregated,
        "compose/decode-0.yaml",
        "target: /etc/hccn.conf",
        "target: /etc/hccn",
        ("PD012", "compose/decode-0.yaml"),
    ),
    "a container with half of the cards": (
        disaggregated,
        "nodes/decode-0/container.sh",
        "".join(f"  --device /dev/davinci{number} \\\n" for number in range(8, 16)),
        "",
        ("TOP007", "nodes/decode-0/container.sh"),
    ),
    "a variable of another release": (
        two_nodes,
        "env.sh",
        "ADDRESS_SERVER_0",
        "export VLLM_USE_V1=1\nADDRESS_SERVER_0",
        ("ENV003", "env.sh"),
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_at_its_place(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, path, before, after, expected = DAMAGE[name]
    make: Callable[[], Plan] = plan
    folder = write(tmp_path, make())
    edit(folder, path, before, after)
    assert grave(found(folder, capsys)) == {expected}


def test_the_router_of_a_folder_is_held_to_its_connector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = disaggregated()
    assert plan.proxy is not None
    folder = write(tmp_path, replace(plan, proxy=replace(plan.proxy, program="qanat router")))
    assert grave(found(folder, capsys)) == set()
    edit(folder, "proxy/serve.sh", "--connector push", "--connector pull")
    assert grave(found(folder, capsys)) == {("PD001", "proxy/serve.sh")}
