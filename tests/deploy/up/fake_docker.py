"""A docker whose containers are processes of this machine: `run` starts the script that the container would run.

Called with a folder for its state as the first argument and the folder of host paths that hold our programs (PATH) as
the second; docker's own arguments follow. Volumes are read, so that paths of the container lead to those of the host.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[dict[str, Any]]:
    """The containers; several calls of docker happen at once."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = folder / "containers.json"
        containers = json.loads(file.read_text()) if file.exists() else {}
        yield containers
        new = folder / "containers.json.new"
        new.write_text(json.dumps(containers))
        new.replace(file)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run(folder: Path, words: list[str]) -> int:
    options: dict[str, list[str]] = {}
    while words[0].startswith("-"):
        word = words.pop(0)
        if word not in ("--detach", "--init", "--privileged"):
            options.setdefault(word, []).append(words.pop(0))
    image, *command = words
    (name,) = options["--name"]
    volumes = dict(volume.split(":")[1::-1] for volume in options["--volume"])

    def on_host(text: str) -> str:
        for inside, outside in sorted(volumes.items(), key=lambda pair: -len(pair[0])):
            text = re.sub(rf"(^|=){re.escape(inside)}(?=/|$)", rf"\1{outside}", text)
        return text

    environment = dict(os.environ) | dict(on_host(one).split("=", 1) for one in options.get("--env", []))
    process = subprocess.Popen(
        [*options["--entrypoint"], *(on_host(word) for word in command)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    labels = dict(label.split("=", 1) for label in options.get("--label", []))
    with locked(folder) as containers:
        containers[name] = {"pid": process.pid, "image": image, "labels": labels}
    sys.stdout.write("0123456789ab\n")
    return 0


def stop(pid: int, timeout_s: float) -> None:
    """Ends a container and everything in it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        deadline = time.monotonic() + timeout_s
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def fill(template: str, container: dict[str, Any]) -> str:
    is_running = is_alive(container["pid"])
    values = {
        ".State.Status": "running" if is_running else "exited",
        ".State.Running": str(is_running).lower(),
        ".Config.Image": container["image"],
    }
    text = re.sub(
        r'\{\{index \.Config\.Labels "([^"]+)"\}\}', lambda m: container["labels"].get(m[1], ""), template
    )
    return re.sub(r"\{\{([^}]+)\}\}", lambda m: values[m[1]], text)


def main(folder: Path, words: list[str]) -> int:
    """Answers one call of docker."""
    match words:
        case ["version"]:
            return 0
        case ["run", *rest]:
            return run(folder, rest)
        case ["container", "inspect", "--format", template, name]:
            with locked(folder) as containers:
                if name not in containers:
                    return 1
                sys.stdout.write(fill(template, containers[name]) + "\n")
        case ["container", "ls", "--all", "--quiet", *filters]:
            labels = dict(one.removeprefix("label=").split("=", 1) for one in filters if one != "--filter")
            with locked(folder) as containers:
                for name, container in containers.items():
                    if labels.items() <= container["labels"].items():
                        sys.stdout.write(name + "\n")
        case ["container", "stop", "-t" | "--time", seconds, name]:
            if (folder / "cannot_stop").exists():
                sys.stderr.write("cannot stop container: permission denied\n")
                return 1
            with locked(folder) as containers:
                pid = containers[name]["pid"]
            stop(pid, float(seconds))
        case ["container", "rm", name]:
            with locked(folder) as containers:
                del containers[name]
        case _:
            sys.stderr.write(f"this docker does not know {words}\n")
            return 125
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
