"""Compose files, Kubernetes manifests and settings files of vllm: their containers, commands and variables."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import yaml

from qanat.deploy.sources.env_files import read_variables
from qanat.deploy.sources.launch import FLAG, Assignment, Container, DocumentKind, Note
from qanat.deploy.sources.programs import unwrap
from qanat.deploy.sources.reader import Reader, Scope
from qanat.deploy.sources.shell import Variables
from qanat.deploy.sources.shell_words import Words, parse
from qanat.deploy.sources.values import Source, Value, join, value_at
from qanat.deploy.sources.yaml_containers import containers_of, mounts_of, ports_of, probes_of
from qanat.deploy.sources.yaml_values import (
    MAX_DEPTH,
    Node,
    as_json,
    expanded_size,
    members_of,
    merged_members,
    scalar_value,
)

SETTINGS_FLAGS = frozenset(
    "model served-model-name tensor-parallel-size data-parallel-size max-model-len max-num-seqs quantization "
    "max-num-batched-tokens gpu-memory-utilization additional-config compilation-config speculative-config "
    "kv-transfer-config enable-expert-parallel trust-remote-code host port".split()
)
"""Of these keys, two say that a mapping is a settings file of vllm."""
PLAN_KEYS = frozenset({"wish", "roles", "nodes"})
"""All of them say that a mapping is a plan of `qanat deploy plan`, which starts nothing itself."""
ENVIRONMENT_KEY = re.compile(r"envs?|env_\w+|environment")
COMMAND = re.compile(r"\bvllm\s+serve\b|vllm\.entrypoints\.openai\.api_server")
MAX_ALIASED_NODES = 100_000
"""Nodes that aliases may stand for beside those that are written."""
VARIABLE_NAME = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)


def compose(text: str) -> list[Node]:
    """The YAML documents of a text.

    Raises:
        yaml.YAMLError: no YAML, or one whose aliases stand for too much or for themselves.
        RecursionError: nested too deeply.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    readable = re.sub("[\ud800-\udfff]", "x", text)
    nodes = [node for node in yaml.compose_all(readable, Loader=loader) if node is not None]
    sizes: dict[int, int] = {}
    if sum(expanded_size(node, sizes) for node in nodes) > len(sizes) + MAX_ALIASED_NODES:
        raise yaml.MarkedYAMLError(problem="its aliases stand for too much, or for themselves")
    return nodes


def kind_of(nodes: list[Node]) -> DocumentKind | None:
    """What YAML describes; None if nothing that is known."""
    for node in nodes:
        members = members_of(node)
        services = members.get("services")
        if isinstance(services, yaml.MappingNode) and any(
            "image" in members_of(one) for _, one in services.value
        ):
            return "compose"
        if "apiVersion" in members and "kind" in members:
            return "kubernetes"
        if sum(name.replace("_", "-") in SETTINGS_FLAGS for name in members) > 1:
            return "yaml"
    return None


