"""A docker that keeps its containers in a JSON file: what rendered scripts call is recorded and answered.

Called with the state file as its first argument, docker's own behind it. Nothing runs: a container is there until it
is stopped, and answers as ready once it was asked `polls_until_ready` times.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any


def main(state_file: Path, arguments: list[str]) -> int:
    """Answers one call of docker."""
    state: dict[str, Any] = {"containers": {}, "images": [], "calls": [], "polls": 0}
    if state_file.exists():
        state |= json.loads(state_file.read_text())
    state["calls"].append(arguments)
    code = answer(state, arguments)
    state_file.write_text(json.dumps(state))
    return code


def answer(state: dict[str, Any], arguments: list[str]) -> int:
    containers = state["containers"]
    match arguments:
        case ["version"]:
            return 1 if state.get("is_down") else 0
        case ["container", "inspect", "--format", template, name]:
            if name not in containers:
                return 1
            sys.stdout.write(fill(template, containers[name]) + "\n")
        case ["container", "rm", name]:
            del containers[name]
        case ["container", "stop", "-t", _, name]:
            containers[name]["is_running"] = False
        case ["container", "ls", "--all", "--quiet", *filters]:
            labels = dict(one.removeprefix("label=").split("=", 1) for one in filters if one != "--filter")
            for name, container in containers.items():
                if labels.items() <= container["labels"].items():
                    sys.stdout.write(name + "\n")
        case ["exec", name, *_]:
            state["polls"] += 1
            if state["polls"] >= state.get("dies_at_poll", 10**9):
                containers[name]["is_running"] = False
            return 0 if state["polls"] >= state.get("polls_until_ready", 1) else 1
        case ["image", "inspect", image]:
            return 0 if image in state["images"] else 1
        case ["pull", image]:
            if state.get("is_registry_down"):
                sys.stderr.write("no route to the registry\n")
                return 1
            state["images"].append(image)
        case ["run", *rest]:
            return run(state, rest)
        case _:
            sys.stderr.write(f"fake docker does not know {arguments}\n")
            return 125
    return 0


def run(state: dict[str, Any], rest: list[str]) -> int:
    options: dict[str, list[str]] = {}
    at = 0
    while rest[at].startswith("-"):
        if rest[at] in ("--detach", "--init"):
            options[rest[at]] = []
            at += 1
        else:
            options.setdefault(rest[at], []).append(rest[at + 1])
            at += 2
    (name,) = options["--name"]
    if name in state["containers"]:
        sys.stderr.write(f"the name {name} is in use\n")
        return 125
    if state.get("is_run_refused"):
        sys.stderr.write("no such device\n")
        return 125
    state["containers"][name] = {
        "is_running": True,
        "image": rest[at],
        "labels": dict(label.split("=", 1) for label in options["--label"]),
        "options": options,
        "command": rest[at + 1 :],
    }
    sys.stdout.write("0123456789ab\n")
    return 0


def fill(template: str, container: dict[str, Any]) -> str:
    """The Go template of `--format`, as far as the scripts use it."""
    values = {
        ".State.Status": "running" if container["is_running"] else "exited",
        ".State.Running": str(container["is_running"]).lower(),
        ".Config.Image": container["image"],
    }
    text = re.sub(
        r'\{\{index \.Config\.Labels "([^"]+)"\}\}', lambda m: container["labels"].get(m[1], ""), template
    )
    return re.sub(r"\{\{([^}]+)\}\}", lambda m: values[m[1]], text)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
