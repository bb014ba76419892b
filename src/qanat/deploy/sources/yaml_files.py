"""Compose files, Kubernetes manifests and settings files of vllm: their containers, commands and variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import yaml

from qanat.deploy.sources.launch import FLAG, Assignment, Container, DocumentKind, Note
from qanat.deploy.sources.programs import unwrap
from qanat.deploy.sources.reader import Reader, Scope
from qanat.deploy.sources.shell import Variables
from qanat.deploy.sources.shell_words import Words, parse
from qanat.deploy.sources.values import Source, Span, Value, join

MAX_DEPTH = 60
SETTINGS_FLAGS = frozenset(
    "model served-model-name tensor-parallel-size data-parallel-size max-model-len max-num-seqs quantization "
    "max-num-batched-tokens gpu-memory-utilization additional-config compilation-config speculative-config "
    "kv-transfer-config enable-expert-parallel trust-remote-code host port".split()
)
"""Of these keys, two say that a mapping is a settings file of vllm."""
ENVIRONMENT_KEY = re.compile(r"envs?|env_\w+|environment")
COMMAND = re.compile(r"\bvllm\s+serve\b|vllm\.entrypoints\.openai\.api_server")
POD_SETTINGS = ("enableServiceLinks",)
VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)|\$\(([A-Za-z_]\w*)\)")

Node = yaml.nodes.Node


def compose(text: str) -> list[Node]:
    """The YAML documents of a text.

    Raises:
        yaml.YAMLError: no YAML.
        RecursionError: nested too deeply.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    readable = re.sub("[\ud800-\udfff]", "x", text)
    return [node for node in yaml.compose_all(readable, Loader=loader) if node is not None]


