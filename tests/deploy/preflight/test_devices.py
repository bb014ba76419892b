from __future__ import annotations

import pytest

from qanat.deploy.preflight.devices import check_engine
from qanat.deploy.preflight.driver import check_cann, check_version
from qanat.deploy.preflight.host import Output
from qanat.deploy.preflight.links import check_links
from qanat.deploy.preflight.recording import RecordedHost, Recording
from qanat.deploy.preflight.result import Status
from qanat.deploy.preflight.target import Target, target_of
from tests.deploy.plan.example_plans import disaggregated, single_node
from tests.deploy.preflight.test_recorded import recording

ASK = "info --format {{json .Runtimes}}"


@pytest.mark.parametrize(
    ("commands", "paths", "status", "seen"),
    [
        ({f"nerdctl {ASK}": Output(text="{}")}, [], Status.OK, "nerdctl answers"),
        (
            {f"docker {ASK}": Output(exit_code=1, text="no daemon"), f"podman {ASK}": Output(text="{}")},
            [],
            Status.OK,
            "podman answers",
        ),
        ({f"docker {ASK}": Output(exit_code=1, text="a\nno daemon\n")}, [], Status.FAIL, "no daemon"),
        ({f"docker {ASK}": Output(problem="timed out")}, [], Status.FAIL, "timed out"),
        ({}, ["/run/containerd/containerd.sock"], Status.WARN, "containerd runs"),
        ({}, [], Status.FAIL, "none of docker, nerdctl, podman"),
    ],
)
def test_container_engines(commands: dict[str, Output], paths: list[str], status: Status, seen: str) -> None:
    host = RecordedHost(Recording(commands=commands, paths=paths))
    first = next(iter(check_engine(host, target_of(single_node()))))
    assert first.status is status and seen in first.seen
    without_plan = next(iter(check_engine(host, Target())))
    assert without_plan.status is not Status.FAIL


def test_versions_that_are_not_in_the_tables_are_unknown() -> None:
    def host(version: str) -> RecordedHost:
        files = {"/usr/local/Ascend/driver/version.info": f"Version={version}\n"}
        return RecordedHost(Recording(files=files))

    target = target_of(None, image="v0.23.0")
    assert [each.status for each in check_cann(host("V100R001"), target)] == [Status.UNKNOWN]
    assert [each.status for each in check_cann(host("25.5.1"), Target())] == [Status.UNKNOWN]
    assert list(check_cann(RecordedHost(Recording()), target)) == []
    assert [each.status for each in check_version(RecordedHost(Recording()), target)] == [Status.UNKNOWN]


def test_without_hccn_tool_links_are_unknown() -> None:
    host = recording("a3_ready")
    host.commands = {words: output for words, output in host.commands.items() if "hccn_tool" not in words}
    assert [each.status for each in check_links(RecordedHost(host), Target())] == [Status.UNKNOWN]


def test_two_npus_with_one_address() -> None:
    host = recording("a3_ready")
    host.commands["hccn_tool -i 5 -ip -g"] = host.commands["hccn_tool -i 4 -ip -g"]
    failed = [each.seen for each in check_links(RecordedHost(host), Target()) if each.status is Status.FAIL]
    assert failed == ["NPUs 4 and 5 both have 29.1.112.14"]


def test_tls_that_only_root_can_see() -> None:
    host = recording("a3_ready")
    for words in host.commands:
        if words.endswith("-tls -g"):
            host.commands[words] = Output(exit_code=1, text="Permission denied\n")
    found = {
        each.check: each for each in check_links(RecordedHost(host), target_of(disaggregated(), "decode-0"))
    }
    assert found["npu-tls"].status is Status.UNKNOWN and found["npu-link"].status is Status.OK
