from __future__ import annotations

from qanat.deploy.plan.model import Plan
from qanat.deploy.rendered.inputs import with_edits
from tests.deploy.plan.example_plans import single_node, two_nodes


def test_what_is_edited_in_the_folder_reaches_variables_and_flags() -> None:
    plan: Plan = with_edits(two_nodes(), {"ADDRESS_SERVER_0": "192.0.2.1", "INTERFACE_SERVER_1": "bond0"})
    second = plan.nodes[1]
    assert second.flags["data-parallel-address"] == "192.0.2.1"
    assert second.env["GLOO_SOCKET_IFNAME"] == "bond0" and second.env["HCCL_IF_IP"] == ""
    assert plan.nodes[0].env["HCCL_IF_IP"] == "192.0.2.1"
    moved = with_edits(single_node(), {"MODEL_PATH": "/mnt/weights"})
    assert moved.model_source == "/mnt/weights"
