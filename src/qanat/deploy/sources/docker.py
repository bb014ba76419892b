"""Container commands (docker, podman, nerdctl) taken apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qanat.deploy.sources.launch import Assignment, Container, Flag
from qanat.deploy.sources.values import Place, Value

SWITCHES = frozenset(
    "rm privileged init interactive tty detach read-only no-healthcheck oom-kill-disable publish-all sig-proxy "
    "disable-content-trust quiet help i t d P q".split()
)
"""Options of run and exec that take no value; every other one takes the next word."""
LONG = {
    "e": "env",
    "v": "volume",
    "w": "workdir",
    "h": "hostname",
    "m": "memory",
    "u": "user",
    "p": "publish",
}
_ARRAY = re.compile(r"\$\{\w+\[[@*]\]\}", re.ASCII)
"""Words of an array of the shell: before the image they are options."""
LISTS = {"env", "volume", "mount", "device"}


@dataclass(frozen=True)
class ContainerCall:
    """`docker run` or `docker exec`.

    Attributes:
        container: None for exec.
        env: variables given on the command line.
        inner: words behind the image or the container's name.
    """

    container: Container | None
    env: tuple[Assignment, ...]
    inner: tuple[Value, ...]


def read_container_call(
    arguments: Sequence[Value],
    place: Place,
    block: int,
    environment: dict[str, Assignment],
    env_file: Callable[[Value, int], tuple[Assignment, ...]],
) -> ContainerCall | None:
    """Takes the words behind `docker` apart; None if nothing is started.

    Args:
        arguments: words behind docker.
        place: of the command.
        block: number of the piece of script.
        environment: variables that docker sees, for `-e NAME`.
        env_file: the variables of a file given by --env-file.
    """
    words = [word.text for word in arguments]
    if words and words[0] == "container":
        arguments, words = arguments[1:], words[1:]
    if not words or words[0] not in ("run", "exec", "create"):
        return None
    flags, rest = _options(arguments[1:])
    lists: dict[str, list[Value]] = {name: [] for name in LISTS}
    settings: dict[str, Value] = {}
    for flag in flags:
        name = LONG.get(flag.name.lstrip("-"), flag.name.lstrip("-"))
        if flag.value is not None:
            lists.setdefault(name, []).append(flag.value)
            settings[{"net": "network", "shm-size": "shm_size"}.get(name, name)] = flag.value
    files = [one for value in lists.get("env-file", ()) for one in env_file(value, block)]
    env = (*files, *(one for value in lists["env"] if (one := _variable(value, block, environment))))
    if not rest:
        return None
    if words[0] == "exec":
        return ContainerCall(None, env, tuple(rest[1:]))
    for name in LISTS:
        settings.pop(name, None)
    inner = list(rest[1:])
    if (entry := settings.get("entrypoint")) is not None and entry.text:
        inner.insert(0, entry)
    container = Container(
        image=rest[0],
        name=settings.get("name"),
        env=env,
        mounts=(*lists["volume"], *(_mount(value) for value in lists["mount"])),
        devices=tuple(lists["device"]),
        flags=tuple(flags),
        is_privileged=any(flag.name == "--privileged" for flag in flags),
        settings=settings,
        place=place,
        block=block,
        command=tuple(inner),
        ports=tuple(lists.get("publish", ())),
    )
    return ContainerCall(container, env, tuple(inner))


def _options(words: Sequence[Value]) -> tuple[list[Flag], list[Value]]:
    """Options up to the image, and the image with what is behind it."""
    flags: list[Flag] = []
    at = 0
    while at < len(words):
        word = words[at]
        text = word.text
        if _ARRAY.fullmatch(text):
            flags.append(Flag(text, text, word.place))
            at += 1
            continue
        if not text.startswith("-") or len(text) < 2:
            break
        at += 1
        name, equals, _ = text.partition("=")
        letters = name.lstrip("-")
        if equals:
            flags.append(Flag(name, name, word.place, (word.part(len(name) + 1, len(text)),), True))
        elif not text.startswith("--") and len(letters) > 1 and letters[0] in LONG and letters[0] != "h":
            short = text[:2]
            flags.append(Flag(short, short, word.place, (word.part(2, len(text)),)))
        elif letters in SWITCHES or (not text.startswith("--") and set(letters) <= set("itdPq")):
            flags.append(Flag(name, name, word.place))
        elif at < len(words):
            flags.append(Flag(name, name, word.place, (words[at],)))
            at += 1
    return flags, list(words[at:])


def _variable(value: Value, block: int, environment: dict[str, Assignment]) -> Assignment | None:
    name, equals, _ = value.text.partition("=")
    if equals:
        return Assignment(name, value.part(len(name) + 1, len(value.text)), value.place, "container", block)
    outer = environment.get(name)
    return Assignment(name, outer.value, value.place, "container", block) if outer else None


def _mount(value: Value) -> Value:
    """`--mount type=bind,source=/a,target=/b` as `/a:/b`."""
    fields = dict(re.findall(r"(\w+)=([^,]*)", value.text))
    source = fields.get("source", fields.get("src", ""))
    target = fields.get("target", fields.get("destination", fields.get("dst", "")))
    return Value(f"{source}:{target}", value.place, value.unknown)
