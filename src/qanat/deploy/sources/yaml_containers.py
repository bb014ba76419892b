"""What Compose files and Kubernetes manifests say of one container: mounts, ports, probes."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from qanat.deploy.sources.values import Value
from qanat.deploy.sources.yaml_values import MAX_DEPTH, Node, members_of, scalar_value

POD_SETTINGS = ("enableServiceLinks", "hostIPC")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def containers_of(
    node: Node, outside: dict[str, Node], depth: int
) -> Iterator[tuple[yaml.MappingNode, dict[str, Node]]]:
    """Every mapping that names an image, in order, with what is set for all containers of its pod."""
    if depth > MAX_DEPTH:
        return
    if isinstance(node, yaml.MappingNode):
        members = members_of(node)
        if isinstance(members.get("image"), yaml.ScalarNode):
            yield node, outside
            return
        outside = {**outside, **{name: members[name] for name in POD_SETTINGS if name in members}}
        for _, value in node.value:
            yield from containers_of(value, outside, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from containers_of(value, outside, depth + 1)


def mounts_of(members: dict[str, Node], code: Value) -> Iterator[Value]:
    """The mounts of a container, `source:target` each."""
    volumes = members.get("volumes")
    for item in volumes.value if isinstance(volumes, yaml.SequenceNode) else []:
        source, target = (members_of(item).get(name) for name in ("source", "target"))
        if isinstance(item, yaml.ScalarNode):
            yield scalar_value(item, code)
        elif isinstance(source, yaml.ScalarNode) and isinstance(target, yaml.ScalarNode):
            values = scalar_value(source, code), scalar_value(target, code)
            text = f"{values[0].text}:{values[1].text}"
            yield Value(text, values[0].place, (*values[0].unknown, *values[1].unknown))
    mounted = members.get("volumeMounts")
    for item in mounted.value if isinstance(mounted, yaml.SequenceNode) else []:
        path = members_of(item).get("mountPath")
        if isinstance(path, yaml.ScalarNode):
            value = scalar_value(path, code)
            yield Value(f":{value.text}", value.place, value.unknown)


def probes_of(members: dict[str, Node], code: Value) -> Iterator[tuple[str, Value]]:
    """What probes ask over HTTP: their paths, and their ports by number."""
    ports = members.get("ports")
    listed = [members_of(item) for item in (ports.value if isinstance(ports, yaml.SequenceNode) else [])]
    for probe in PROBES:
        asked = members_of(members_of(members.get(probe)).get("httpGet"))
        for key in ("path", "port"):
            node = asked.get(key)
            for one in listed if key == "port" and isinstance(node, yaml.ScalarNode) else []:
                name = one.get("name")
                if isinstance(name, yaml.ScalarNode) and name.value == getattr(node, "value", None):
                    node = one.get("containerPort")
            if isinstance(node, yaml.ScalarNode):
                yield f"{probe}.{key}", scalar_value(node, code)


def ports_of(node: Node | None, code: Value) -> Iterator[Value]:
    """The ports that Compose publishes, `published:target` each."""
    for item in node.value if isinstance(node, yaml.SequenceNode) else []:
        target, published = (members_of(item).get(name) for name in ("target", "published"))
        if isinstance(item, yaml.ScalarNode):
            yield scalar_value(item, code)
        elif isinstance(target, yaml.ScalarNode) and isinstance(published, yaml.ScalarNode):
            value = scalar_value(target, code)
            yield Value(f"{published.value}:{value.text}", value.place, value.unknown)