def kind_of(nodes: list[Node]) -> DocumentKind | None:
    """What YAML describes; None if nothing that is known."""
    for node in nodes:
        members = _members(node)
        services = members.get("services")
        if isinstance(services, yaml.MappingNode) and any(
            "image" in _members(one) for _, one in services.value
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
        kind = kind_of(nodes)
        is_started = False
        for node in nodes:
            if kind == "yaml":
                self._settings(node)
            elif kind is not None:
                self._service(node)
                for item, outside in _containers(node, {}, 0):
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
            own = tuple(value for name, value in _members(node).items() if ENVIRONMENT_KEY.fullmatch(name))
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
        members = _members(node)
        kind, name = members.get("kind"), _members(members.get("metadata")).get("name")
        if (
            isinstance(kind, yaml.ScalarNode)
            and kind.value == "Service"
            and isinstance(name, yaml.ScalarNode)
        ):
            self.reader.services.append(self._value(name))

    def _container(self, node: yaml.MappingNode, outside: dict[str, Node]) -> None:
        members = {**outside, **_members(node)}
        block = self.reader.new_block()
        env = tuple(self._environment(members.get("environment") or members.get("env"), block))
        image = members.get("image")
        settings = {
            name: self._value(value)
            for name, value in members.items()
            if isinstance(value, yaml.ScalarNode) and name not in ("image", "command")
        }
        if "network_mode" in settings:
            settings["network"] = settings["network_mode"]
        security = _members(members.get("securityContext"))
        privileged = members.get("privileged") or security.get("privileged")
        container = Container(
            image=self._value(image) if isinstance(image, yaml.ScalarNode) else None,
            name=settings.get("container_name") or settings.get("name"),
            env=env,
            mounts=tuple(self._mounts(members)),
            devices=tuple(self._values(members.get("devices"))),
            flags=(),
            is_privileged=isinstance(privileged, yaml.ScalarNode) and privileged.value.lower() == "true",
            settings=settings,
            place=self.code.place_of(node.start_mark.index, max(node.start_mark.index, node.end_mark.index)),
            block=block,
        )
        inner = (*self._words(members.get("entrypoint"), block), *self._words(members.get("command"), block))
        self.reader.run_in_container(container, (*inner, *self._words(members.get("args"), block)), Scope())

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
                members = _members(item)
                if isinstance(item, yaml.ScalarNode):
                    written = self._value(item)
                    name, equals, text = written.text.partition("=")
                    if equals:
                        value = written.part(len(name) + 1, len(name) + 1 + len(text))
                        yield Assignment(name, value, written.place, "container", block)
                elif isinstance(name_node := members.get("name"), yaml.ScalarNode):
                    value_node = members.get("value")
                    place = self.code.place_of(item.start_mark.index, item.end_mark.index)
                    value = Value("", place, (name_node.value,), (), self.source)
                    if isinstance(value_node, yaml.ScalarNode):
                        value = self._value(value_node)
                        place = self.code.place_of(name_node.start_mark.index, value_node.end_mark.index)
                    yield Assignment(name_node.value, value, place, "container", block)

    def _mounts(self, members: dict[str, Node]) -> Iterator[Value]:
        yield from self._values(members.get("volumes"))
        mounts = members.get("volumeMounts")
        for item in mounts.value if isinstance(mounts, yaml.SequenceNode) else []:
            path = _members(item).get("mountPath")
            if isinstance(path, yaml.ScalarNode):
                value = self._value(path)
                yield Value(f":{value.text}", value.place, value.unknown)

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
        """A scalar with the places of its characters; escapes and folded lines are placed as a whole."""
        start, end = node.start_mark.index, node.end_mark.index
        written = self.code.text[start:end]
        spans: list[Span] = []
        found = at = 0
        for match in re.finditer(r"\S+", node.value):
            index = written.find(match.group(), found)
            if index < 0:
                spans = []
                break
            found = index + len(match.group())
            if match.start() > at:
                inner = self.code.part(start + index - 1, start + index)
                spans.append(Span(at, match.start() - at, inner.place.start, inner.place.end))
            inner = self.code.part(start + index, start + found)
            spans += [
                Span(match.start() + one.start, one.length, one.source_start, one.source_end)
                for one in inner.spans
            ]
            at = match.end()
        place = self.code.place_of(start, max(start, len(written.rstrip()) + start))
        unknown = tuple(dict.fromkeys(a or b for a, b in VARIABLE.findall(node.value)))
        if not node.value or not spans:
            spans = [Span(0, len(node.value), place.start, place.end)] if node.value else []
        return Value(node.value, place, unknown, tuple(spans), self.source)

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
        text, spans = _as_json(node, self.code, 0)
        place = self.code.place_of(node.start_mark.index, node.end_mark.index)
        return Value(text, place, (), tuple(spans), self.source)


def _as_json(node: Node, code: Value, at: int, depth: int = 0) -> tuple[str, list[Span]]:
    """YAML as JSON text whose scalars have places; `at` is where it begins in the whole."""
    if depth > MAX_DEPTH:
        return "null", []
    if isinstance(node, yaml.ScalarNode):
        is_text = node.tag.endswith(":str")
        text = json.dumps(node.value) if is_text else node.value.lower() or "null"
        place = code.place_of(node.start_mark.index, max(node.start_mark.index, node.end_mark.index))
        return text, [Span(at, len(text), place.start, place.end)]
    text, spans = ("[", []) if isinstance(node, yaml.SequenceNode) else ("{", list[Span]())
    for index, item in enumerate(node.value):
        text += ", " if index else ""
        parts = [item] if isinstance(node, yaml.SequenceNode) else list(item)
        for number, part in enumerate(parts):
            is_key = number == 0 and len(parts) == 2
            if is_key and isinstance(part, yaml.ScalarNode):
                part = yaml.ScalarNode("tag:yaml.org,2002:str", part.value, part.start_mark, part.end_mark)
            inner, places = _as_json(part, code, at + len(text), depth + 1)
            text += inner + (": " if is_key else "")
            spans += places
    return text + ("]" if isinstance(node, yaml.SequenceNode) else "}"), spans


def _members(node: Node | None) -> dict[str, Node]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _containers(
    node: Node, outside: dict[str, Node], depth: int
) -> Iterator[tuple[yaml.MappingNode, dict[str, Node]]]:
    """Every mapping that names an image, in order, with what is set for all containers of its pod."""
    if depth > MAX_DEPTH:
        return
    if isinstance(node, yaml.MappingNode):
        members = _members(node)
        if isinstance(members.get("image"), yaml.ScalarNode):
            yield node, outside
            return
        outside = {**outside, **{name: members[name] for name in POD_SETTINGS if name in members}}
        for _, value in node.value:
            yield from _containers(value, outside, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _containers(value, outside, depth + 1)
