"""Facts that files hold: commands, services, containers, variables, and what stands only in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from qanat.deploy.sources.json_text import JsonFault, JsonNode, read_json
from qanat.deploy.sources.values import Place, Value

DocumentKind = Literal["shell", "guide", "compose", "kubernetes", "yaml", "env"]
LaunchKind = Literal["serve", "proxy", "bench", "accuracy", "fragment"]
Role = Literal["single", "prefill", "decode", "head", "worker", "proxy", "client"]
Origin = Literal["export", "shell", "command", "container", "prose"]
NoteKind = Literal[
    "unreadable", "binary", "windows-lines", "broken-continuation", "lost-flags", "text-in-command"
]

FLAG = re.compile(r"(?:--?|[–—]+-?)[A-Za-z][\w.+-]*", re.ASCII)
"""A flag as it is written, wrong dashes among them."""


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Note:
    """Something about the file itself.

    Attributes:
        kind: `unreadable`: could not be read, nothing in it is checked; `broken-continuation`: blanks behind a
            backslash at the end of a line; `binary`: the file is no text; `windows-lines`: lines of a script end
            as on Windows; `lost-flags`: flags on a line of their own, behind a line that does not
            end with a backslash (they are read as if it did); `text-in-command`: prose stands right behind a
            command, as happens when a page is copied.
        place: where.
        message: what was found.
    """

    kind: NoteKind
    place: Place
    message: str


@dataclass(frozen=True)
class Assignment:
    """A variable that is set.

    Attributes:
        name: of the variable.
        value: what it is set to.
        place: the whole assignment, without `export`.
        origin: `export`; `shell` for a variable of the script that no program sees; `command` before a command or
            behind `env`; `container` in a docker command, Compose or Kubernetes file; `prose` in a guide's text.
        block: number of the piece of script within the document; prose has -1.
    """

    name: str
    value: Value
    place: Place
    origin: Origin
    block: int = 0


@dataclass(frozen=True)
class Flag:
    """A flag with what stands behind it.

    Attributes:
        written: as it stands, wrong dashes and all, without `=value`.
        name: with two plain dashes (one for one letter-group such as -tp) and dashes for underscores.
        place: of the flag itself.
        values: words behind it up to the next flag, or the text behind `=`. Whether the flag takes them is for the
            one who knows flags to say: a switch before the model leaves the model here.
        has_equals: True if it was written `--flag=value`.
    """

    written: str
    name: str
    place: Place
    values: tuple[Value, ...] = ()
    has_equals: bool = False

    @property
    def value(self) -> Value | None:
        """The first word behind it."""
        return self.values[0] if self.values else None

    @cached_property
    def json(self) -> JsonNode | JsonFault | None:
        """Its value as JSON; None without a value."""
        return read_json(self.values[0]) if self.values else None


@dataclass(frozen=True)
class Container:
    """A container that is started.

    Attributes:
        image: None if none was found.
        name: given to it.
        env: variables set from outside.
        mounts: `source:target[:mode]`, one each.
        devices: as given.
        flags: of docker run; empty for Compose and Kubernetes.
        is_privileged: all devices are open to it.
        settings: what else is set: network, shm_size, entrypoint, pid, ipc, by docker's names without dashes; of
            Kubernetes also enableServiceLinks and hostIPC, which stand beside the containers, and what probes ask
            (`readinessProbe.path`, `readinessProbe.port`).
        place: of the command, or of the entry in the file.
        block: number of the piece of script.
        command: what runs in it, entrypoint first.
        ports: that are published, as given (`8000:8000`).
    """

    image: Value | None
    name: Value | None
    env: tuple[Assignment, ...]
    mounts: tuple[Value, ...]
    devices: tuple[Value, ...]
    flags: tuple[Flag, ...]
    is_privileged: bool
    settings: dict[str, Value]
    place: Place
    block: int = 0
    command: tuple[Value, ...] = ()
    ports: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Command:
    """A simple command of a script.

    Attributes:
        argv: its words, redirections left out; wrappers such as nohup and sudo are still there.
        program: the last part of the path of what runs, wrappers passed over; "" if unknown.
        arguments: words behind the program.
        place: all of it.
        block: number of the piece of script.
        target: file that its output goes to.
        container: that it runs in, where that is clear.
    """

    argv: tuple[Value, ...]
    program: str
    arguments: tuple[Value, ...]
    place: Place
    block: int = 0
    target: Value | None = None
    container: Container | None = None


@dataclass(frozen=True)
class Launch:
    """A program whose flags are known: a server, a proxy, a benchmark.

    Attributes:
        kind: `serve` (vllm serve or its module), `proxy` (`qanat router`, the example proxies), `bench` (vllm bench),
            `accuracy` (lm_eval), `fragment` (flags that stand in a guide's text without a command).
        argv: words behind the program; for `serve` behind `vllm serve`, so the model is among them.
        program: how it was started: `vllm serve`, a module's or a script's name; "" for a fragment.
        flags: in order, as written.
        words: what stands before the first flag.
        env: variables in force, by name; the last assignment of each. Variables that no program sees are not here.
        container: what it runs in, where that is clear.
        image: of the container in force, or of the last one started before it in the document.
        role: guessed from kv_role, --headless and data parallel flags.
        place: the command.
        block: number of the piece of script; launches of one block share a shell.
        section: the guide's last heading before it, or "".
    """

    kind: LaunchKind
    argv: tuple[Value, ...]
    program: str
    flags: tuple[Flag, ...]
    words: tuple[Value, ...]
    env: dict[str, Assignment]
    container: Container | None
    image: Value | None
    role: Role
    place: Place
    block: int = 0
    section: str = ""

    def flag(self, *names: str) -> Flag | None:
        """The last flag with one of these names (`--max-model-len`, `-tp`), which is the one that counts."""
        for flag in reversed(self.flags):
            if flag.name in names:
                return flag
        return None

    def json(self, *names: str) -> JsonNode | None:
        """The JSON of a flag, keys written as `--flag.key value` put in; None if absent or no JSON."""
        flag = self.flag(*names)
        node = flag.json if flag else None
        root = node if isinstance(node, JsonNode) else None
        for flag in self.flags:
            for name in names:
                if flag.name.startswith(f"{name}.") and flag.values:
                    root = _put(root, flag, flag.written.split(".")[1:])
        return root


@dataclass(frozen=True)
class Mention:
    """A name in a guide's text.

    Attributes:
        kind: `flag`, `variable`, or `version` (of vllm-ascend or its image).
        value: as written.
        place: where.
    """

    kind: Literal["flag", "variable", "version"]
    value: Value
    place: Place


@dataclass(frozen=True)
class Document:
    """A file that has been read.

    Attributes:
        path: as it was named.
        text: its content.
        kind: found from the content.
        launches: programs with known flags, in order.
        containers: in order.
        commands: every simple command, those of launches among them.
        assignments: every variable that is set in it, in order; those of files that it sources are only in `env` of
            the launches.
        mentions: names in the text outside commands.
        prose: places of the lines that are text, not commands; none in scripts.
        notes: what could not be read, and damage that copying does.
        services: names of Kubernetes services.
        service_ports: ports of pods, as numbers, that Kubernetes services send requests to.
    """

    path: str
    text: str = field(repr=False)
    kind: DocumentKind
    launches: tuple[Launch, ...] = ()
    containers: tuple[Container, ...] = ()
    commands: tuple[Command, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    mentions: tuple[Mention, ...] = ()
    prose: tuple[Place, ...] = ()
    notes: tuple[Note, ...] = ()
    services: tuple[Value, ...] = ()
    service_ports: tuple[Value, ...] = ()


def read_flags(argv: tuple[Value, ...]) -> tuple[tuple[Value, ...], tuple[Flag, ...]]:
    """The words before the first flag, and the flags with what stands behind each."""
    words: list[Value] = []
    flags: list[Flag] = []
    for value in argv:
        match = FLAG.match(value.text)
        if match and _CONTROL.match(
            value.text, match.end()
        ):  # no flag that any program has, and no value either
            flags.append(Flag(value.text, value.text, value.place))
        elif match and (match.end() == len(value.text) or value.text[match.end()] == "="):
            name = match.group()
            behind = () if match.end() == len(value.text) else (value.part(match.end() + 1, len(value.text)),)
            place = value.place_of(0, match.end()) if behind else value.place
            flags.append(Flag(name, plain_name(name), place, behind, bool(behind)))
        elif flags and not flags[-1].has_equals:
            last = flags[-1]
            flags[-1] = Flag(last.written, last.name, last.place, (*last.values, value))
        elif flags:  # behind --flag=value: a word of its own
            words.append(value)
        else:
            words.append(value)
    return tuple(words), tuple(flags)


def plain_name(written: str) -> str:
    """A flag's name with plain dashes; the keys behind its first dot stay as they are."""
    head, dot, keys = written.partition(".")
    letters = head.lstrip("-–—").replace("_", "-")
    dashes = "-" if head.startswith("-") and not head.startswith(("--", "-–", "-—")) else "--"
    return dashes + letters + dot + keys


def _put(root: JsonNode | None, flag: Flag, keys: list[str]) -> JsonNode | None:
    """The object with one value set under a path of keys."""
    if not keys or not keys[0] or not flag.values:
        return root
    root = root or JsonNode({}, flag.place)
    key = keys[0].removesuffix("+")
    inner: JsonNode | None
    if len(keys) > 1:
        inner = _put(root.members.get(key), flag, keys[1:])
    else:
        read = read_json(flag.values[0])
        node = read if isinstance(read, JsonNode) else JsonNode(flag.values[0].text, flag.values[0].place)
        inner = JsonNode(node.value, node.place, flag.place, node.members, node.items)
    if inner is None:
        return root
    members = {**root.members, key: inner}
    plain = {name: member.value for name, member in members.items()}
    return JsonNode(plain, root.place, root.key_place, members)
