"""Whether a benchmark measured what it was meant to, and how it compares with what is published."""

from __future__ import annotations

from qanat.deploy.baselines import Load, Setup, is_comparable, layout_text, nearest_throughput
from qanat.deploy.diagnose.bench import BenchResult
from qanat.deploy.diagnose.evidence import Evidence, threshold
from qanat.deploy.diagnose.verdict import Answer, Case, Comparison, Verdict, number, percent, workload
from qanat.deploy.knowledge.load import load_knowledge

NEARLY = 0.97
"""vllm-ascend's own tests pass from this share of the published figure on."""


def bench_load(evidence: Evidence) -> Verdict:
    """Whether the benchmark sent more than the server has places for."""
    case = Case("benchmark-load", "Does the benchmark measure the server, or its queue?")
    bench = evidence.bench
    if bench is None:
        return case.unknown("a result of vllm bench serve")
    _latencies(bench, case)
    places = _places(evidence)
    at_once = bench.number("max_concurrency")
    case.saw("--max-concurrency", at_once if at_once is not None else "not given")
    case.saw("requests", bench.number("completed"))
    case.saw("places of the server", places)
    sent = at_once if at_once is not None else (bench.number("num_prompts") if bench.is_all_at_once else None)
    if sent is None:
        case.saw("requests per second", bench.number("request_rate"))
        return case.says(
            Answer.FINE, "Requests come at a fixed rate; TTFT shows whether the server keeps up with it."
        )
    if places is None:
        return case.unknown()
    if sent > places:
        told = (
            "all requests are sent at once"
            if at_once is None
            else f"{number(sent)} requests are kept in flight"
        )
        return case.says(
            Answer.CAUSE,
            f"{told[0].upper()}{told[1:]} and the server has {number(places)} places, so TTFT is mostly time in the "
            "queue.",
            Comparison(
                "this load",
                f"--max-concurrency {places:.0f}",
                workload(evidence, concurrency=int(places)),
                "TTFT and output tokens per second",
            ),
        )
    return case.says(Answer.FINE, "The server has a place for every request in flight.")


def bench_ends(evidence: Evidence) -> Verdict:
    """Whether enough requests ran, and none failed."""
    case = Case("benchmark-size", "Is the benchmark long enough, and did all requests succeed?")
    bench = evidence.bench
    if bench is None:
        return case.unknown("a result of vllm bench serve")
    completed, failed = bench.number("completed") or 0.0, bench.number("failed") or 0.0
    case.saw("requests that succeeded", completed)
    case.saw("that failed", failed)
    if failed or not completed:
        return case.says(
            Answer.CAUSE, f"{number(failed)} requests failed; the figures are those of the others."
        )
    at_once = bench.concurrency
    case.saw("requests at once", at_once)
    if at_once and completed < threshold("bench_rounds") * at_once:
        num = int(threshold("bench_rounds") * 2 * at_once)
        return case.says(
            Answer.CAUSE,
            f"{number(completed)} requests are {completed / at_once:.1f} for each place: most of the time the batch "
            f"fills or empties. Take --num-prompts {num} or more.",
        )
    output = bench.per_request("total_output_tokens")
    case.saw("tokens of an answer, mean", output)
    return case.says(Answer.FINE, "All succeeded, and there were enough of them.")


def published(evidence: Evidence) -> Verdict:
    """How the throughput compares with published figures."""
    case = Case("published", "How does it compare with published figures?")
    bench, view, model = evidence.bench, evidence.view, evidence.model
    throughput = bench.number("output_throughput") if bench else None
    if bench is None or throughput is None:
        return case.unknown("output_throughput in the result")
    case.saw("output tokens per second", throughput)
    prompt, output = bench.per_request("total_input_tokens"), bench.per_request("total_output_tokens")
    at_once = bench.concurrency
    if view is None or model is None:
        return case.unknown("settings with a known model (a log or a plan tells)")
    if prompt is None or output is None or at_once is None:
        return case.unknown("lengths and concurrency in the result")
    setup = Setup(
        repository=model.name,
        weights=_weights(view.model_name or ""),
        chip=view.chip.name if view.chip else "",
        is_disaggregated=view.kv_role is not None,
        tensor_parallel_size=view.tp,
        data_parallel_size=view.dp,
        num_speculative_tokens=view.num_draft_tokens,
    )
    load = Load(round(prompt), round(output), round(at_once))
    found = nearest_throughput(setup, load, load_knowledge())
    if not found:
        return case.says(Answer.UNKNOWN, f"No figure of {model.name} is published.")
    nearest = found[0]
    case.saw("nearest published", f"{number(nearest.value)} tokens/s ({layout_text(nearest)})")
    case.saw(
        "this run",
        f"{setup.weights}, {setup.chip or 'chip not known'}, TP{view.tp} DP{view.dp}, "
        f"k {view.num_draft_tokens}, {load.input_tokens} in, {load.output_tokens} out, {load.concurrency} at once",
    )
    if not is_comparable(nearest, setup, load):
        return case.says(
            Answer.UNKNOWN,
            "This is not like with like: chip, weights, layout, lengths or concurrency differ.",
        )
    share = throughput / nearest.value
    case.saw("share of the published figure", percent(share))
    passes = nearest.pass_from if nearest.pass_from is not None else NEARLY * nearest.value
    if throughput >= passes:
        return case.says(
            Answer.FINE, f"Like with like, it reaches {percent(share)} of what {nearest.source} has."
        )
    return case.says(
        Answer.CAUSE, f"Like with like, it reaches only {percent(share)} of what {nearest.source} has."
    )


def _latencies(bench: BenchResult, case: Case) -> None:
    for name in ("ttft", "tpot", "itl"):
        mean = bench.number(f"mean_{name}_ms")
        if mean is not None:
            case.saw(f"{name.upper()} mean", mean, "ms")
            p99 = bench.number(f"p99_{name}_ms")
            if p99 is not None:
                case.saw(f"{name.upper()} P99", p99, "ms")


def _places(evidence: Evidence) -> float | None:
    seqs = evidence.max_num_seqs
    return float(seqs * evidence.view.dp) if seqs is not None and evidence.view is not None else None


def _weights(model_name: str) -> str:
    lowered = model_name.lower()
    formats = sorted(load_knowledge().weight_formats, key=len, reverse=True)
    return next(
        (name for name in formats if name.lower().removesuffix("-mtp") in lowered), "bf16"
    ).removesuffix("-mtp")
