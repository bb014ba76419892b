"""Containers that cannot start an engine, or that nobody reaches: devices, driver, weights, ports, shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.releases import KnownPath
from qanat.deploy.lint.files import DocumentView, FileSet
from qanat.deploy.lint.registry import Hit, on_document, on_files
from qanat.deploy.lint.rules.containers import chip_of, is_mounted
from qanat.deploy.lint.view import SPECULATIVE, LaunchView
from qanat.deploy.sources.launch import Container
from qanat.deploy.sources.values import Place, Value

_NPU = re.compile(r"/dev/davinci\d+(?::.*)?")
_PUBLISHED = re.compile(r"(?:[\d.]+:|\[[\da-fA-F:]+\]:)?(?:\d+:)?(\d+)(?:/(tcp|udp))?", re.ASCII)
_SETS_UP_DEVICES = "ASCEND_VISIBLE_DEVICES"
"""A variable by which Ascend's own container runtime adds devices and the driver."""
DEFAULT_PORT = 8000
IMAGE_FOLDERS = ("/root", "/vllm-workspace", "/tmp", "/home")  # noqa: S108 - a folder of the image, nothing is written
"""Folders of the image where weights may lie that were fetched in the container."""
_STARTS = frozenset(("run", "create", "vllm"))
"""Words of commands that start a container or a server: these name the folder, and do not fill it."""


@on_document("HOST018", "HOST019")
def devices(view: DocumentView) -> Iterator[Hit]:
    """What an engine needs beside its NPUs."""
    for container in view.document.containers:
        chip = chip_of(view.knowledge, container)
        if chip is None or not _lists_all(container):
            continue
        given = {device.text.split(":")[0] for device in container.devices}
        missing = [device for device in chip.devices if device not in given]
        place = next(one.place for one in reversed(container.devices) if _NPU.fullmatch(one.text))
        if missing:
            names = ", ".join(missing)
            advice = " ".join(f"--device {name}" for name in missing)
            yield Hit("HOST018", place, f"the container lacks {names}", advice if container.flags else names)
        for path in _required(view.knowledge, chip.family):
            if _has_all_mounts(container) and not is_mounted(container, path.name):
                yield Hit("HOST019", place, f"{path.name} is not mounted", f"mount {path.name}, read-only")


def _required(knowledge: Knowledge, family: str) -> Iterator[KnownPath]:
    for path in knowledge.tables["known_paths"].entries.values():
        if path.is_required and (not path.families or family in path.families):
            yield path


def _lists_all(container: Container) -> bool:
    """Whether a container is given its NPUs one by one, and all of its devices are known."""
    runtime = container.settings.get("runtime")
    is_open = any(not device.is_known or "$" in device.text for device in container.devices)
    is_set_up = runtime is not None or any(one.name == _SETS_UP_DEVICES for one in container.env)
    listed = any(_NPU.fullmatch(device.text) for device in container.devices)
    return listed and not (is_open or is_set_up or container.is_privileged or _is_open(container))


def _is_open(container: Container) -> bool:
    """Whether some of what a container is given stands elsewhere, or in a variable that is not known."""
    elsewhere = {"volumes-from", "extends", "volumes_from"} & container.settings.keys()
    words = [value for flag in container.flags for value in (*flag.values,)]
    is_open = any("${" in word.text and "[@]" in word.text for word in words)
    return bool(elsewhere) or is_open or any("$" in flag.written for flag in container.flags)


def _has_all_mounts(container: Container) -> bool:
    """Whether the targets of all mounts are known."""
    return not _is_open(container) and all(_target(mount) is not None for mount in container.mounts)


def _target(mount: Value) -> str | None:
    parts = mount.text.split(":")
    target = parts[1] if len(parts) > 1 else parts[0]
    return target if target.startswith("/") and "$" not in target else None


@on_document("HOST020", "HOST021", "HOST022", "HOST023")
def with_servers(view: DocumentView) -> Iterator[Hit]:
    """A server against the container that it runs in."""
    for server in view.servers():
        if server.launch.container is not None:
            yield from _fit(view, server, server.launch.container)


@on_files("HOST020", "HOST021", "HOST022")
def with_scripts(files: FileSet) -> Iterator[Hit]:
    """Servers of scripts against the containers that run these."""
    by_path = {view.document.path: view for view in files.documents}
    for container, server in files.started_scripts():
        if server.launch.container is None:
            yield from _fit(by_path[server.document.path], server, container)


