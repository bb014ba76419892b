"""Environment variables together with the flags of the server that sees them."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.deploy.lint.edits import remove_assignment
from qanat.deploy.lint.finding import Edit
from qanat.deploy.lint.reading import is_truthy
from qanat.deploy.lint.registry import Hit, on_flags, on_server
from qanat.deploy.lint.view import ADDITIONAL, FLASHCOMM1_KEY_SINCE, LaunchView
from qanat.deploy.node_settings import INTERFACE_VARIABLES

MAX_AIV_TIMEOUT_S = 1091
DENSE_SWITCHES = (
    "VLLM_ASCEND_ENABLE_DENSE_OPTIMIZE",
    "VLLM_ASCEND_ENABLE_PREFETCH_MLP",
    "VLLM_ASCEND_MLP_GATE_UP_PREFETCH_SIZE",
    "VLLM_ASCEND_MLP_DOWN_PREFETCH_SIZE",
)
PERMISSIONS = ("DYNAMIC_EPLB", "EXPERT_MAP_RECORD")
SWITCH_KEYS = {
    "VLLM_ASCEND_ENABLE_FLASHCOMM1": "enable_flashcomm1",
    "VLLM_ASCEND_ENABLE_FUSED_MC2": "enable_fused_mc2",
    "VLLM_ASCEND_ENABLE_MLAPO": "enable_mlapo",
    "VLLM_ASCEND_ENABLE_NZ": "weight_nz_mode",
    "VLLM_ASCEND_BALANCE_SCHEDULING": "enable_balance_scheduling",
    "MSMONITOR_USE_DAEMON": "msmonitor_use_daemon",
}


@on_server("ENV001", "ENV002")
def graphs(view: LaunchView) -> Iterator[Hit]:
    """Settings that capture refuses."""
    if view.is_eager:
        return
    queue = view.variable("TASK_QUEUE_ENABLE")
    if queue is not None and queue.value.text == "2":
        edit = Edit(queue.value.place, "1")
        yield Hit("ENV001", queue.place, "graphs cannot be captured with TASK_QUEUE_ENABLE=2", None, (edit,))
    blocking = view.variable("ASCEND_LAUNCH_BLOCKING")
    if blocking is not None and is_truthy(blocking.value.text):
        yield Hit("ENV002", blocking.place, "graphs cannot be captured with ASCEND_LAUNCH_BLOCKING=1")


@on_server("ENV035")
def sleeping(view: LaunchView) -> Iterator[Hit]:
    """The allocator's setting that sleep mode refuses."""
    allocator = view.variable("PYTORCH_NPU_ALLOC_CONF")
    if allocator is None or not view.switch("--enable-sleep-mode"):
        return
    if "expandable_segments:true" in allocator.value.text.lower():
        yield Hit("ENV035", allocator.place, "--enable-sleep-mode does not go with expandable segments")


@on_server("ENV012", "ENV031")
def switches(view: LaunchView) -> Iterator[Hit]:
    """Switches that both a variable and a key set."""
    if view.version < FLASHCOMM1_KEY_SINCE:
        return
    for name, key in SWITCH_KEYS.items():
        assignment, node = view.variable(name), view.key(ADDITIONAL, key)
        if assignment is None:
            continue
        if node is None:
            message = f"{name} is replaced by {key} in --additional-config"
            yield Hit("ENV031", assignment.place, message, f'"{key}" in --additional-config')
        elif key == "enable_flashcomm1" and is_truthy(node.value) != is_truthy(assignment.value.text):
            message = f"{name} and {key} disagree; the key wins"
            yield Hit("ENV012", assignment.place, message)


@on_server("ENV015", "ENV017", "ENV030")
def communication(view: LaunchView) -> Iterator[Hit]:
    """HCCL's settings among each other."""
    timeout, mode = view.variable("HCCL_EXEC_TIMEOUT"), view.variable("HCCL_OP_EXPANSION_MODE")
    if timeout is not None and mode is not None and mode.value.text == "AIV" and timeout.value.text.isdigit():
        if not 0 < int(timeout.value.text) <= MAX_AIV_TIMEOUT_S:
            message = f"with AIV the timeout is {MAX_AIV_TIMEOUT_S} seconds, not {timeout.value.text}"
            yield Hit("ENV015", timeout.place, message)
    links = [view.variable(f"HCCL_INTRA_{link}_ENABLE") for link in ("PCIE", "ROCE")]
    if all(link is not None and link.value.text == "1" for link in links) and links[1] is not None:
        yield Hit("ENV030", links[1].place, "PCIe and RoCE are both on inside the server")
    yield from _interfaces(view)


def _interfaces(view: LaunchView) -> Iterator[Hit]:
    named = [view.variable(name) for name in INTERFACE_VARIABLES]
    given = [one for one in named if one is not None and "," not in one.value.text]
    texts = {one.value.text.strip("=^") for one in given}
    if len(texts) > 1:
        listed = ", ".join(f"{one.name}={one.value.text}" for one in given)
        yield Hit("ENV017", given[-1].place, f"interfaces disagree: {listed}")
    has_peers = view.dp_local < view.dp or (view.integer("--nnodes") or 1) > 1 or view.kv_role is not None
    address = view.variable("HCCL_IF_IP")
    loopback = [one for one in given if one.value.text.strip("=^") == "lo"]
    if address is not None and address.value.text.startswith(("127.", "::1", "localhost")):
        loopback.append(address)
    if has_peers and loopback:
        message = f"{loopback[0].name} is the loopback, which other nodes cannot reach"
        yield Hit("ENV017", loopback[0].place, message)


@on_server("ENV018", "ENV019")
def balancing(view: LaunchView) -> Iterator[Hit]:
    """Expert balancing and its permission."""
    switch = view.is_key_on("eplb_config", "dynamic_eplb")
    permission = view.variable("DYNAMIC_EPLB")
    is_permitted = view.is_variable_on("DYNAMIC_EPLB") or view.is_variable_on("EXPERT_MAP_RECORD")
    if permission is not None and view.is_variable_on("DYNAMIC_EPLB") and not (switch and switch.is_on):
        message = "DYNAMIC_EPLB only permits balancing; eplb_config.dynamic_eplb is not on"
        edits = remove_assignment(permission)
        yield Hit("ENV018", permission.place, message, None, edits)
    is_told = any(one.name in PERMISSIONS for one in view.document.assignments)
    if switch is not None and switch.is_on and not is_permitted and not is_told:
        yield Hit("ENV019", switch.place, "neither DYNAMIC_EPLB nor EXPERT_MAP_RECORD is set")


@on_flags("ENV020")
def web_proxy(view: LaunchView) -> Iterator[Hit]:
    """A web proxy between the parts of a service."""
    if view.launch.kind not in ("serve", "proxy"):
        return
    if view.launch.kind == "serve" and view.kv_role is None:
        return
    exempt = view.variable("no_proxy") or view.variable("NO_PROXY")
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        assignment = view.variable(name)
        if assignment is not None and assignment.value.text and exempt is None:
            yield Hit("ENV020", assignment.place, f"{name} is set and no_proxy is not")


@on_server("MOE016")
def dense_switches(view: LaunchView) -> Iterator[Hit]:
    """Switches of dense models for a mixture of experts, also where the guide sets them before this command."""
    if view.model is None or not view.model.is_moe:
        return
    for assignment in dict.fromkeys((*view.document.assignments, *view.launch.env.values())):
        if assignment.name in DENSE_SWITCHES and assignment.origin != "shell":
            message = f"{assignment.name} is for dense models; {view.model.name} is a mixture of experts"
            yield Hit("MOE016", assignment.place, message)
