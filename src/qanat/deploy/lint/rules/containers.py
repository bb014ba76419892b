"""Containers: images, devices, mounts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.versions import parse_image
from qanat.deploy.lint.files import DocumentView, FileSet
from qanat.deploy.lint.finding import Edit
from qanat.deploy.lint.registry import Hit, on_document, on_files
from qanat.deploy.lint.view import TRANSFER, LaunchView
from qanat.deploy.sources.env_files import QUOTES
from qanat.deploy.sources.launch import Container
from qanat.deploy.sources.values import PLACEHOLDER, Place, Value

_TAG = re.compile(r"[\w][\w.-]{0,127}", re.ASCII)
_DEVICE = re.compile(r"/dev/davinci(\d+)\b")
HOST_LIBRARIES = ("/usr/lib64", "/usr/lib", "/lib64", "/lib")
HCCN = "/etc/hccn.conf"
UB_DEVICE = "/dev/ummu"
"""A device that only one family of chips has."""


def chip_of(knowledge: Knowledge, container: Container) -> Chip | None:
    """The chip a container is for, by its devices or image; None if the image is no vllm-ascend one."""
    if container.image is None or "vllm-ascend" not in container.image.text:
        return None
    for chip in knowledge.chips:
        if UB_DEVICE in chip.devices and any(one.text.startswith(UB_DEVICE) for one in container.devices):
            return chip
    tag = parse_image(container.image.text)
    if tag is None:
        return None
    suffixes = [suffix for suffix in tag.suffixes if suffix != "openeuler"]
    wanted = suffixes[0] if suffixes else ""
    return next((chip for chip in knowledge.chips if chip.image_suffix == wanted), None)


@on_document("HOST008", "HOST009", "HOST010", "HOST012", "HOST015", "HOST016", "ENV034")
def one(view: DocumentView) -> Iterator[Hit]:
    """A container by itself."""
    for container in view.document.containers:
        yield from _image(container)
        yield from _mounts(container)
        yield from _own_chip(view, container)
        yield from _quotes(view, container)
        flags = {flag.name: flag for flag in container.flags}
        is_detached = "--detach" in flags or any(re.fullmatch(r"-[it]*d[it]*", name) for name in flags)
        if "--rm" in flags and is_detached:
            yield Hit("HOST008", flags["--rm"].place, "--rm with -d: the logs go with the container")
        if container.is_privileged and any(_DEVICE.search(device.text) for device in container.devices):
            place = flags["--privileged"].place if "--privileged" in flags else container.place
            yield Hit("HOST012", place, "privileged, and devices are listed as well")


def _image(container: Container) -> Iterator[Hit]:
    image = container.image
    if image is None or image.unknown or PLACEHOLDER.search(image.text) or re.search(r"[{}|]", image.text):
        return
    name, _, tag = image.text.split("@")[0].rpartition(":")
    if name and tag and "/" not in tag and not _TAG.fullmatch(tag):
        place = image.place_of(len(image.text) - len(tag), len(image.text))
        yield Hit("HOST010", place, f"{tag!r} is no tag that an image can have")


def _own_chip(view: DocumentView, container: Container) -> Iterator[Hit]:
    """Devices that one family of chips has, beside an image for another one."""
    chip = chip_of(view.knowledge, container)
    tag = parse_image(container.image.text) if container.image else None
    if chip is None or tag is None or container.image is None or UB_DEVICE not in chip.devices:
        return
    if chip.image_suffix not in tag.suffixes:
        message = f"the devices are those of {chip.name}, the image {tag.version} is for another chip"
        suffix = f"a tag that ends with -{chip.image_suffix}"
        yield Hit("HOST015", _written(container.image), message, suffix)


def _quotes(view: DocumentView, container: Container) -> Iterator[Hit]:
    """Quotes in a file that docker reads: they become part of the value."""
    for variable in container.env if view.document.kind in ("shell", "guide") else ():
        text = variable.value.text
        is_elsewhere = variable.place.path != view.document.path
        if is_elsewhere and len(text) > 1 and text[0] == text[-1] and text[0] in QUOTES:
            message = f"docker leaves the quotes around the value of {variable.name}"
            edit = Edit(variable.value.place, text[1:-1])
            yield Hit("ENV034", variable.place, message, f"{variable.name}={text[1:-1]}", (edit,))


def _written(image: Value) -> Place:
    """Where an image's name was written; a variable's value is at its assignment."""
    return image.place_of(0, len(image.text))


def _mounts(container: Container) -> Iterator[Hit]:
    seen: set[str] = set()
    for mount in container.mounts:
        if mount.text in seen:
            yield Hit("HOST009", mount.place, f"{mount.text} is mounted already")
        seen.add(mount.text)
        parts = [part.rstrip("/") for part in mount.text.split(":")]
        if len(parts) > 1 and parts[0] == parts[1] and parts[0] in HOST_LIBRARIES:
            yield Hit("HOST016", mount.place, f"the host's {parts[0]} hides the one of the image")


@on_document("TOP007", "HOST015", "PD012", "PD013")
def with_servers(view: DocumentView) -> Iterator[Hit]:
    """Containers against the servers that run in them."""
    for server in view.servers():
        own = server.launch.container
        fitting = [own] if own is not None else _candidates(view, server)
        for container in fitting:
            if container is own or chip_of(view.knowledge, container) == server.chip:
                yield from _devices(server, container)
        yield from _chip(view.knowledge, server, fitting)
        yield from _addresses(view.knowledge, server, fitting)
        yield from _resources(server, fitting)


@on_files("TOP007", "HOST015", "PD012", "PD013")
def with_scripts(files: FileSet) -> Iterator[Hit]:
    """Containers against the servers of the scripts that they run."""
    for container, server in files.started_scripts():
        yield from _devices(server, container)
        yield from _chip(files.documents[0].knowledge, server, [container])
        yield from _addresses(files.documents[0].knowledge, server, [container])
        yield from _resources(server, [container])


def _candidates(view: DocumentView, server: LaunchView) -> list[Container]:
    """The containers of a guide that a server may run in: those for its chip, else all of the file.

    Empty if another one may be for its chip: an image whose tag the reader is to fill in.
    """
    containers = [one for one in view.document.containers if chip_of(view.knowledge, one) is not None]
    same = [one for one in containers if chip_of(view.knowledge, one) == server.chip]
    images = [one.image.text for one in view.document.containers if one.image is not None]
    is_open = len([text for text in images if "vllm-ascend" in text]) > len(containers)
    return same or ([] if is_open else containers)


def _devices(server: LaunchView, container: Container) -> Iterator[Hit]:
    listed = [device for device in container.devices if _DEVICE.search(device.text)]
    is_ray = server.text("--distributed-executor-backend") == "ray"  # ranks of other nodes are among them
    if not listed or container.is_privileged or is_ray or server.num_local_ranks <= len(listed):
        return
    message = (
        f"{len(listed)} devices; the server in {_at(server, container)} has {server.num_local_ranks} ranks"
    )
    yield Hit("TOP007", listed[-1].place, message)


def _chip(knowledge: Knowledge, server: LaunchView, fitting: list[Container]) -> Iterator[Hit]:
    if server.chip is None or len(fitting) != 1 or fitting[0].image is None:
        return
    built_for = chip_of(knowledge, fitting[0])
    # Chips of one family share an image.
    if built_for is not None and built_for.image_suffix != server.chip.image_suffix:
        message = f"the image is for {built_for.name}, the server in {_at(server, fitting[0])} for {server.chip.name}"
        suffix = (
            f"a tag that ends with -{server.chip.image_suffix}" if server.chip.image_suffix else "no suffix"
        )
        yield Hit("HOST015", _written(fitting[0].image), message, suffix)


def _addresses(knowledge: Knowledge, server: LaunchView, fitting: list[Container]) -> Iterator[Hit]:
    connector = server.connector
    if connector is None or connector.direction == "pool":
        return
    for container in fitting:
        chip = chip_of(knowledge, container)
        needs = chip is not None and HCCN in chip.mounts and server.chip in (None, chip)
        covered = is_mounted(container, HCCN)
        if needs and not covered and container.image is not None:
            message = f"{HCCN} is not mounted; the server in {_at(server, container)} needs it"
            yield Hit("PD012", _written(container.image), message)


def _resources(server: LaunchView, fitting: list[Container]) -> Iterator[Hit]:
    node = server.key(TRANSFER, "kv_connector_extra_config", "ascend_local_comm_res_path")
    if node is None or not isinstance(node.value, str) or not node.value.startswith("/"):
        return
    for container in fitting:
        if container.mounts and not is_mounted(container, node.value):
            where = _line(container.place, server.launch.place)
            message = f"{node.value} is not mounted in the container in {where}"
            yield Hit("PD013", node.place, message)


def _at(server: LaunchView, container: Container) -> str:
    return _line(server.launch.place, container.place)


def _line(place: Place, seen_from: Place) -> str:
    """A line as a reader of another place would name it."""
    return f"line {place.line}" if place.path == seen_from.path else f"{place.path}:{place.line}"


def is_mounted(container: Container, path: str) -> bool:
    """Whether a container has a path, or a folder above it, from the host."""
    for mount in container.mounts:
        parts = mount.text.split(":")
        target = (parts[1] if len(parts) > 1 else parts[0]).rstrip("/")
        if path.rstrip("/") == target or path.startswith(target + "/"):
            return True
    return False
