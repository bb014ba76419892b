"""The process of another host than the first, over a real connection to whoever plays node 0."""

from __future__ import annotations

import os
import signal
import time

import pytest

from qanat.executor import node_process
from qanat.executor.multiproc import MultiprocExecutor
from qanat.executor.node_line import NodeLine
from qanat.executor.node_link import NodeLink
from qanat.executor.node_messages import Beat, Farewell, NodeMessage, NodeReport
from qanat.executor.node_process import GroupEndedError, Node
from qanat.executor.stop_signal import StoppedError, StopSignal
from tests.executor.test_multiproc import plan_of
from tests.executor.test_node_line import connection
from tests.executor.tiny_node import node_config


class SlowNode(Node):
    """Takes longer over every message than node 0 may be silent."""

    def _take(self, message: NodeMessage) -> None:
        super()._take(message)
        time.sleep(1.5 * node_process.SILENCE_S)


def ends() -> tuple[NodeLine, NodeLine]:
    ours, theirs = connection()
    return NodeLine(ours), NodeLine(theirs)


def test_the_time_that_a_message_takes_here_is_no_silence_of_node_0s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_process, "SILENCE_S", 1.0)
    head, line = ends()
    for message in (Beat(), Farewell("that is all")):
        head.send(message)
    with pytest.raises(GroupEndedError, match="that is all"):
        SlowNode(node_config(1, "127.0.0.1", 1), line, "127.0.0.1", StopSignal()).run()
    head.close()
    line.close()


def test_a_node_is_told_why_node_0_could_not_start_its_own_ranks() -> None:
    head, line = ends()
    config = node_config(0, "127.0.0.1", 1, tensor_parallel_size=4)
    link = NodeLink(head, NodeReport(1, 2, 1, "there", "?", "127.0.0.1", {}, {}, 0), range(2, 4))
    with pytest.raises(FileNotFoundError):
        MultiprocExecutor(config, plan_of(config), links=[link], command=("/there/is/no/such/program",))
    message = line.receive()
    while isinstance(message, Beat):
        message = line.receive()
    assert isinstance(message, Farewell) and "/there/is/no/such/program" in message.words
    line.close()


def test_a_signal_waits_for_the_end_of_a_message_and_further_ones_change_nothing() -> None:
    stop, done = StopSignal(), []
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(StoppedError), stop.heard():
            with stop.deferred():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("message")
            done.append("more")
        os.kill(os.getpid(), signal.SIGTERM)
        with stop.deferred():
            done.append("farewell")
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert done == ["message", "farewell"]
