"""What quantisation costs in right answers, on the demo model's held-out tasks.

    python benchmarks/accuracy.py [--items 520] [--schemes w8a8 w4a8] [--checkpoint w8a8=FOLDER] [--json FILE]

The same items are answered greedily by the bfloat16 model and by each scheme, quantised at load or read from a folder
that `qanat quantize` made. For each scheme: how many answers went from right to wrong and back, the loss in points,
and the upper end of its 95 % confidence interval, which the gates of design.md bound: 0.5 points for w8a8, 2 for w4a8.
Exit code 1 when a gate is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))

from demokit.item import Item  # noqa: E402
from demokit.mixture import SCORED, held_out_items  # noqa: E402
from demokit.rendering import MODEL_FOLDER, prompt_of  # noqa: E402
from evaluate import is_right  # noqa: E402

from qanat import LLM, SamplingParams  # noqa: E402
from qanat.evals.paired import Comparison, compare  # noqa: E402

GATES_POINTS = {"w8a8": 0.5, "w4a8": 2.0}
"""Largest upper bound of the loss."""
MIN_ITEMS = 4000
"""Fewer give bounds that are too wide to mean much; said, not refused."""
MAX_ANSWER_TOKENS = 256


def say(text: str) -> None:
    """One line of the result."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=520, help="held-out items per task, of 8 tasks")
    parser.add_argument("--schemes", nargs="+", choices=GATES_POINTS, default=list(GATES_POINTS))
    parser.add_argument("--model", type=Path, default=MODEL_FOLDER, help="folder of the bfloat16 model")
    parser.add_argument(
        "--checkpoint", action="append", default=[], metavar="SCHEME=FOLDER", help="read instead of quantised"
    )
    parser.add_argument("--seed", type=int, default=11, help="draws the items")
    parser.add_argument("--max-num-seqs", type=int, default=64, help="answers written at a time")
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser.parse_args(arguments)


def answers(items: Sequence[Item], folder: Path, max_num_seqs: int, **settings: Any) -> list[bool]:
    """Whether the model in the folder answers each item rightly."""
    params = SamplingParams(temperature=0, max_tokens=MAX_ANSWER_TOKENS, skip_special_tokens=False)
    with LLM(str(folder), max_model_len=2048, max_num_seqs=max_num_seqs, **settings) as llm:
        results = llm.generate(
            [prompt_of(item) for item in items], params, use_progress_bar=sys.stderr.isatty()
        )
    texts = [result.outputs[0].text.removesuffix("<|im_end|>") for result in results]
    return [
        is_right(item, {"content": text.split("</think>")[-1]})
        for item, text in zip(items, texts, strict=True)
    ]


def by_task(items: Sequence[Item], before: Sequence[bool], after: Sequence[bool]) -> dict[str, str]:
    """Changed answers of each task, as "lost/gained"."""
    changed = Counter(
        (item.task, was) for item, was, now in zip(items, before, after, strict=True) if was != now
    )
    return {task: f"{changed[task, True]}/{changed[task, False]}" for task in SCORED}


def figures(scheme: str, result: Comparison, seconds: float) -> dict[str, Any]:
    """The figures of one scheme."""
    bound = result.loss_bound_points
    return {
        "scheme": scheme,
        "items": result.num_items,
        "right_before_percent": round(100 * result.num_right_before / result.num_items, 2),
        "right_after_percent": round(100 * result.num_right_after / result.num_items, 2),
        "lost": result.num_lost,
        "gained": result.num_gained,
        "loss_points": round(result.loss_points, 3),
        "loss_bound_points": round(bound, 3),
        "gate_points": GATES_POINTS[scheme],
        "is_met": bound <= GATES_POINTS[scheme],
        "duration_s": round(seconds, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Asks, compares, prints; exit code 1 when a gate is missed."""
    options = parse_options(arguments)
    folders = dict(each.split("=", 1) for each in options.checkpoint)
    items = list(held_out_items(options.seed, options.items))
    if len(items) < MIN_ITEMS:
        say(f"{len(items)} items only: the gates are meant for {MIN_ITEMS} or more")
    started = time.monotonic()
    before = answers(items, options.model, options.max_num_seqs)
    say(f"bfloat16: {sum(before)} of {len(items)} right, {time.monotonic() - started:.0f} s")
    rows = []
    for scheme in options.schemes:
        started = time.monotonic()
        settings = {} if scheme in folders else {"quantization": scheme}
        after = answers(items, Path(folders.get(scheme, options.model)), options.max_num_seqs, **settings)
        row = figures(scheme, compare(before, after), time.monotonic() - started)
        rows.append(row | {"changed_by_task": by_task(items, before, after)})
        say(
            f"{scheme}: {row['right_after_percent']} % right (bfloat16 {row['right_before_percent']} %), "
            f"{row['lost']} answers lost, {row['gained']} gained of {row['items']}; "
            f"loss {row['loss_points']} points, at most {row['loss_bound_points']} (95 %), gate {row['gate_points']}: "
            f"{'met' if row['is_met'] else 'MISSED'}, {row['duration_s']:.0f} s"
        )
        say("  lost/gained by task: " + ", ".join(f"{k} {v}" for k, v in rows[-1]["changed_by_task"].items()))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if all(row["is_met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
