"""Settings of engines that are not the same on every node: interfaces and addresses."""

from __future__ import annotations

INTERFACE_VARIABLES = ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
"""Variables that name the network interface of the node."""
ADDRESS_VARIABLES = ("HCCL_IF_IP", "VLLM_HOST_IP")
"""Variables that hold the address of the node."""
FIRST_ADDRESS_VARIABLES = ("MASTER_ADDR", "VLLM_DP_MASTER_IP")
"""Variables that hold the address of the first node of its group."""
FIRST_ADDRESS_FLAGS = ("data-parallel-address", "master-addr")
"""Flags of `vllm serve`, without dashes in front, that hold the address of the first node of its group."""
