"""Mixtures of experts: FlashComm1, fused MC2, expert parallelism, HCCL's buffer."""

from __future__ import annotations

import math
from collections.abc import Iterator

from qanat.deploy.lint.reading import as_integer
from qanat.deploy.lint.registry import Hit, on_server
from qanat.deploy.lint.view import ADDITIONAL, LaunchView
from qanat.deploy.sizing.capture import DEFAULT_MAX_CAPTURE, mc2_buffer_mib
from qanat.deploy.sizing.communicators import uses_mc2

MAX_FUSED_RANKS = 32


@on_server("MOE001", "MOE002", "MOE011", "MOE013")
def flashcomm1(view: LaunchView) -> Iterator[Hit]:
    """What FlashComm1 needs."""
    setting, model = view.flashcomm1, view.model
    if setting is None or not setting.is_on:
        return
    is_moe = model is not None and model.is_moe
    is_size_known = view.get("--tensor-parallel-size") is None or view.integer("--tensor-parallel-size")
    if view.tp == 1 and is_size_known:
        yield Hit("MOE001", setting.place, "FlashComm1 needs a tensor parallel size above 1")
    elif is_moe and not view.is_expert_parallel:
        yield Hit("MOE002", setting.place, "FlashComm1 needs --enable-expert-parallel for this model")
    if is_moe and view.dp == 1:
        yield Hit("MOE011", setting.place, "FlashComm1 is switched off when the data parallel size is 1")
    is_a2 = view.chip is not None and view.chip.name == "A2"
    if is_a2 and model is not None and model.name == "Qwen3.6-35B-A3B" and "mtp" in (view.method or ""):
        yield Hit("MOE013", setting.place, "FlashComm1 with MTP fails on A2")


@on_server("MOE003", "MOE004", "MOE005", "MOE006", "MOE009", "MOE010", "MOE014")
def fused_mc2(view: LaunchView) -> Iterator[Hit]:
    """What goes with fused MC2."""
    setting = view.fused_mc2
    if setting is None or not setting.is_on:
        return
    overlap = view.is_key_on("multistream_overlap_shared_expert")
    if overlap is not None and overlap.is_on and setting.number == 1:
        message = "multistream_overlap_shared_expert and fused MC2 exclude each other"
        yield from (Hit(rule, overlap.place, message) for rule in ("MOE003", "MOE014"))
    hierarchy = view.is_key_on("enable_mc2_hierarchy_comm")
    if hierarchy is not None and hierarchy.is_on:
        yield Hit("MOE004", hierarchy.place, "enable_mc2_hierarchy_comm and fused MC2 exclude each other")
    if view.chip is not None and view.chip.name != "A3":
        yield Hit("MOE005", setting.place, f"fused MC2 is for A3, this is for {view.chip.name}")
    ranks = view.tp * view.dp
    if view.is_expert_parallel and ranks > MAX_FUSED_RANKS:
        yield Hit("MOE006", setting.place, f"{ranks} ranks share the experts; 32 are the most")
    elif view.kv_role == "kv_producer" and view.dp > 1:
        yield Hit("MOE006", setting.place, f"the prefill node has {view.dp} data parallel groups")
    if setting.number == 2:
        yield Hit("MOE010", setting.place, f"vllm-ascend {view.version} takes 0 or 1")
        if view.kv_role != "kv_consumer":
            yield Hit("MOE009", setting.place, "level 2 is for decode nodes")


@on_server("MOE008", "MOE015")
def without_experts(view: LaunchView) -> Iterator[Hit]:
    """Switches that models without experts, or without a shared one, do not know."""
    if view.model is None:
        return
    if not view.model.is_moe and view.is_expert_parallel:
        place = view.place("--enable-expert-parallel")
        yield Hit("MOE008", place, f"{view.model.name} has no experts")
    overlap = view.is_key_on("multistream_overlap_shared_expert")
    if overlap is not None and overlap.is_on and not view.model.has_shared_expert:
        yield Hit("MOE015", overlap.place, f"{view.model.name} has no shared expert")


@on_server("MOE017")
def weight_layout(view: LaunchView) -> Iterator[Hit]:
    """The layout of float weights, which the gate of a shared expert does not fit."""
    if view.model is None or not view.model.has_shared_expert:
        return
    node, stated = view.key(ADDITIONAL, "weight_nz_mode"), view.variable("VLLM_ASCEND_ENABLE_NZ")
    if node is not None and as_integer(node) == 2:
        yield Hit("MOE017", node.place, f"weight_nz_mode is 2 for {view.model.name}")
    elif node is None and stated is not None and stated.value.text == "2":
        yield Hit("MOE017", stated.place, f"VLLM_ASCEND_ENABLE_NZ is 2 for {view.model.name}")


@on_server("MOE007")
def buffer(view: LaunchView) -> Iterator[Hit]:
    """HCCL's buffer for dispatch and combine, where these are used."""
    stated, model = view.variable("HCCL_BUFFSIZE"), view.model
    if stated is None or model is None or not model.is_moe or not view.is_expert_parallel:
        return
    ranks = view.tp * view.dp
    if view.chip is None or not stated.value.text.isdigit() or model.num_experts % ranks:
        return
    if view.chip.family not in ("A2", "A3") or not uses_mc2(view.chip, model, ranks):
        return
    largest = max(view.capture_sizes, default=0)
    num_seqs = view.integer("--max-num-seqs")
    if not largest:
        if num_seqs is None or view.is_eager:
            return
        largest = min(num_seqs * (1 + view.num_draft_tokens), DEFAULT_MAX_CAPTURE)
    need = mc2_buffer_mib(
        model.hidden_size,
        model.num_experts,
        model.num_experts_per_token,
        int(model.has_shared_expert),
        ranks,
        math.ceil(largest / view.tp),
    )
    if int(stated.value.text) < need:
        message = f"steps of {largest} tokens need {math.ceil(need)} MB, {stated.value.text} are given"
        yield Hit("MOE007", stated.place, message, f"HCCL_BUFFSIZE={math.ceil(need / 100) * 100} or more")
