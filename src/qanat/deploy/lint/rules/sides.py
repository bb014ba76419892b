"""Whether there are two sides at all: prefill and decode that have both been given the role of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from qanat.deploy.lint.files import FileSet
from qanat.deploy.lint.registry import Hit, on_files
from qanat.deploy.lint.rules.pairs import own_ports
from qanat.deploy.lint.view import TRANSFER, LaunchView
from qanat.deploy.sources.values import Place

SIDES = {"kv_producer": "prefill", "kv_consumer": "decode"}
ROLES = {side: role for role, side in SIDES.items()}
_WORDS = (
    ("prefill", ("prefill", "prefiller", "prefills", "producer", "p")),
    ("decode", ("decode", "decoder", "decodes", "consumer", "d")),
)


@on_files("PD025", "PD026")
def sides(files: FileSet) -> Iterator[Hit]:
    """Servers with the role of the side that their proxy or their name says they are not."""
    servers = [view for view in files.servers if view.kv_role in SIDES]
    told = set()
    for side, view, reason in [*_by_proxy(files, servers), *_by_name(files)]:
        if view.kv_role != ROLES[side] and id(view) not in told:
            told.add(id(view))
            message = f"{reason} the {side} node, but its role is {view.kv_role}"
            yield Hit("PD025", _place(view), message, f'"kv_role": "{ROLES[side]}"')
    roles = {view.kv_role for view in files.servers if view.kv_role}
    if len(servers) > 1 and len(roles) == 1 and not told:
        side = SIDES[servers[0].kv_role or ""]
        (other,) = {*ROLES} - {side}
        message = f"all {len(servers)} servers in these files are {roles.pop()}, none is the {other} node"
        yield Hit("PD026", _place(servers[-1]), message)


def _by_proxy(files: FileSet, servers: list[LaunchView]) -> Iterator[tuple[str, LaunchView, str]]:
    """Sides as a proxy names them, for ports on which servers of one role alone listen."""
    for document in files.documents:
        for proxy in document.proxies():
            named = [
                ("prefill" if "prefill" in flag.name else "decode", port) for flag, port in own_ports(proxy)
            ]
            near = files.near(proxy.document, servers)
            for side, port in named:
                here = [view for view in near if view.integer("--port") == port]
                is_one_sided = {one for one, other in named if other == port} == {side}
                if is_one_sided and len({view.kv_role for view in here}) == 1:
                    at = f"{proxy.launch.place.path}:{proxy.launch.place.line}"
                    yield from (
                        (side, view, f"for the proxy ({at}) the server on port {port} is") for view in here
                    )


def _by_name(files: FileSet) -> Iterator[tuple[str, LaunchView, str]]:
    """Sides as the names of files say them; a single letter says it where a file with the other one lies beside it."""
    lone = [view for view in files.documents if len(view.servers()) == 1]
    found = [(view.servers()[0], view.document.path) for view in lone if view.servers()[0].kv_role in SIDES]
    named = {path: _side(PurePath(path).stem) for _, path in found}
    for view, path in found:
        name, side = PurePath(path), named[path]
        if side is None:
            continue
        beside = {other for one, other in named.items() if PurePath(one).parent == name.parent}
        if side[1] or {("prefill", False), ("decode", False)} <= beside:
            yield side[0], view, f"{name.name} is named as"


def _side(stem: str) -> tuple[str, bool] | None:
    """The side that a name says, and whether by a whole word; None if it says none or both."""
    words = set(re.split(r"[^a-z]+", stem.lower()))
    found = [(side, words.intersection(known)) for side, known in _WORDS if words.intersection(known)]
    if len(found) != 1:
        return None
    side, used = found[0]
    return side, any(len(word) > 1 for word in used)


def _place(view: LaunchView) -> Place:
    node = view.key(TRANSFER, "kv_role")
    return node.place if node is not None else view.launch.place