def _fit(view: DocumentView, server: LaunchView, container: Container) -> Iterator[Hit]:
    if chip_of(view.knowledge, container) is None:
        return
    yield from _weights(view, server, container)
    yield from _published(server, container)
    yield from _shared_memory(server, container)
    yield from _probes(view, server, container)


def _weights(view: DocumentView, server: LaunchView, container: Container) -> Iterator[Hit]:
    if not _has_all_mounts(container):
        return
    for path, place in _model_paths(server):
        is_inside = path.startswith(IMAGE_FOLDERS) or _is_made(view, path)
        if not is_inside and not is_mounted(container, path):
            yield Hit("HOST020", place, f"no mount of the container has {path[:80]}")


def _model_paths(server: LaunchView) -> Iterator[tuple[str, Place]]:
    value = server.value("--model") or (server.launch.words[0] if server.launch.words else None)
    if value is not None and value.is_known and value.text.startswith("/") and "$" not in value.text:
        yield value.text, value.place
    draft = server.key(SPECULATIVE, "model")
    if draft is not None and isinstance(draft.value, str) and draft.value.startswith("/"):
        yield draft.value, draft.place


def _is_made(view: DocumentView, path: str) -> bool:
    """Whether another command of the file names the path or a folder above it: it may fetch the weights."""
    for command in view.document.commands:
        is_start = command.program == "vllm" or any(word.text in _STARTS for word in command.arguments)
        for word in command.arguments if not is_start else ():
            named = word.text.rstrip("/")
            if named.startswith("/") and (path == named or path.startswith(f"{named}/")):
                return True
    return False


def _port(server: LaunchView) -> int | None:
    """The port a server listens on; None if it is not known."""
    is_open = any(not word.is_known or "$" in word.text for word in server.launch.argv)
    if server.get("--port") is not None:
        return server.integer("--port")
    return None if is_open or server.get("--config") or server.switch("--headless") else DEFAULT_PORT


def _published(server: LaunchView, container: Container) -> Iterator[Hit]:
    port, network = _port(server), container.settings.get("network")
    is_bridge = network is None or network.text in ("bridge", "default")
    found = [_PUBLISHED.fullmatch(one.text) for one in container.ports]
    if port is None or not found or None in found or not is_bridge or server.switch("--headless"):
        return
    if port not in {int(match.group(1)) for match in found if match is not None}:
        place = container.ports[0].place
        yield Hit("HOST021", place, f"{container.ports[0].text} is published; the server listens on {port}")


def _shared_memory(server: LaunchView, container: Container) -> Iterator[Hit]:
    ipc, host_ipc = container.settings.get("ipc"), container.settings.get("hostIPC")
    is_shared = (ipc is not None and ipc.text != "private") or (
        host_ipc is not None and host_ipc.text.lower() == "true"
    )
    is_sized = "shm_size" in container.settings or is_mounted(container, "/dev/shm")  # noqa: S108 - the container's
    if server.num_local_ranks > 1 and not (is_shared or is_sized or _is_open(container)):
        message = f"{server.num_local_ranks} ranks share the 64 MiB of /dev/shm that a container has"
        yield Hit("HOST022", _head(container), message)


def _head(container: Container) -> Place:
    return container.image.place if container.image is not None else container.place


def _probes(view: DocumentView, server: LaunchView, container: Container) -> Iterator[Hit]:
    port = _port(server)
    known = view.knowledge.tables["endpoints"].entries
    for name, value in container.settings.items():
        probe, _, key = name.partition(".")
        if not probe.endswith("Probe") or not value.is_known:
            continue
        if key == "path" and value.text.split("?")[0] not in known:
            yield Hit("HOST023", value.place, f"{probe} asks {value.text[:60]}, which vLLM does not have")
        elif key == "port" and port is not None and value.text.isdecimal() and int(value.text) != port:
            yield Hit("HOST023", value.place, f"{probe} asks port {value.text}; the server listens on {port}")


@on_document("HOST021")
def services(view: DocumentView) -> Iterator[Hit]:
    """The ports that services of a manifest send requests to, where one server is all there is behind them."""
    servers = view.servers()
    if len(servers) != 1 or len(view.document.containers) != 1 or servers[0].launch.container is None:
        return
    port = _port(servers[0])
    for target in view.document.service_ports if port is not None else ():
        if int(target.text) != port:
            yield Hit(
                "HOST021", target.place, f"the service names port {target.text}; the server listens on {port}"
            )
