"""Score a served demo model: greedy answers to held-out items over any OpenAI-compatible server.

    python demo/evaluate.py --base-url http://127.0.0.1:8000/v1 --model qanat-demo

Each item is asked as it stands in its conversation, with its tools, thinking on or off. An answer counts if it is
exactly right: the text (or the end of it, where work is shown before the result), or the name and arguments of the call.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from demokit.item import Item
from demokit.mixture import SCORED, held_out_items
from demokit.tools import call_text


def parse_options() -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base-url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="qanat-demo", help="served model name")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--items", type=int, default=520, help="held-out items per task")
    parser.add_argument("--tasks", nargs="+", choices=SCORED, default=list(SCORED))
    parser.add_argument(
        "--unseen-wordings", action="store_true", help="ask in wordings that training never shows"
    )
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one answer")
    parser.add_argument("--json", type=Path, help="write the table and the wrong answers here")
    return parser.parse_args()


def wire_messages(item: Item) -> list[dict[str, Any]]:
    """The item's messages as OpenAI has them: arguments of calls are JSON text."""
    messages = []
    for message in item.messages:
        sent = dict(message)
        if "tool_calls" in sent:
            sent["tool_calls"] = [
                {
                    **call,
                    "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])},
                }
                for call in sent["tool_calls"]
            ]
        messages.append(sent)
    return messages


def ask(item: Item, options: argparse.Namespace) -> dict[str, Any]:
    """The assistant message that the server gives, or one that holds the error text."""
    body: dict[str, Any] = {
        "model": options.model,
        "messages": wire_messages(item),
        "temperature": 0,
        "max_tokens": 256,
        "chat_template_kwargs": {"enable_thinking": item.is_thinking},
    }
    if item.tools:
        body["tools"] = item.tools
    headers = {"Content-Type": "application/json"}
    if options.api_key:
        headers["Authorization"] = f"Bearer {options.api_key}"
    url = options.base_url.rstrip("/") + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=options.timeout) as reply:
            return dict(json.load(reply)["choices"][0]["message"])
    except urllib.error.HTTPError as error:
        return {"content": f"HTTP {error.code}: {error.read().decode(errors='replace')[:300]}"}


def answer_text(message: dict[str, Any]) -> str:
    """What was answered, as text: calls in the wire format, a think block left in the content taken off."""
    calls = message.get("tool_calls") or []
    if calls:
        functions = [call["function"] for call in calls]
        return "\n".join(call_text(f["name"], json.loads(f["arguments"] or "{}")) for f in functions)
    return (message.get("content") or "").split("</think>")[-1].strip()


def is_right(item: Item, message: dict[str, Any]) -> bool:
    """Whether the message answers the item."""
    said = answer_text(message)
    if item.task == "json":
        try:
            return bool(json.loads(said) == json.loads(item.final))
        except ValueError:
            return False
    if item.answer != item.final:  # the work is shown before the result
        return said.endswith((f"answer is {item.final}", f"答案是{item.final}"))
    return said == item.final


def main() -> int:
    """Ask everything, print a table per task; exit status 1 when a target is missed."""
    options = parse_options()
    drawn = held_out_items(options.seed, options.items, options.unseen_wordings)
    items = [item for item in drawn if item.task in options.tasks]
    started = time.monotonic()
    with ThreadPoolExecutor(options.concurrency) as pool:
        messages = list(pool.map(lambda item: ask(item, options), items))
    marks: defaultdict[tuple[str, bool], list[bool]] = defaultdict(list)
    wrong = []
    for item, message in zip(items, messages, strict=True):
        right = is_right(item, message)
        marks[item.task, item.is_thinking].append(right)
        if not right:
            question = item.messages[item.prompt_at]["content"]
            wrong.append({"task": item.task, "question": question, "wanted": item.final, "message": message})
    table = {}
    print(f"{'task':12} {'thinking on':>16} {'thinking off':>16} {'together':>9}")
    for task in options.tasks:
        on, off = marks[task, True], marks[task, False]
        share = 100 * sum(on + off) / len(on + off)
        table[task] = {"on": [sum(on), len(on)], "off": [sum(off), len(off)], "percent": round(share, 2)}
        print(f"{task:12} {sum(on):7} of {len(on):4} {sum(off):8} of {len(off):4} {share:8.1f}%")
    overall = 100 * (len(items) - len(wrong)) / len(items)
    print(f"{len(items)} items, {overall:.1f}% right, {time.monotonic() - started:.0f} s")
    if options.json:
        report = {"overall": overall, "tasks": table, "wrong": wrong}
        options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
    return 0 if overall >= 90 and all(row["percent"] >= 80 for row in table.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
