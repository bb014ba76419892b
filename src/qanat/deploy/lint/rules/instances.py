"""Several servers on one host: the same cards, the same folder for metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from qanat.deploy.lint.files import DocumentView
from qanat.deploy.lint.memory import default_share
from qanat.deploy.lint.registry import Hit, on_document
from qanat.deploy.lint.rules.service import port_ranges, ports_in_words
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.values import Place

_APART = re.compile(
    r"(?:^|[\s;])(?:else|elif|fi|done|esac|;;|wait|kill|pkill|killall)(?:[\s;]|$)|^\s*\}|\b(?:stop|rm|down)\b",
    re.MULTILINE,
)
"""Between two starts: a branch, a function's end, or something that ends the first."""
_BACKGROUND = re.compile(r"(?<![&>])&(?![&>])")
_DETACHED = re.compile(r"(?:docker|podman|nerdctl)\s+run\b[^\n]*\s(?:--detach|-[it]*d[it]*)\b")
_DEVICE = re.compile(r"/dev/davinci(\d+)")
DEFAULT_PORT = 8000
METRICS = "PROMETHEUS_MULTIPROC_DIR"


def _pairs(view: DocumentView) -> Iterator[tuple[LaunchView, LaunchView]]:
    """Servers that run at the same time on one host: services of a Compose file, or started behind each other."""
    servers = view.servers()
    for first, second in combinations(servers, 2):
        if view.document.kind == "compose" or (
            view.document.kind == "shell" and _run_together(view, first, second)
        ):
            yield first, second


def _run_together(view: DocumentView, first: LaunchView, second: LaunchView) -> bool:
    """Whether a script starts the second while the first runs, neither of them on another host."""
    text = view.document.text
    start, end = first.launch.place, second.launch.place
    between = text[start.end : end.start]
    is_left_running = _BACKGROUND.search(between.split("\n")[0]) or _DETACHED.search(
        text[start.start : start.end]
    )
    remote = [one.place for one in view.document.commands if one.program in ("ssh", "kubectl")]
    is_here = not any(place.start <= one.start < place.end for place in remote for one in (start, end))
    return bool(is_left_running) and is_here and _APART.search(between) is None


def _npus(server: LaunchView) -> frozenset[int] | None:
    """The cards that a server uses, by number; None if that cannot be known."""
    variable = server.variable("ASCEND_RT_VISIBLE_DEVICES")
    container = server.launch.container
    if variable is not None:
        if not re.fullmatch(r"\d+([,-]\d+)*", variable.value.text):
            return None
        numbers: list[int] = []
        for part in variable.value.text.split(","):
            ends = [int(end) for end in part.split("-")]
            numbers += range(ends[0], min(ends[-1], ends[0] + 64) + 1)
        return frozenset(numbers[: server.num_local_ranks])
    if container is not None and container.devices and not container.is_privileged:
        found = [_DEVICE.search(device.text) for device in container.devices]
        listed = sorted({int(match.group(1)) for match in found if match})
        is_known = all(device.is_known for device in container.devices)
        return frozenset(listed[: server.num_local_ranks]) if listed and is_known else None
    is_size_known = all(
        server.get(flag) is None or server.integer(flag)
        for flag in ("--tensor-parallel-size", "--data-parallel-size", "--pipeline-parallel-size")
    )
    return frozenset(range(server.num_local_ranks)) if is_size_known and container is None else None


def _share(server: LaunchView) -> float | None:
    stated = server.number("--gpu-memory-utilization")
    if stated is None and server.get("--gpu-memory-utilization") is None:
        return default_share(server)
    return stated


@on_document("MEM004")
def cards(view: DocumentView) -> Iterator[Hit]:
    """Servers on the same cards that together ask for more memory than there is."""
    for first, second in _pairs(view):
        npus = _npus(first), _npus(second)
        shares = _share(first), _share(second)
        if npus[0] is None or npus[1] is None or shares[0] is None or shares[1] is None:
            continue
        common = sorted(npus[0] & npus[1])
        if common and shares[0] + shares[1] > 1:
            listed = f"{common[0]} to {common[-1]}" if len(common) > 2 else ", ".join(map(str, common))
            message = (
                f"NPU {listed} also runs the server in line {first.launch.place.line}, which asks for "
                f"{shares[0]:g} of the memory; this one asks for {shares[1]:g}"
            )
            yield Hit("MEM004", second.place("--gpu-memory-utilization"), message)


def _has_host_network(server: LaunchView) -> bool:
    container = server.launch.container
    network = container.settings.get("network") if container is not None else None
    return container is None or (network is not None and network.text == "host")


def _listening(server: LaunchView) -> list[tuple[str, range, Place]]:
    """The ports a server listens on, the default of --port among them."""
    found = port_ranges(server)
    if server.get("--port") is None and not server.switch("--headless"):
        found.append(("--port", range(DEFAULT_PORT, DEFAULT_PORT + 1), server.launch.place))
    return found


@on_document("PORT003")
def ports(view: DocumentView) -> Iterator[Hit]:
    """Servers that run at once on one host and listen on a common port."""
    for first, second in _pairs(view):
        if not (_has_host_network(first) and _has_host_network(second)):
            continue
        for name, used, place in _listening(second):
            for other, taken, _ in _listening(first):
                # Nodes of one group are given the same control port and count their ranks from one kv_port.
                is_shared = name == other != "--port" and second.dp > 1
                if not is_shared and max(used.start, taken.start) < min(used.stop, taken.stop):
                    message = (
                        f"{name} uses {ports_in_words(used)}; the server in line {first.launch.place.line} uses "
                        f"{ports_in_words(taken)} for {other}"
                    )
                    yield Hit("PORT003", place, message)


@on_document("ENV022", "ENV033")
def metrics(view: DocumentView) -> Iterator[Hit]:
    """The folder in which the processes of one server collect their metrics."""
    folders = {server: server.variable(METRICS) for server in view.servers()}
    for first, second in _pairs(view):
        one, other = folders[first], folders[second]
        is_inside = second.launch.container is not None  # every container has its own file system
        if one is not None and other is not None and one.value.text == other.value.text and not is_inside:
            message = f"the server in line {first.launch.place.line} collects its metrics in the same folder"
            yield Hit("ENV022", other.place, message)
            return
    for server, folder in folders.items():
        if folder is None or server.launch.container is not None or not folder.value.text:
            continue
        before = view.document.text[: server.launch.place.start]
        is_cleaned = re.search(rf"\brm\b[^\n]*(?:{METRICS}|{re.escape(folder.value.text)})|mktemp", before)
        if is_cleaned is None:
            yield Hit("ENV033", folder.place, f"nothing empties {folder.value.text} before the start")
