"""Servers that share a host: when two of them run at once on the same cards, and when they do not."""

from __future__ import annotations

import pytest

from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_document

ONE = "vllm serve Qwen/Qwen3-32B -tp 4"
TWO = "vllm serve Qwen/Qwen3-8B --port 8001"
RUN = "docker run -d --device /dev/davinci{} quay.io/ascend/vllm-ascend:v0.23.0 vllm serve Qwen/Qwen3-8B"


def rules(text: str, name: str = "start.sh") -> set[str]:
    return {one.rule_id for one in lint([read_document(name, text)], "v0.23.0")}


@pytest.mark.parametrize(
    "text",
    [
        f"{ONE} &\n{TWO} &\n",
        f"nohup {ONE} > one.log 2>&1 &\nsleep 60\nnohup {TWO} > two.log 2>&1 &\n",
        f"export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3\n{ONE} &\nASCEND_RT_VISIBLE_DEVICES=2 {TWO} &\n",
        f"{ONE} --gpu-memory-utilization 0.6 &\n{TWO} --gpu-memory-utilization 0.5 &\n",
        f"{RUN.format(0)}\n{RUN.format(0)} --port 8001\n",
        f"{ONE} &\n{TWO}\n",
    ],
)
def test_two_servers_on_one_card(text: str) -> None:
    assert "MEM004" in rules(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{ONE}\n{TWO}\n",
        f"{ONE} && {TWO}\n",
        f"{ONE} >one.log 2>&1\n{TWO}\n",
        f"ASCEND_RT_VISIBLE_DEVICES=0-3 {ONE} &\nASCEND_RT_VISIBLE_DEVICES=4 {TWO} &\n",
        f"{ONE} --gpu-memory-utilization 0.5 &\n{TWO} --gpu-memory-utilization 0.4 &\n",
        f"{ONE} --gpu-memory-utilization $SHARE &\n{TWO} &\n",
        f"if [ $1 = one ]; then\n{ONE} &\nelse\n{TWO} &\nfi\n",
        f"case $1 in\none) {ONE} & ;;\ntwo) {TWO} & ;;\nesac\n",
        f"one() {{\n  {ONE} &\n}}\ntwo() {{\n  {TWO} &\n}}\n$1\n",
        f'{ONE} &\nkill "$!"\n{TWO} &\n',
        f"ssh one '{ONE} &'\nssh two '{TWO} &'\n",
        f"{RUN.format(0)}\n{RUN.format(1)} --port 8001\n",
        f"{RUN.format(0)}\ndocker stop one\n{RUN.format(0)} --port 8001\n",
        f"ASCEND_RT_VISIBLE_DEVICES=$FIRST {ONE} &\n{TWO} &\n",
        f"# Guide\n\n```\n{ONE} &\n```\n\nOr:\n\n```\n{TWO} &\n```\n",
    ],
)
def test_two_servers_that_do_not_meet(text: str) -> None:
    assert not {"MEM004", "ENV022"} & rules(text, "guide.md" if text.startswith("# Guide") else "start.sh")


def service(number: int, device: int, share: float) -> str:
    return (
        f"  s{number}:\n    image: quay.io/ascend/vllm-ascend:v0.23.0\n    devices: [/dev/davinci{device}]\n"
        f"    environment: {{PROMETHEUS_MULTIPROC_DIR: /srv/metrics}}\n"
        f"    command: vllm serve Qwen/Qwen3-8B --port 800{number} --gpu-memory-utilization {share}\n"
    )


@pytest.mark.parametrize(("device", "share", "is_found"), [(0, 0.9, True), (1, 0.9, False), (0, 0.5, False)])
def test_services_of_a_compose_file_run_at_once(device: int, share: float, is_found: bool) -> None:
    text = "services:\n" + service(0, 0, share) + service(1, device, share)
    found = rules(text, "compose.yaml")
    assert ("MEM004" in found) is is_found
    assert "ENV022" not in found  # each has a file system of its own


HOST = "docker run {} quay.io/ascend/vllm-ascend:v0.23.0 bash -c '{}'"


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (HOST.format("-d", "sysctl -w vm.swappiness=0"), True),
        (HOST.format("-d", "echo performance > /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), True),
        (HOST.format("-d", "echo 1 | tee /proc/sys/vm/swappiness"), True),
        (HOST.format("-d --privileged", "sysctl -w vm.swappiness=0"), False),
        (HOST.format("-d", "sysctl vm.swappiness"), False),
        (HOST.format("-d", "echo performance > /srv/governor"), False),
        ("sysctl -w vm.swappiness=0", False),
    ],
)
def test_host_settings_inside_a_container(text: str, is_found: bool) -> None:
    assert ("HOST003" in rules(text)) is is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (f"taskset -c 0-15 {ONE}", True),
        (f"taskset -c 0-19 {ONE}", False),
        (f"numactl -C 0,1,2,3 {ONE}", True),
        (f"systemctl start irqbalance\n{ONE}", True),
        (f"systemctl stop irqbalance\n{ONE}", False),
        (f"taskset -c 0-15 {ONE} --additional-config '{{\"enable_cpu_binding\": false}}'", False),
        (f"taskset -c $CPUS {ONE}", False),
    ],
)
def test_cpus_for_workers_that_bind_themselves(text: str, is_found: bool) -> None:
    assert ("HOST006" in rules(text)) is is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("export LD_PRELOAD=/usr/lib/aarch64-linux-gnu/libjemalloc.so.2\n", False),
        ("export LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2\n", True),
        ("# ARM: aarch64\nexport LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2\n", False),
    ],
)
def test_binding_on_hosts_of_another_architecture(text: str, is_found: bool) -> None:
    server = f"{ONE} --additional-config '{{\"enable_cpu_binding\": true}}'"
    assert ("HOST004" in rules(text + server)) is is_found


def test_devices_of_one_chip_and_the_image_of_another() -> None:
    text = "docker run --device /dev/ummu quay.io/ascend/vllm-ascend:v0.23.0{} bash"
    assert "HOST015" in rules(text.format("-a3"))
    assert "HOST015" not in rules(text.format("-950dt"))
