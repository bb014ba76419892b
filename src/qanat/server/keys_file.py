"""The keys file: who may use the server, and how much. Strict, so that a misspelt limit is no missing limit."""

from __future__ import annotations

import hashlib
import logging
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import ConfigError
from qanat.server.caller import Caller

log = logging.getLogger(__name__)

FLAG = "--api-keys-file"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The library's own in C where it was built with it: seven times as fast."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED_NAME = re.compile(r"(api|admin)-key-\d+")
_HEX_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_DECIMAL = re.compile(r"[-+]?(0|[1-9]\d{0,17})")
_INT = "tag:yaml.org,2002:int"
_BOOL = "tag:yaml.org,2002:bool"
_NULL = "tag:yaml.org,2002:null"

Entries = list[tuple[bytes, Caller]]


@dataclass(frozen=True)
class Rules:
    """What entries are checked against beside their own shape.

    Attributes:
        served_names: models that may be named; None while they are not known.
        is_priority_policy: requests are served by priority, so that a key may have one.
    """

    served_names: tuple[str, ...] | None = None
    is_priority_policy: bool = True

    @classmethod
    def of(cls, config: ResolvedConfig) -> Rules:
        """Those of a server with this configuration."""
        return cls(config.served_model_names, config.scheduler.policy == "priority")