class YamlReader:
    """Reads YAML into a reader.

    Args:
        reader: takes the facts.
        code: the YAML.
    """

    def __init__(self, reader: Reader, code: Value) -> None:
        self.reader = reader
        self.source: Source = reader.source
        self.code = code
        self.maps: dict[str, list[tuple[str, Value]]] = {}

    def read(self) -> DocumentKind | None:
        """Takes everything; returns the kind, None if this is no YAML or none that is known."""
        try:
            nodes = compose(self.code.text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            at = min(mark.index, len(self.code.text)) if mark is not None else 0
            problem = getattr(error, "problem", None) or "no YAML"
            place = self.code.place_of(at, at + 1) if self.code.text else self.code.place
            self.reader.notes.append(Note("unreadable", place, f"the YAML cannot be read: {problem}"))
            return None
        except RecursionError:
            self.reader.notes.append(
                Note("unreadable", self.code.place, "the YAML is nested too deeply to be read")
            )
            return None
        nodes = [node for node in nodes if not PLAN_KEYS <= members_of(node).keys()]
        kind = kind_of(nodes)
        self.maps = {**self._other_maps(), **self._config_maps(nodes)}
        is_started = False
        for node in nodes:
            if kind == "yaml":
                self._settings(node)
            elif kind is not None:
                self._service(node)
                for item, outside in containers_of(node, {}, 0):
                    self._container(item, outside)
            elif self._commands(node, (), 0):
                is_started = True
        return kind or ("yaml" if is_started else None)

    def _commands(self, node: Node, outer: tuple[Node, ...], depth: int) -> bool:
        """Servers started by texts anywhere in a file, with the variables beside them; whether there were any."""
        if depth > MAX_DEPTH:
            return False
        if isinstance(node, yaml.SequenceNode):
            return any([self._commands(item, outer, depth + 1) for item in node.value])
        if isinstance(node, yaml.MappingNode):
            own = tuple(value for name, value in members_of(node).items() if ENVIRONMENT_KEY.fullmatch(name))
            return any([self._commands(value, (*outer, *own), depth + 1) for _, value in node.value])
        if not isinstance(node, yaml.ScalarNode) or not COMMAND.search(node.value):
            return False
        block = self.reader.new_block()
        env = {one.name: one for part in outer for one in self._environment(part, block)}
        self.reader.assignments += env.values()
        place = self._value(node).place
        self.reader.start(unwrap(self._words(node, block)), place, env, block, Scope())
        return True

    def _service(self, node: Node) -> None:
        members = members_of(node)
        kind, name = members.get("kind"), members_of(members.get("metadata")).get("name")
        if (
            isinstance(kind, yaml.ScalarNode)
            and kind.value == "Service"
            and isinstance(name, yaml.ScalarNode)
        ):
            self.reader.services.append(self._value(name))
            self.reader.service_ports += self._target_ports(members_of(members.get("spec")).get("ports"))
        if isinstance(kind, yaml.ScalarNode) and kind.value == "ConfigMap":
            self._map_data(members)

    def _target_ports(self, node: Node | None) -> Iterator[Value]:
        """The ports of pods behind a service, where they are numbers."""
        for item in node.value if isinstance(node, yaml.SequenceNode) else []:
            members = members_of(item)
            target = members.get("targetPort") or members.get("port")
            if isinstance(target, yaml.ScalarNode) and target.value.isdecimal():
                yield self._value(target)

    def _map_data(self, members: dict[str, Node]) -> None:
        """The variables and the scripts that a ConfigMap holds; a script that is checked as a file is left to that."""
        block = self.reader.new_block()
        for key, value in self._entries(members):
            library = self.reader.library
            if key.endswith((".sh", ".bash")):
                if library is not None and library.holds(value.text):
                    continue  # what is wrong in it is told where the script stands
                self.reader.script(value, Variables(block=self.reader.new_block()), Scope())
            elif VARIABLE_NAME.fullmatch(key):
                self.reader.assignments.append(Assignment(key, value, value.place, "container", block))

    def _entries(self, members: dict[str, Node]) -> Iterator[tuple[str, Value]]:
        for key, node in members_of(members.get("data")).items():
            if isinstance(node, yaml.ScalarNode):
                yield key, self._value(node)

    def _config_maps(self, nodes: list[Node]) -> dict[str, list[tuple[str, Value]]]:
        """What the ConfigMaps of this text hold, by their names."""
        found: dict[str, list[tuple[str, Value]]] = {}
        for node in nodes:
            members = members_of(node)
            kind, name = members.get("kind"), members_of(members.get("metadata")).get("name")
            is_map = isinstance(kind, yaml.ScalarNode) and kind.value == "ConfigMap"
            if is_map and isinstance(name, yaml.ScalarNode):
                found[name.value] = list(self._entries(members))
        return found

    def _other_maps(self) -> dict[str, list[tuple[str, Value]]]:
        """Those of the other manifests that are checked together with this one."""
        library = self.reader.library
        if library is None:
            return {}
        if library.maps is None:
            library.maps = {}
            for source in library.manifests():
                with contextlib.suppress(yaml.YAMLError, RecursionError):
                    other = YamlReader(Reader(source), value_at(source, 0, len(source.text)))
                    library.maps |= other._config_maps(compose(source.text))
        return library.maps

    def _container(self, node: yaml.MappingNode, outside: dict[str, Node]) -> None:
        members = {**outside, **merged_members(node)}
        block = self.reader.new_block()
        own = self._environment(members.get("environment") or members.get("env"), block)
        env = (*self._files(members, block), *self._mapped(members, block), *own)
        image = members.get("image")
        settings = {
            name: self._value(value)
            for name, value in members.items()
            if isinstance(value, yaml.ScalarNode) and name not in ("image", "command")
        } | dict(probes_of(members, self.code))
        if "network_mode" in settings:
            settings["network"] = settings["network_mode"]
        security = members_of(members.get("securityContext"))
        privileged = members.get("privileged") or security.get("privileged")
        inner = (
            *self._words(members.get("entrypoint"), block),
            *self._words(members.get("command"), block),
            *self._words(members.get("args"), block),
        )
        container = Container(
            image=self._value(image) if isinstance(image, yaml.ScalarNode) else None,
            name=settings.get("container_name") or settings.get("name"),
            env=env,
            mounts=tuple(mounts_of(members, self.code)),
            devices=tuple(self._values(members.get("devices"))),
            flags=(),
            is_privileged=isinstance(privileged, yaml.ScalarNode) and privileged.value.lower() == "true",
            settings=settings,
            place=self.code.place_of(node.start_mark.index, max(node.start_mark.index, node.end_mark.index)),
            block=block,
            command=inner,
            ports=tuple(ports_of(members.get("ports"), self.code)),
        )
        self.reader.run_in_container(container, inner, Scope())

    def _files(self, members: dict[str, Node], block: int) -> Iterator[Assignment]:
        """Variables of the files under `env_file`."""
        node, library = members.get("env_file"), self.reader.library
        for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            path = members_of(item).get("path", item)
            if library is None or not isinstance(path, yaml.ScalarNode):
                continue
            source = library.find(self.source.path, self._value(path), is_environment=True)
            if source is not None:
                yield from read_variables(source, block, is_unquoted=True)

    def _mapped(self, members: dict[str, Node], block: int) -> Iterator[Assignment]:
        """Variables of the ConfigMaps under `envFrom`."""
        node = members.get("envFrom")
        for item in node.value if isinstance(node, yaml.SequenceNode) else []:
            name = members_of(members_of(item).get("configMapRef")).get("name")
            prefix = members_of(item).get("prefix")
            before = prefix.value if isinstance(prefix, yaml.ScalarNode) else ""
            for key, value in self.maps.get(name.value, ()) if isinstance(name, yaml.ScalarNode) else ():
                yield Assignment(f"{before}{key}", value, value.place, "container", block)

    def _environment(self, node: Node | None, block: int) -> Iterator[Assignment]:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.tag.endswith(":merge"):
                    yield from self._environment(value, block)
                elif isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode):
                    place = self.code.place_of(key.start_mark.index, value.end_mark.index)
                    yield Assignment(key.value, self._value(value), place, "container", block)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                members = members_of(item)
                if isinstance(item, yaml.ScalarNode):
                    written = self._value(item)
                    name, equals, text = written.text.partition("=")
                    if equals:
                        value = written.part(len(name) + 1, len(name) + 1 + len(text))
                        yield Assignment(name, value, written.place, "container", block)
                elif isinstance(name_node := members.get("name"), yaml.ScalarNode):
                    value_node = members.get("value")
                    place = self.code.place_of(item.start_mark.index, item.end_mark.index)
                    value = self._referred(members) or Value("", place, (name_node.value,), (), self.source)
                    if isinstance(value_node, yaml.ScalarNode):
                        value = self._value(value_node)
                        place = self.code.place_of(name_node.start_mark.index, value_node.end_mark.index)
                    yield Assignment(name_node.value, value, place, "container", block)

    def _referred(self, members: dict[str, Node]) -> Value | None:
        """The value under `valueFrom`, where it is one of a known ConfigMap."""
        reference = members_of(members_of(members.get("valueFrom")).get("configMapKeyRef"))
        name, key = reference.get("name"), reference.get("key")
        if not isinstance(name, yaml.ScalarNode) or not isinstance(key, yaml.ScalarNode):
            return None
        return dict(self.maps.get(name.value, ())).get(key.value)

    def _values(self, node: Node | None) -> Iterator[Value]:
        for item in node.value if isinstance(node, yaml.SequenceNode) else []:
            if isinstance(item, yaml.ScalarNode):
                yield self._value(item)

    def _words(self, node: Node | None, block: int) -> list[Value]:
        """A command: a list of words, or one text that is split as a shell would."""
        if isinstance(node, yaml.SequenceNode):
            return list(self._values(node))
        if not isinstance(node, yaml.ScalarNode) or not node.value.strip():
            return []
        value = self._value(node)
        words: list[Value] = []
        shell = Words(value, self.source, Variables(block=block).values)
        root = parse(value.text.replace("\n", " "))
        stack = list(reversed(root.children))
        while stack:
            one = stack.pop()
            if one.type in ("command", "command_name", "redirected_statement", "program", "list", "ERROR"):
                stack += reversed(one.named_children)
            elif one.is_named and one.type not in ("comment", "file_redirect"):
                words += shell.fields(one)
        return words

    def _value(self, node: yaml.ScalarNode) -> Value:
        return scalar_value(node, self.code)

    def _settings(self, node: Node) -> None:
        """A settings file as the flags it stands for."""
        if not isinstance(node, yaml.MappingNode):
            return
        argv: list[Value] = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or not re.fullmatch(r"[A-Za-z][\w.-]*", key.value):
                continue
            name = self._value(key)
            dashes = Value("--", name.place, (), (), self.source)
            flag = join([dashes, name], name.place, self.source)
            if not FLAG.fullmatch(flag.text):
                continue
            if isinstance(value, yaml.SequenceNode):
                argv += [flag, *self._values(value)]
                continue
            given = self._given(value)
            text = given.text.lower() if isinstance(value, yaml.ScalarNode) else ""
            if value.tag.endswith(":bool") and text in ("false", "no", "off"):
                flag = join([Value("--no-", name.place), name], name.place, self.source)
            argv.append(flag)
            if not value.tag.endswith((":bool", ":null")):
                argv.append(given)
        place = self.code.place_of(node.start_mark.index, node.end_mark.index)
        block = self.reader.new_block()
        self.reader.launch("serve", "vllm serve", tuple(argv), place, {}, block, Scope())

    def _given(self, node: Node) -> Value:
        if isinstance(node, yaml.ScalarNode):
            return self._value(node)
        text, spans = as_json(node, self.code, 0)
        place = self.code.place_of(node.start_mark.index, node.end_mark.index)
        return Value(text, place, (), tuple(spans), self.source)
