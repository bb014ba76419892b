"""One group of ranks on several hosts: the same bits as on one, and whoever is missing, wrong or gone is named."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from qanat.config.env import CLUSTER_KEY_VARIABLE
from qanat.core.errors import CapacityError, ConfigError, EngineDeadError
from qanat.executor.gathering import gather
from qanat.executor.multiproc import MultiprocExecutor
from qanat.executor.starting import start_executor
from tests.executor.test_multiproc import plan_of, requests_in, shared_config
from tests.executor.test_uniproc import Loop
from tests.executor.tiny_node import TinyNodes
from tests.netns import namespaces
from tests.worker.driver import random_prompt

END_S = 60.0
AVAILABLE_BYTES = 2**31


def started(nodes: TinyNodes, **changes: Any) -> MultiprocExecutor:
    _, executor = start_executor(nodes.config(**changes), AVAILABLE_BYTES, None)
    assert isinstance(executor, MultiprocExecutor)
    return executor


def end_of(node: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and what it logged."""
    output, _ = node.communicate(timeout=END_S)
    return node.returncode, output


def state_of(pid: int) -> str:
    """Linux's letter for what a process does."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def everything_of(executor: MultiprocExecutor, size: int) -> tuple[Any, Any]:
    loop = Loop(shared_config(size), executor)
    requests_in(loop)
    loop.add("prompt", random_prompt(30, 7), 4, prompt_logprobs=3)
    loop.run()
    loop.check_idle()
    return loop.tokens, loop.prompt_logprobs


def on_one_host(size: int) -> tuple[Any, Any]:
    config = shared_config(size)
    executor = MultiprocExecutor(config, plan_of(config))
    try:
        return everything_of(executor, size)
    finally:
        executor.shutdown()


def test_two_hosts_give_the_bits_of_one_and_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, "a key that both hosts have")
    with namespaces(2) as (here, there), TinyNodes(here.address, there.start) as nodes:
        node = nodes.start()
        with here.inside():
            executor = started(nodes)
        try:
            assert everything_of(executor, 2) == on_one_host(2)
            (peer,) = executor._ranks.peers
            assert there.address in peer.name and executor.collective_s > 0
        finally:
            executor.shutdown()
        code, output = end_of(node)
        assert code == 0 and "Node 0 has ended the group." in output


@pytest.mark.slow
def test_two_hosts_with_two_ranks_each_give_the_bits_of_one_with_four() -> None:
    with namespaces(2) as (here, there), TinyNodes(here.address, there.start) as nodes:
        node = nodes.start(tensor_parallel_size=4)
        with here.inside():
            executor = started(nodes, tensor_parallel_size=4)
        try:
            assert everything_of(executor, 4) == on_one_host(4)
            victim = executor._ranks.peers[2]
            os.kill(victim.pid, signal.SIGKILL)
            with pytest.raises(
                EngineDeadError, match=rf"Rank 3 \(process {victim.pid} on .* was killed by SIGKILL"
            ):
                everything_of(executor, 4)
        finally:
            executor.shutdown()
        assert end_of(node)[0] == 1


@pytest.mark.slow
def test_a_rank_of_another_host_that_is_killed_is_named_on_both() -> None:
    with namespaces(2) as (here, there), TinyNodes(here.address, there.start) as nodes:
        node = nodes.start()
        with here.inside():
            executor = started(nodes)
        try:
            loop = Loop(shared_config(), executor)
            requests_in(loop)
            loop.step()
            (peer,) = executor._ranks.peers
            os.kill(peer.pid, signal.SIGKILL)
            with pytest.raises(
                EngineDeadError, match=rf"Rank 1 \(process {peer.pid} on .* was killed by SIGKILL"
            ):
                loop.run()
        finally:
            executor.shutdown()
        code, output = end_of(node)
        assert code == 1 and "The group ends: Rank 1" in output and "SIGKILL" in output


@pytest.mark.slow
def test_a_host_that_cannot_be_reached_any_more_is_named_on_both_sides() -> None:
    with namespaces(2) as (here, there), TinyNodes(here.address, there.start) as nodes:
        node = nodes.start()
        with here.inside():
            executor = started(nodes)
        try:
            loop = Loop(shared_config(), executor)
            requests_in(loop)
            loop.step()
            there.cut()
            with pytest.raises(
                EngineDeadError, match=rf"node 1 \(.* at {there.address}\) has been silent for"
            ):
                loop.run()
        finally:
            executor.shutdown()
        code, output = end_of(node)
        assert code == 1 and f"Node 0 at {here.address}:{nodes.port} has been silent for" in output


@pytest.mark.slow
def test_a_host_that_stands_still_is_named() -> None:
    with TinyNodes() as nodes:
        node = nodes.start()
        executor = started(nodes)
        try:
            os.kill(node.pid, signal.SIGSTOP)
            with pytest.raises(EngineDeadError, match="node 1 .* has been silent for"):
                while True:
                    executor.check()
                    time.sleep(0.01)
        finally:
            executor.shutdown()


@pytest.mark.slow
def test_the_ranks_of_a_process_that_stands_still_end_by_themselves() -> None:
    with TinyNodes() as nodes:
        node = nodes.start()
        executor = started(nodes)
        (peer,) = executor._ranks.peers
        try:
            os.kill(node.pid, signal.SIGSTOP)
        finally:
            executor.shutdown()
        deadline_s = time.monotonic() + 4 * END_S
        while state_of(peer.pid) != "Z":  # ended, and waits for its parent to ask how
            assert time.monotonic() < deadline_s
            time.sleep(0.1)


@pytest.mark.slow
def test_a_host_that_is_told_to_stop_ends_without_a_fault_and_says_so() -> None:
    with TinyNodes() as nodes:
        node = nodes.start()
        executor = started(nodes)
        try:
            while node.poll() is None:  # however often it is told
                node.terminate()
                time.sleep(0.05)
            assert end_of(node)[0] == 0
            with pytest.raises(EngineDeadError, match="node 1 .* was told to stop"):
                while True:
                    executor.check()
                    time.sleep(0.01)
        finally:
            executor.shutdown()


def test_a_host_that_does_not_come_is_named() -> None:
    with (
        TinyNodes() as nodes,
        pytest.raises(EngineDeadError, match=r"Node 1 did not report to 127\.0\.0\.1:\d+ in time"),
    ):
        started(nodes, init_timeout_s=0.5)


def test_of_a_name_that_stands_for_the_loopback_interface_it_is_said_that_no_other_host_reaches_it() -> None:
    with (
        TinyNodes("localhost") as nodes,
        pytest.raises(
            EngineDeadError, match="localhost stands for .* a loopback address, which no other host"
        ),
    ):
        started(nodes, init_timeout_s=0.5)


def test_a_host_without_host_0_gives_up() -> None:
    with TinyNodes() as nodes:
        code, output = end_of(nodes.start(init_timeout_s=0.5))
        assert code == 1 and f"Node 0 at 127.0.0.1:{nodes.port} did not answer within 0.2 s" in output


def test_a_host_whose_weights_cannot_be_read_says_so_before_it_looks_for_host_0(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    with TinyNodes() as nodes:
        code, output = end_of(nodes.start(load_format="auto", model_path=str(tmp_path)))
        assert code == 1 and "The weights cannot be read" in output and "Waiting for" not in output


def test_a_host_with_other_settings_is_refused_on_both_sides() -> None:
    with TinyNodes() as nodes:
        node = nodes.start(dtype="bfloat16")
        with pytest.raises(EngineDeadError, match="Node 1 .* dtype bfloat16 instead of float32"):
            started(nodes)
        code, output = end_of(node)
        assert code == 1 and "dtype bfloat16 instead of float32" in output


@pytest.mark.slow
def test_of_two_hosts_with_one_number_the_second_is_refused_and_the_others_go_on() -> None:
    with TinyNodes() as nodes, ThreadPoolExecutor(1) as pool:
        gathered = pool.submit(gather, nodes.config(count=3), time.monotonic() + 4 * END_S)
        twins = [nodes.start(1, count=3) for _ in range(2)]
        while all(twin.poll() is None for twin in twins):
            assert not gathered.done()
            time.sleep(0.01)
        (refused,) = [twin for twin in twins if twin.poll() is not None]
        code, output = end_of(refused)
        assert code == 1 and "there is a node 1 already" in output
        third = nodes.start(2, count=3)
        links = gathered.result(END_S)
        assert [link.report.node_rank for link in links] == [1, 2]
        for link in links:
            link.close()
        assert [end_of(node)[0] for node in (*(twin for twin in twins if twin is not refused), third)] == [
            0,
            0,
        ]


@pytest.mark.slow
def test_the_host_with_the_least_memory_decides_for_all() -> None:
    with TinyNodes() as nodes:
        nodes.start()
        with pytest.raises(CapacityError):
            start_executor(nodes.config(), 2**20, None)


def test_an_address_that_is_not_this_hosts_is_refused() -> None:
    with TinyNodes("192.0.2.1") as nodes, pytest.raises(ConfigError, match="--master-addr 192.0.2.1"):
        started(nodes)


def test_another_host_than_the_first_answers_nobody() -> None:
    with TinyNodes() as nodes, pytest.raises(ConfigError, match="--node-rank 1"):
        start_executor(nodes.config(1), AVAILABLE_BYTES, None)
