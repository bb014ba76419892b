"""How much of what could be reused is reused, and what a hit saves.

    python benchmarks/prefix_cache.py [--seeds 3] [--attention-only]
    python benchmarks/prefix_cache.py --first-token [--model DIR] [--num-tokens 8192]

The first replays three kinds of traces through the engine's own cache manager, for the shape of Qwen3.5-0.8B (or with
its attention layers alone): hit tokens with unlimited memory, against a state kept at every 64 tokens for ever; and
with a half and a quarter of what that took, against one who knows the future (`benchmarks/prefixes/oracles.py`) and
against the longest unused going first, with the same placement. Targets: 0.98; 0.85 of the clairvoyant's hit tokens,
and above LRU.

The second asks a model the same long beginning with different ends: seconds to the first token without and with a
hit, in turns, and their ratio. Target: 20 for 8,192 tokens.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from benchmarks.prefixes.oracles import Clairvoyant, paths_of, targets_of
from benchmarks.prefixes.replay import BLOCK_SIZE, Pools, attention_spec, replay, spec_of_08b
from benchmarks.prefixes.traces import TRACES

PARTS = (0.5, 0.25)
UNLIMITED_TARGET, CLAIRVOYANT_TARGET = 0.98, 0.85


def compare(name: str, num_seeds: int, is_attention_only: bool) -> list[str]:
    """One line of the table for unlimited memory, and one for each part of it."""
    spec = attention_spec() if is_attention_only else spec_of_08b()
    rows: dict[float, list[tuple[float, float, float]]] = {1.0: [], **{part: [] for part in PARTS}}
    for seed in range(num_seeds):
        turns = TRACES[name](seed)
        num_prompt_tokens = sum(len(turn.prompt) for turn in turns)
        best = sum(targets_of(turns, paths_of(turns))) * BLOCK_SIZE
        whole = replay(turns, spec, Pools())
        rows[1.0].append((whole.num_hit_tokens / num_prompt_tokens, whole.num_hit_tokens / best, 0.0))
        longest = max(len(turn.prompt) + len(turn.output) for turn in turns) // BLOCK_SIZE + 2
        for part in PARTS:
            pools = whole.used.share(part, longest)
            budget_bytes = pools.num_blocks * spec.block_bytes + pools.num_checkpoints * spec.state_bytes
            ours = replay(turns, spec, pools).num_hit_tokens
            lru = replay(turns, spec, pools, is_lru=True).num_hit_tokens
            clairvoyant = Clairvoyant(turns, spec, budget_bytes).num_hit_tokens()
            rows[part].append((ours / num_prompt_tokens, ours / clairvoyant, ours / lru))
    lines = []
    for part, results in rows.items():
        hit, of_best, of_lru = (statistics.mean(column) for column in zip(*results, strict=True))
        against = "every 64 tokens" if part == 1.0 else "clairvoyant"
        target = UNLIMITED_TARGET if part == 1.0 else CLAIRVOYANT_TARGET
        lru_text = f"{of_lru:6.3f}" if of_lru else "     -"
        lines.append(
            f"{name:14} {part:5.2f} {hit:6.3f}   {of_best:6.3f} of {against:15} (>= {target})   {lru_text} of LRU"
        )
    return lines


def first_token(model: str | None, num_tokens: int, num_rounds: int) -> str:
    """The ratio of times to the first token, cold to warm."""
    from qanat import LLM, SamplingParams

    params = SamplingParams(max_tokens=1, temperature=0)
    cold, warm = [], []
    with LLM(
        model, max_model_len=num_tokens + 128, max_num_seqs=2, num_gpu_blocks_override=num_tokens // 16
    ) as llm:
        for number in range(num_rounds):
            ids = [(place * (7 + number)) % 90 + 10 for place in range(num_tokens)]
            for times, end in ((cold, 5), (warm, 6)):
                start_s = time.perf_counter()
                (result,) = llm.generate([*ids, *[end] * 16], params)
                times.append(result.first_token_at - start_s)
            if result.num_cached_tokens < num_tokens - 2 * BLOCK_SIZE:
                raise RuntimeError(f"only {result.num_cached_tokens} tokens were found")
    ratios = [slow / fast for slow, fast in zip(cold, warm, strict=True)]
    return (
        f"first token of {num_tokens} shared tokens and 16 of its own: cold {statistics.median(cold):.3f} s, "
        f"with a hit {statistics.median(warm):.4f} s, ratio {statistics.median(ratios):.1f} "
        f"({min(ratios):.1f} to {max(ratios):.1f})"
    )


def main() -> int:
    """Prints one of the two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3, help="traces of each kind")
    parser.add_argument("--attention-only", action="store_true", help="without recurrent layers")
    parser.add_argument(
        "--first-token", action="store_true", help="measure the time to the first token instead"
    )
    parser.add_argument("--model", help="folder of a model; default: the demo model")
    parser.add_argument("--num-tokens", type=int, default=8192, help="that are shared")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of measurements")
    arguments = parser.parse_args()
    if arguments.first_token:
        sys.stdout.write(first_token(arguments.model, arguments.num_tokens, arguments.rounds) + "\n")
        return 0
    sys.stdout.write("trace          memory  hits   hit tokens against\n")
    for name in TRACES:
        for line in compare(name, arguments.seeds, arguments.attention_only):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
