"""Whether decode steps fit the graphs that were captured."""

from __future__ import annotations

import bisect

from qanat.deploy.diagnose.evidence import Evidence, threshold
from qanat.deploy.diagnose.verdict import Answer, Case, Comparison, Verdict, percent, workload


def graph_misses(evidence: Evidence) -> Verdict:
    """Steps above the largest captured size run without a graph; those between two sizes are padded."""
    case = Case("graphs", "Do decode steps run as graphs?")
    sizes = evidence.capture_sizes
    running = max(evidence.metrics.gauges("running"), default=None) if evidence.metrics else None
    k = evidence.num_draft_tokens
    if sizes is None:
        case.missing.append("capture sizes (a log or a plan tells)")
    if running is None:
        case.missing.append("num_requests_running")
    if sizes is None or running is None:
        return case.unknown()
    case.saw("requests running in one engine", running)
    case.saw("tokens of each in a step", float(1 + (k or 0)))
    if not sizes:
        return case.says(
            Answer.CAUSE,
            "Graphs are switched off (--enforce-eager), so each step launches its kernels one by one.",
            Comparison(
                "--enforce-eager",
                """--compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY"}'""",
                workload(evidence),
                "TPOT",
            ),
        )
    return _fit(evidence, case, sizes, int(running) * (1 + (k or 0)))


def _fit(evidence: Evidence, case: Case, sizes: tuple[int, ...], need: int) -> Verdict:
    """The answer for steps of `need` tokens."""
    case.saw("tokens of a decode step", float(need))
    case.saw("largest captured size", float(sizes[-1]))
    listed = ", ".join(str(size) for size in sizes)
    if need > sizes[-1]:
        return case.says(
            Answer.CAUSE,
            f"Decode steps of {need} tokens are above the largest captured size and run without a graph; with experts "
            "they leave MC2 too, and on decode nodes have been seen to hang.",
            Comparison(
                f"cudagraph_capture_sizes [{listed}]",
                f"cudagraph_capture_sizes [{listed}, {need}]",
                workload(evidence),
                "TPOT and output tokens per second",
            ),
            ("vllm-project/vllm-ascend#8240",),
        )
    if need == 0:
        return case.unknown("requests that run at this moment")
    chosen = sizes[bisect.bisect_left(sizes, need)]
    padding = (chosen - need) / chosen
    case.saw("captured size that is used", float(chosen))
    case.saw("padding", percent(padding))
    if padding > threshold("padding_share"):
        step = 1 + (evidence.num_draft_tokens or 0)
        return case.says(
            Answer.CAUSE,
            f"{percent(padding)} of each step is padding: {need} tokens run in the graph of {chosen}.",
            Comparison(
                f"cudagraph_capture_sizes [{listed}]",
                f"the same and {-(-need // step) * step} (with FlashComm1 a multiple of the tensor parallel size)",
                workload(evidence),
                "TPOT",
            ),
        )
    return case.says(
        Answer.FINE, f"They run in the graph of {chosen} tokens, {percent(padding)} of it padding."
    )
