"""Writes what /metrics of vLLM says, in the format that Prometheus documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LABELS = 'engine="{engine}",model_name="qwen"'
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
SECONDS = (0.001, 0.01, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 40.0)


def counter(name: str, value: float, engine: int = 0, more: str = "") -> str:
    return f"vllm:{name}_total{{{LABELS.format(engine=engine)}{more}}} {value}\n"


def gauge(name: str, value: float, engine: int = 0) -> str:
    return f"vllm:{name}{{{LABELS.format(engine=engine)}}} {value}\n"


def histogram(name: str, observed: Sequence[float], bounds: Sequence[float] = TOKENS) -> str:
    labels = LABELS.format(engine=0)
    lines = [f"# HELP vllm:{name} A histogram.", f"# TYPE vllm:{name} histogram"]
    for bound in bounds:
        below = sum(one <= bound for one in observed)
        lines.append(f'vllm:{name}_bucket{{{labels},le="{float(bound)}"}} {float(below)}')
    lines.append(f'vllm:{name}_bucket{{{labels},le="+Inf"}} {float(len(observed))}')
    lines.append(f"vllm:{name}_count{{{labels}}} {float(len(observed))}")
    lines.append(f"vllm:{name}_sum{{{labels}}} {float(sum(observed))}")
    return "\n".join(lines) + "\n"


def cache_config(**labels: object) -> str:
    written = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f'vllm:cache_config_info{{cache_dtype="auto",{written},engine="0"}} 1.0\n'


def speculation(drafts: int, accepted_by_position: Sequence[int]) -> str:
    k = len(accepted_by_position)
    text = counter("spec_decode_num_drafts", drafts)
    text += counter("spec_decode_num_draft_tokens", drafts * k)
    text += counter("spec_decode_num_accepted_tokens", sum(accepted_by_position))
    for place, value in enumerate(accepted_by_position):
        text += counter("spec_decode_num_accepted_tokens_per_pos", value, more=f',position="{place}"')
    return text


def service(figures: Mapping[str, float], prompts: Sequence[float] = (3500,) * 100, *more: str) -> str:
    """A server that works; `figures` are gauges and counters (those that end in _total) by their names."""
    values: dict[str, float] = {
        "num_requests_running": 8,
        "num_requests_waiting": 0,
        "kv_cache_usage_perc": 0.2,
        "prefix_cache_queries_total": 350_000,
        "prefix_cache_hits_total": 140_000,
        "num_preemptions_total": 0,
        "prompt_tokens_total": 350_000,
        "generation_tokens_total": 150_000,
        "request_success_total": 100,
        **figures,
    }
    lines = [
        counter(name.removesuffix("_total"), value) if name.endswith("_total") else gauge(name, value)
        for name, value in values.items()
    ]
    lines.append(histogram("request_prompt_tokens", prompts))
    lines.append(histogram("request_generation_tokens", [1500] * 100))
    if not any("time_to_first_token" in text for text in more):
        lines.append(histogram("time_to_first_token_seconds", [0.4] * 100, SECONDS))
        lines.append(histogram("request_queue_time_seconds", [0.01] * 100, SECONDS))
        lines.append(histogram("request_prefill_time_seconds", [0.35] * 100, SECONDS))
    if not any("cache_config_info" in text for text in more):
        lines.append(cache_config(block_size=128, num_gpu_blocks=12032, enable_prefix_caching=True))
    return "".join((*lines, *more))
