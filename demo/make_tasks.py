"""Write the held-out questions that ship with the demo model, in the form that `qanat eval` reads.

    python demo/make_tasks.py            # the file that ships: the first 100 of each task, seed 11
    python demo/make_tasks.py --items 520 --output held_out_520.jsonl

The same options give the same bytes. The questions are those of demo/evaluate.py and benchmarks/accuracy.py.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from demokit.item import Item
from demokit.mixture import held_out_items

OUTPUT = Path(__file__).resolve().parent / "src" / "qanat_demo" / "held_out.jsonl"
MAX_ANSWER_TOKENS = 256


def check_of(item: Item) -> tuple[str, Any]:
    """How the item is judged, and its right answer."""
    if item.task == "json":
        return "json", json.loads(item.final)
    if item.task == "tool_call":
        name = item.reasoning.removeprefix("call ")
        return "tool_call", {"name": name, "arguments": json.loads(item.key.removeprefix(f"tool:{name}"))}
    return ("exact" if item.answer == item.final else "ends"), item.final


def row_of(item: Item, number: int) -> dict[str, Any]:
    """The item as a line of the file."""
    check, answer = check_of(item)
    row: dict[str, Any] = {
        "task": item.task, "id": f"{item.task}-{number}", "messages": item.messages, "check": check, "answer": answer,
        "thinking": item.is_thinking, "max_tokens": MAX_ANSWER_TOKENS,
    }  # fmt: skip
    return row | ({"tools": item.tools} if item.tools else {})


def text_of(seed: int, count: int) -> str:
    """The whole file."""
    numbers: dict[str, int] = {}
    lines = []
    for item in held_out_items(seed, count):
        number = numbers[item.task] = numbers.get(item.task, -1) + 1
        lines.append(json.dumps(row_of(item, number), ensure_ascii=False) + "\n")
    return "".join(lines)


def main() -> int:
    """Writes the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=100, help="of each task")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    options.output.write_text(text_of(options.seed, options.items), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
