"""What keeping states costs a prompt that nobody has asked before: its first token with and without prefix reuse.

    python benchmarks/kept_states.py [MODEL] [--tokens 520 8200] [--rounds 5] [--dummy] [--max-batched 2048]

Two engines in one process take turns with prompts of their own, so that neither ever finds anything; what counts is the
ratio of their medians. Then the same prompts are asked again, which shows what a hit saves.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time

from qanat import LLM, SamplingParams

PARAMS = SamplingParams(max_tokens=1, temperature=0, ignore_eos=True)
VOCABULARY = range(10, 250)


def first_token_s(model: LLM, prompt: list[int]) -> float:
    """Seconds until one token is there."""
    begin_s = time.perf_counter()
    model.generate(prompt, PARAMS)
    return time.perf_counter() - begin_s


def main() -> None:
    """Prints a line for each length."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="folder; the demo model by default")
    parser.add_argument("--tokens", type=int, nargs="+", default=[520, 8200])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--dummy", action="store_true", help="random weights; the folder needs only a config.json"
    )
    parser.add_argument("--max-batched", type=int, default=2048, help="tokens of a step")
    arguments = parser.parse_args()
    chance = random.Random(1)
    options = {"max_model_len": max(arguments.tokens) + 64, "max_num_seqs": 2, "packed_weights_cache": False}
    options |= {"max_num_batched_tokens": arguments.max_batched, "max_decode_stall_s": 10.0}
    if arguments.dummy:
        options |= {"load_format": "dummy", "skip_tokenizer_init": True}
    with (
        LLM(arguments.model, **options) as on,
        LLM(arguments.model, enable_prefix_caching=False, **options) as off,
    ):
        for length in arguments.tokens:
            times: dict[str, list[float]] = {"on": [], "off": [], "hit": []}
            for number in range(arguments.rounds + 1):  # the first one makes everything ready
                prompt = [chance.choice(VOCABULARY) for _ in range(length)]
                order = (("on", on), ("off", off)) if number % 2 else (("off", off), ("on", on))
                found = {name: first_token_s(model, prompt) for name, model in order}
                found["hit"] = first_token_s(
                    on, [*prompt[:-8], *(chance.choice(VOCABULARY) for _ in range(8))]
                )
                for name, spent_s in found.items() if number else ():
                    times[name].append(spent_s)
            middle = {name: statistics.median(values) for name, values in times.items()}
            sys.stdout.write(
                f"{length:6d} tokens: without {middle['off']:.3f} s, with reuse {middle['on']:.3f} s, "
                f"ratio {middle['on'] / middle['off']:.3f}; a hit {middle['hit']:.3f} s, "
                f"{middle['off'] / middle['hit']:.0f} times earlier\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
