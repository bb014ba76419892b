"""A host kept in a file: what checks asked of it, so that they can be repeated elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import yaml

from qanat.core.errors import ConfigError
from qanat.deploy.preflight.host import NOT_RUNNABLE, TIMEOUT_S, Host, Output
from qanat.deploy.yaml_style import is_escaped

FILE_NAME = "host.yaml"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_OF_USE = re.compile(
    r"VLLM|HCCL|ASCEND|GLOO|^TP_|^OMP_|NPU|LD_PRELOAD|PROXY$|_PORT|SERVICE_HOST|^HOME$", re.IGNORECASE
)
"""Names of variables that checks may look at; no other is kept."""


class Recording(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Answers of a host. What is not in it was not there.

    Attributes:
        name: of the host.
        time_s: its clock, seconds since 1970.
        commands: words of a command, joined by blanks -> what it did.
        files: path -> text.
        folders: path -> names.
        paths: those that exist and are neither of the two above.
        free: path -> room on its disk in bytes.
        taken: "address:port" -> why nobody can listen there.
        names: host name -> addresses.
        variables: name -> value; values of secrets are left out.
    """

    name: str = "recorded"
    time_s: float = 0.0
    commands: dict[str, Output] = {}
    files: dict[str, str] = {}
    folders: dict[str, tuple[str, ...]] = {}
    paths: list[str] = []
    free: dict[str, int] = {}
    taken: dict[str, str] = {}
    names: dict[str, tuple[str, ...]] = {}
    variables: dict[str, str] = {}


class RecordedHost:
    """Answers from a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> Output:
        """What the command did; one that was not recorded was not found."""
        missing = Output(exit_code=NOT_RUNNABLE, problem="not found")
        return self.recording.commands.get(" ".join(words), missing)

    def read(self, path: str) -> str | None:
        """Text of a file."""
        return self.recording.files.get(path)

    def names(self, path: str) -> tuple[str, ...] | None:
        """Names in a folder."""
        return self.recording.folders.get(path)

    def exists(self, path: str) -> bool:
        """Whether the path was seen."""
        recording = self.recording
        return path in recording.paths or path in recording.files or path in recording.folders

    def free_bytes(self, path: str) -> int | None:
        """Room on the disk of a path."""
        return self.recording.free.get(path)

    def bind_error(self, address: str, port: int) -> str | None:
        """Why nobody could listen there."""
        return self.recording.taken.get(f"{address}:{port}")

    def resolve(self, name: str) -> tuple[str, ...]:
        """Addresses of a name."""
        return self.recording.names.get(name, ())

    def variables(self) -> Mapping[str, str]:
        """Environment variables."""
        return self.recording.variables

    def host_name(self) -> str:
        """Name of the machine."""
        return self.recording.name

    def now_s(self) -> float:
        """Its clock when it was recorded."""
        return self.recording.time_s


class RecordingHost:
    """Passes questions on to another host and keeps the answers; a command is run once, however many ask for it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.recording = Recording(name=host.host_name(), time_s=host.now_s())

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> Output:
        """What the command did, run now unless it was before."""
        known = self.recording.commands.get(" ".join(words))
        if known is not None:
            return known
        output = self.host.run(*words, timeout_s=timeout_s)
        if output.problem != "not found":
            self.recording.commands[" ".join(words)] = output
        return output

    def read(self, path: str) -> str | None:
        """Reads a file."""
        text = self.host.read(path)
        if text is not None:
            self.recording.files[path] = text
        return text

    def names(self, path: str) -> tuple[str, ...] | None:
        """Lists a folder."""
        names = self.host.names(path)
        if names is not None:
            self.recording.folders[path] = names
        return names

    def exists(self, path: str) -> bool:
        """Whether the path is there."""
        is_there = self.host.exists(path)
        if is_there and path not in self.recording.paths:
            self.recording.paths.append(path)
        return is_there

    def free_bytes(self, path: str) -> int | None:
        """Room on the disk of a path."""
        size_bytes = self.host.free_bytes(path)
        if size_bytes is not None:
            self.recording.free[path] = size_bytes
        return size_bytes

    def bind_error(self, address: str, port: int) -> str | None:
        """Tries to listen."""
        reason = self.host.bind_error(address, port)
        if reason is not None:
            self.recording.taken[f"{address}:{port}"] = reason
        return reason

    def resolve(self, name: str) -> tuple[str, ...]:
        """Resolves a name."""
        addresses = self.host.resolve(name)
        if addresses:
            self.recording.names[name] = addresses
        return addresses

    def variables(self) -> Mapping[str, str]:
        """Environment variables; only those of use are kept, and no secret."""
        variables = self.host.variables()
        self.recording.variables = {
            name: text
            for name, text in variables.items()
            if _OF_USE.search(name) and not _SECRET.search(name)
        }
        return variables

    def host_name(self) -> str:
        """Name of the machine."""
        return self.host.host_name()

    def now_s(self) -> float:
        """Its clock."""
        return self.host.now_s()


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, so that a recording can be read and edited."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if is_escaped(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def encode_recording(recording: Recording) -> str:
    """A recording as YAML."""
    raw = msgspec.to_builtins(recording)
    return yaml.dump(raw, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def decode_recording(text: str, where: str) -> Recording:
    """A recording from YAML.

    Raises:
        ConfigError: it is none; names the field.
    """
    try:
        return msgspec.convert(yaml.safe_load(text), Recording)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError(f"{where}: no recording of `qanat deploy preflight --record`: {error}") from None