def read_keys_file(path: str, rules: Rules) -> Entries:
    """The digests and callers of a keys file, in YAML or JSON.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong; the message names line and key, never a secret.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{FLAG} {path} cannot be read: {reason}.", param=FLAG) from None
    # JSON is YAML but for tabs, which its texts cannot contain as they are.
    is_json = text.lstrip().startswith(("{", "["))
    try:
        root = yaml.compose(text.replace("\t", " ") if is_json else text, _LOADER)
    except yaml.MarkedYAMLError as error:  # its own words quote the file
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ConfigError(f"{FLAG} {path} line {line}: neither YAML nor JSON.", param=FLAG) from None
    except yaml.YAMLError:
        raise ConfigError(f"{FLAG} {path}: neither YAML nor JSON.", param=FLAG) from None
    return _Reader(path, rules).entries(root)


def warn_of_readers(path: str) -> None:
    """Says in the log if other users of the machine may read or change the file."""
    mode = stat.S_IMODE(Path(path).stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        log.warning(
            "%s %s has mode %03o: other users of this machine may read or change it; chmod 600 closes it.",
            *(FLAG, path, mode),
        )


class _Reader:
    """Reads one file; every error says where."""

    def __init__(self, path: str, rules: Rules) -> None:
        self._path = path
        self._rules = rules
        self._name = ""

    def entries(self, root: yaml.Node | None) -> Entries:
        fields = {} if root is None else self._mapping(root, ("keys",))
        node = fields.get("keys")
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(root, "must hold `keys`, a list with one entry per key")
        entries: dict[bytes, Caller] = {}
        names: set[str] = set()
        for item in node.value:
            self._name = ""
            digests, caller = self._entry(item)
            if caller.name in names:
                raise self._error(item, "the name is there twice; one entry may have several keys")
            names.add(caller.name)
            for digest in digests:
                if digest in entries:
                    raise self._error(item, "its key belongs to another entry too")
                entries[digest] = caller
        return list(entries.items())

    def _entry(self, node: yaml.Node) -> tuple[list[bytes], Caller]:
        fields = self._mapping(node, FIELDS)
        if "name" not in fields:
            raise self._error(node, "an entry needs a name")
        name = self._text(fields["name"], "name")
        if not _NAME.fullmatch(name) or _RESERVED_NAME.fullmatch(name):
            raise self._error(
                fields["name"],
                "name must be of letters, digits, dots, dashes and underscores, at most 64, and not like api-key-1",
            )
        self._name = name
        values = {field: _READERS[field](self, value) for field, value in fields.items() if field in _READERS}
        is_admin, may_resume = values.pop("admin", False), values.pop("resume", False)
        caller = Caller(name, is_named=True, is_admin=is_admin, may_resume=may_resume or is_admin, **values)
        return self._digests(node, fields), caller

    def _digests(self, node: yaml.Node, fields: dict[str, yaml.Node]) -> list[bytes]:
        digests: list[bytes] = []
        for value in self._items(fields.get("key")):
            key = self._text(value, "key")
            if not key.strip() or key != key.strip():
                raise self._error(value, "key is empty or has blanks around it")
            digests.append(hashlib.sha256(key.encode()).digest())
        for value in self._items(fields.get("sha256")):
            text = self._text(value, "sha256")
            if not _HEX_DIGEST.fullmatch(text):
                raise self._error(value, "sha256 must have 64 hexadecimal digits")
            digests.append(bytes.fromhex(text))
        if not digests:
            raise self._error(node, "an entry needs a key, or the sha256 of one")
        return digests

    def _mapping(self, node: yaml.Node, known: tuple[str, ...]) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"must be a mapping with fields of: {', '.join(known)}")
        fields: dict[str, yaml.Node] = {}
        for name_node, value in node.value:
            name = name_node.value if isinstance(name_node, yaml.ScalarNode) else ""
            if name not in known:
                raise self._error(
                    name_node, f"there is no field {name!r} here; there are: {', '.join(known)}"
                )
            if name in fields:
                raise self._error(name_node, f"{name} is there twice")
            if value.tag != _NULL:
                fields[name] = value
        return fields

    def _items(self, node: yaml.Node | None) -> list[yaml.Node]:
        if node is None:
            return []
        return list(node.value) if isinstance(node, yaml.SequenceNode) else [node]

    def _text(self, node: yaml.Node, field: str) -> str:
        """As it is written: a digest of digits only is no number here."""
        if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL:
            raise self._error(node, f"{field} must be a text")
        return str(node.value)

    def flag(self, node: yaml.Node, field: str) -> bool:
        """A field that is true or false."""
        if node.tag != _BOOL:
            raise self._error(node, f"{field} must be true or false")
        return str(node.value).lower() in ("true", "yes", "on")

    def count(self, node: yaml.Node, field: str) -> int:
        """A bound."""
        number = self._int(node, field)
        if number < 1:
            raise self._error(node, f"{field} must be at least 1, got {number}; leave it out for no bound")
        return number

    def priority(self, node: yaml.Node, field: str) -> int:
        """A priority, where there are any."""
        number = self._int(node, field)
        if not -(2**31) <= number < 2**31:
            raise self._error(node, f"{field} must be between -2147483648 and 2147483647")
        if not self._rules.is_priority_policy:
            raise self._error(node, f"{field} needs --scheduling-policy priority")
        return number

    def models(self, node: yaml.Node, field: str) -> frozenset[str]:
        """Names of models, served ones if those are known."""
        names = [self._text(item, field) for item in self._items(node)]
        if not names:
            raise self._error(node, f"{field} must name a model; leave it out for all")
        served = self._rules.served_names
        for name in names:
            if served is not None and name not in served:
                raise self._error(node, f"the model {name!r} is not served; served: {', '.join(served)}")
        return frozenset(names)

    def _int(self, node: yaml.Node, field: str) -> int:
        if node.tag == _INT and _DECIMAL.fullmatch(str(node.value)):
            return int(node.value)
        raise self._error(node, f"{field} must be a whole number")

    def _error(self, node: yaml.Node | None, what: str) -> ConfigError:
        line = 1 if node is None else node.start_mark.line + 1
        who = f", key {self._name}" if self._name else ""
        return ConfigError(f"{FLAG} {self._path} line {line}{who}: {what}.", param=FLAG)


_READERS: dict[str, Callable[[_Reader, yaml.Node], Any]] = {
    "max_concurrency": lambda reader, node: reader.count(node, "max_concurrency"),
    "tokens_per_minute": lambda reader, node: reader.count(node, "tokens_per_minute"),
    "requests_per_minute": lambda reader, node: reader.count(node, "requests_per_minute"),
    "priority": lambda reader, node: reader.priority(node, "priority"),
    "models": lambda reader, node: reader.models(node, "models"),
    "admin": lambda reader, node: reader.flag(node, "admin"),
    "resume": lambda reader, node: reader.flag(node, "resume"),
}
FIELDS = ("name", "key", "sha256", *_READERS)
"""What an entry may say."""
