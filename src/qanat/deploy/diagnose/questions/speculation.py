"""Whether speculative decoding gains anything."""

from __future__ import annotations

from qanat.deploy.diagnose.evidence import Evidence, threshold
from qanat.deploy.diagnose.verdict import Answer, Case, Comparison, Verdict, percent, workload

THREADS = ("vllm-project/vllm-ascend#9290", "vllm-project/vllm-ascend#9871", "vllm-project/vllm-ascend#10495")
SLOWER_THREAD = ("vllm-project/vllm-ascend#12890",)


def speculation(evidence: Evidence) -> Verdict:
    """Whether drafts are kept, whether there are too many, and whether the batch leaves them room."""
    case = Case("speculation", "Does speculative decoding (MTP) gain anything?")
    k = evidence.num_draft_tokens
    rates = _rates(evidence)
    if rates is None:
        if k == 0:
            return case.says(
                Answer.FINE,
                "No speculation is set up.",
                Comparison(
                    "without --speculative-config",
                    """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}' (weights with MTP)""",
                    workload(evidence),
                    "TPOT and output tokens per second",
                ),
            )
        return case.unknown("spec_decode_num_drafts (no request was answered with speculation)")
    return _kept(evidence, case, *rates)


def _kept(evidence: Evidence, case: Case, rate: float, positions: tuple[float, ...]) -> Verdict:
    """The answer for a share of drafted tokens that were kept, and of drafts at each place."""
    k = evidence.num_draft_tokens
    length = 1 + (sum(positions) if positions else rate * (k or 0))
    case.saw("speculative tokens", k)
    case.saw("share of drafted tokens kept", percent(rate))
    case.saw("tokens of a step, mean", length)
    times = evidence.metrics.histogram("token_time") if evidence.metrics else None
    if times is not None and times.mean is not None:
        case.saw("seconds between tokens, mean", times.mean)
    if positions:
        case.saw("kept by place", ", ".join(percent(one) for one in positions))
    now = f"num_speculative_tokens {k}"
    off = Comparison(
        now, "without --speculative-config", workload(evidence), "TPOT and output tokens per second"
    )
    if rate < threshold("acceptance_floor"):
        return case.says(
            Answer.CAUSE,
            "Hardly any draft is kept: each step pays for drafts and gets one token. Some releases lose acceptance "
            "with more speculative tokens, or after rounds of long prompts until they are restarted.",
            off,
            THREADS,
        )
    kept = [one for one in positions if one >= threshold("position_floor")]
    batch = _batch_beyond_graphs(evidence, case)
    if batch:
        return case.says(Answer.CAUSE, batch, off)
    if positions and len(kept) < len(positions):
        fewer = max(1, len(kept))
        return case.says(
            Answer.CAUSE,
            f"{len(positions)} speculative tokens are too many: from place {len(kept) + 1} on fewer than "
            f"{percent(threshold('position_floor'))} are kept, about what checking them costs.",
            Comparison(
                now,
                f"num_speculative_tokens {fewer}",
                workload(evidence),
                "TPOT and output tokens per second",
            ),
            SLOWER_THREAD,
        )
    if length < threshold("length_floor"):
        return case.says(
            Answer.CAUSE,
            f"A step gives {length:.2f} tokens, which drafting may cost as much.",
            off,
            SLOWER_THREAD,
        )
    return case.says(
        Answer.FINE,
        f"A step gives {length:.2f} tokens. What a large batch leaves of that, the comparison tells.",
        off,
    )


def _rates(evidence: Evidence) -> tuple[float, tuple[float, ...]] | None:
    """Share of drafted tokens that were kept, and of drafts at each place; None without speculation."""
    drafts, drafted = evidence.counter("drafts"), evidence.counter("draft_tokens")
    accepted = evidence.counter("accepted_tokens")
    if evidence.metrics is not None and drafts and drafted and accepted is not None:
        by_place = evidence.metrics.counters("accepted_by_position", "position")
        numbered = sorted((int(place), value) for place, value in by_place.items() if place.isdigit())
        return accepted / drafted, tuple(value / drafts for _, value in numbered)
    bench = evidence.bench
    share = bench.number("spec_decode_acceptance_rate") if bench else None
    if bench is None or share is None:
        return None
    # The benchmark states it in percent.
    return share / 100, bench.positions


def _batch_beyond_graphs(evidence: Evidence, case: Case) -> str:
    sizes, k = evidence.capture_sizes, evidence.num_draft_tokens
    running = max(evidence.metrics.gauges("running"), default=0.0) if evidence.metrics else 0.0
    if not sizes or not k or running * (1 + k) <= sizes[-1]:
        return ""
    case.saw("requests running in one engine", running)
    case.saw("largest captured size", float(sizes[-1]))
    return (
        f"{running:.0f} requests with {1 + k} tokens each are more than the largest captured size ({sizes[-1]}), so "
        "steps run without a graph. Capture up to --max-num-seqs times 1 + speculative tokens, or use fewer of these."
    )
