"""Whether FlashComm1 and fused MC2 are on, and whether this is the load for them."""

from __future__ import annotations

from qanat.deploy.diagnose.evidence import Evidence, threshold
from qanat.deploy.diagnose.verdict import Answer, Case, Comparison, Verdict, number, workload
from qanat.deploy.knowledge.versions import must_parse

KEY_SINCE = must_parse("0.20.2rc1")
"""Keys of --additional-config for both exist from here on; before, variables switch them."""
SEQUENCE_PARALLEL_SINCE = must_parse("0.28.0")
"""From here on FlashComm1 acts only where vLLM splits the experts' tokens over ranks."""


def flashcomm1(evidence: Evidence) -> Verdict:
    """Why FlashComm1 does not help."""
    case = Case("flashcomm1", "Does FlashComm1 help here?")
    view = evidence.view
    if view is None:
        return case.unknown("settings (a log or a plan tells)")
    steps = evidence.metrics.histogram("step_tokens") if evidence.metrics else None
    mean = steps.mean if steps else None
    case.saw("tensor parallel size", float(view.tp))
    case.saw("tokens of a step, mean", mean)
    case.saw("release", str(view.version))
    is_new = view.version >= KEY_SINCE
    on = (
        """--additional-config '{"enable_flashcomm1": true}'"""
        if is_new
        else "VLLM_ASCEND_ENABLE_FLASHCOMM1=1"
    )
    compare = Comparison(on, "without it", workload(evidence), "TTFT and output tokens per second")
    key = view.is_key_on("enable_flashcomm1")
    if key is not None and key.is_on and not is_new:
        return case.says(
            Answer.CAUSE,
            f"enable_flashcomm1 in --additional-config has no effect in {view.version}; before 0.20.2rc1 only the "
            "variable VLLM_ASCEND_ENABLE_FLASHCOMM1 switches it.",
            compare,
        )
    if not view.has_flashcomm1:
        return case.says(Answer.FINE, "It is not on.", compare if view.tp > 1 else None)
    if view.version >= SEQUENCE_PARALLEL_SINCE and not (
        view.is_expert_parallel and view.tp > 1 and view.dp > 1
    ):
        return case.says(
            Answer.CAUSE,
            "From 0.28 on it acts only with expert parallelism and both tensor and data parallel sizes above 1.",
            compare,
        )
    if mean is None:
        return case.unknown()
    if mean < threshold("large_step"):
        return case.says(
            Answer.CAUSE,
            f"Steps have {number(mean)} tokens on average; it is made for large ones "
            f"({threshold('large_step'):.0f} and more), and costs on small ones.",
            compare,
        )
    return case.says(Answer.FINE, "It is on and steps are large.", compare)


def fused_mc2(evidence: Evidence) -> Verdict:
    """Why fused MC2 does not help."""
    case = Case("fused-mc2", "Does fused MC2 help here?")
    view, model = evidence.view, evidence.model
    if view is None:
        return case.unknown("settings (a log or a plan tells)")
    if model is not None and not model.is_moe:
        return case.says(Answer.FINE, f"{model.name} has no experts.")
    on = (
        """--additional-config '{"enable_fused_mc2": 1}'"""
        if view.version >= KEY_SINCE
        else "VLLM_ASCEND_ENABLE_FUSED_MC2=1"
    )
    compare = Comparison(on, "without it", workload(evidence), "TPOT and output tokens per second")
    size = view.tp * view.dp
    case.saw("expert parallel size", float(size) if view.is_expert_parallel else "off")
    case.saw("role", view.kv_role or "prefill and decode together")
    if view.fused_mc2 is None or not view.fused_mc2.is_on:
        return case.says(Answer.FINE, "It is not on.", compare)
    if view.chip is not None and view.chip.name != "A3":
        return case.says(Answer.CAUSE, f"It is made for A3; here runs {view.chip.name}.", compare)
    if not view.is_expert_parallel:
        return case.says(
            Answer.CAUSE, "Without --enable-expert-parallel there is no exchange to fuse.", compare
        )
    if size > threshold("mc2_max_ep"):
        most = threshold("mc2_max_ep")
        return case.says(Answer.CAUSE, f"It is for groups up to {most:.0f}; the group has {size}.", compare)
    if view.kv_role == "kv_producer" and view.dp > 1:
        return case.says(
            Answer.CAUSE,
            "On prefill nodes with several data parallel ranks it is slower, and wrong answers were reported.",
            compare,
            ("vllm-project/vllm-ascend#8320",),
        )
    if view.chip is None:
        case.missing.append("the chip (an image such as v0.23.0-a3 tells)")
    return case.says(
        Answer.UNKNOWN, "It is on, and nothing known speaks against it: only the comparison tells.", compare
    )
