"""Why prefix caching brings nothing, why requests are set back, and whether the cache is too small."""

from __future__ import annotations

from qanat.deploy.diagnose.evidence import Evidence, threshold
from qanat.deploy.diagnose.verdict import Answer, Case, Comparison, Verdict, number, percent, workload

HYBRID_THREADS = ("vllm-project/vllm-ascend#8001", "vllm-project/vllm-ascend#7965")
ALIGN_THREADS = ("vllm-project/vllm#42317", "vllm-project/vllm-ascend#11711")
WAITING_PROMPTS = 1.5
"""Requests that run at once; below, prompts are computed one after the other."""


def prefix_caching(evidence: Evidence) -> Verdict:
    """Why prefix caching brings nothing."""
    case = Case("prefix-caching", "Does prefix caching find anything?")
    metrics = evidence.metrics
    queries, hits = evidence.counter("prefix_queries"), evidence.counter("prefix_hits")
    if metrics is None or queries is None or hits is None:
        return case.unknown("prefix_cache_queries and prefix_cache_hits")
    is_on, block = evidence.is_prefix_caching, evidence.block_tokens
    prompts = metrics.histogram("prompt_length")
    case.saw("prompt tokens looked up", queries)
    case.saw("found", hits)
    external = evidence.counter("external_queries")
    if external:
        case.saw("found by the KV connector", evidence.counter("external_hits"))
    compare = Comparison(
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
        workload(evidence, prefix_tokens=2 * (block or 1024)),
        "TTFT and output tokens per second",
    )
    if is_on is False or (is_on is None and queries == 0):
        is_hybrid = evidence.model is not None and evidence.model.is_hybrid
        why = "it is off by default for hybrid models" if is_hybrid else "it is switched off"
        if is_on is None:
            return case.unknown("whether prefix caching is on (a log or a plan tells)")
        return case.says(
            Answer.CAUSE,
            f"Nothing is looked up: {why}. --enable-prefix-caching switches it on.",
            compare,
            ("vllm-project/vllm-ascend#10313",),
        )
    if queries <= 0:
        return case.unknown("requests in the time that was looked at")
    share = hits / queries
    case.saw("share found", percent(share))
    if share >= threshold("hit_share"):
        return case.says(Answer.FINE, f"{percent(share)} of all prompt tokens are found.")
    case.saw("tokens of a block", block)
    case.saw("tokens of a prompt, mean", prompts.mean if prompts else None)
    return _few_hits(evidence, case, compare)


def _few_hits(evidence: Evidence, case: Case, compare: Comparison) -> Verdict:
    block = evidence.block_tokens
    prompts = evidence.metrics.histogram("prompt_length") if evidence.metrics else None
    # The last token is always computed again, so a prompt of exactly one block finds nothing.
    short = prompts.share_below(block + 1) if prompts and block else None
    if short is not None and short >= threshold("short_share"):
        case.saw("share of prompts up to one block", percent(short))
        return case.says(
            Answer.CAUSE,
            f"Only whole blocks of {block:,} tokens are shared and the last token of a prompt never counts, and "
            f"{percent(short)} of the prompts are no longer than one block. A larger tensor parallel size makes the "
            "blocks of hybrid models smaller.",
            compare,
            HYBRID_THREADS,
        )
    usage = evidence.gauge("cache_usage")
    if usage is not None and usage >= threshold("pool_full"):
        case.saw("share of the cache in use", percent(usage))
        return case.says(
            Answer.CAUSE,
            "The cache is full with running requests, so what others could share is thrown out first.",
            compare,
        )
    model, view = evidence.model, evidence.view
    running = evidence.gauge("running")
    tokens = view.max_num_batched_tokens if view else None
    mean = prompts.mean if prompts else None
    if model is not None and model.is_hybrid and running is not None and tokens and mean:
        case.saw("requests running", running)
        case.saw("tokens of a step at most", tokens)
        if running <= WAITING_PROMPTS and mean <= tokens:
            return case.says(
                Answer.CAUSE,
                "In align mode states are stored where the token budget cuts a prompt and at its end. Prompts come "
                f"one at a time and fit into one step ({number(mean)} of {tokens:,} tokens), so only whole prompts "
                "that come again are found. A smaller --max-num-batched-tokens (not below the block) cuts them more "
                "often.",
                compare,
                ALIGN_THREADS,
            )
    case.missing.append("how many tokens requests share")
    return case.says(
        Answer.UNKNOWN,
        "Prompts are long enough for whole blocks. Whether they begin alike, metrics do not tell: a time, a name or an "
        "id at the beginning is enough to share nothing.",
        compare,
        ("vllm-project/vllm#51250",),
    )


def preemptions(evidence: Evidence) -> Verdict:
    """Whether running requests are set back."""
    case = Case("preemptions", "Are running requests set back for want of cache?")
    count, finished = evidence.counter("preemptions"), evidence.counter("finished")
    if count is None:
        return case.unknown("num_preemptions")
    case.saw("requests set back", count)
    case.saw("requests finished", finished)
    if count == 0:
        return case.says(Answer.FINE, "None was.")
    share = count / finished if finished else 1.0
    case.saw("share of the cache in use now", evidence.gauge("cache_usage"))
    if share < threshold("preempted_share"):
        return case.says(Answer.FINE, f"So few ({percent(share)} of the requests) cost next to nothing.")
    seqs = evidence.max_num_seqs or 64
    return case.says(
        Answer.CAUSE,
        f"{number(count)} times a running request lost its place and was computed again. Lower --max-num-seqs, or make "
        "the cache larger (--gpu-memory-utilization, more NPUs); a shorter --max-model-len does not help.",
        Comparison(
            f"--max-num-seqs {seqs}",
            f"--max-num-seqs {max(1, seqs // 2)}",
            workload(evidence, concurrency=seqs),
            "output tokens per second and P99 of TPOT",
        ),
    )


def cache_size(evidence: Evidence) -> Verdict:
    """Whether the KV cache bounds what runs."""
    case = Case("cache-size", "Is the KV cache too small?")
    usage, waiting = evidence.gauge("cache_usage"), evidence.gauge("waiting")
    if usage is None:
        return case.unknown("kv_cache_usage_perc")
    case.saw("share of the cache in use", percent(usage))
    case.saw("requests waiting", waiting)
    case.saw("requests running", evidence.gauge("running"))
    blocks = evidence.metrics.label("cache_config", "num_gpu_blocks") if evidence.metrics else None
    if blocks and blocks.isdigit():
        case.saw("blocks", float(blocks))
    case.saw("tokens of a block", evidence.block_tokens)
    if usage < threshold("pool_full"):
        return case.says(Answer.FINE, f"{percent(1 - usage)} of its blocks are free.")
    if not waiting:
        return case.says(
            Answer.FINE,
            "It is nearly full, but nothing waits: blocks of ended requests stay until they are needed.",
        )
    seqs = evidence.max_num_seqs or 64
    return case.says(
        Answer.CAUSE,
        f"{number(waiting)} requests wait while the cache is full. Give it more memory, take more NPUs or smaller "
        "weights, or send fewer requests at once.",
        Comparison(
            "the memory share as it is",
            "--gpu-memory-utilization higher by 0.02 (watch for out of memory when graphs are captured)",
            workload(evidence, concurrency=seqs),
            "TTFT and output tokens per second",
        ),
    )
