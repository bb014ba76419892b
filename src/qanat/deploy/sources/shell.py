"""Shell scripts run on paper: assignments and commands in order, with the variables in force at each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from qanat.deploy.sources.launch import Assignment, Note, Origin
from qanat.deploy.sources.shell_words import (
    MAX_CHARS,
    Node,
    Words,
    hide_placeholders,
    parse,
    plain_words,
    show_placeholders,
)
from qanat.deploy.sources.values import Place, Source, Value, join

MAX_DEPTH = 200
"""Of nested syntax; what is deeper is not read."""
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)


@dataclass
class Variables:
    """What a shell knows at one point.

    Attributes:
        values: of every variable; an array has many.
        assignments: the last one of each variable that was not an array.
        exported: names that programs see.
        block: number of the piece of script.
        exports_all: `set -a` is on: what is set is exported.
    """

    values: dict[str, list[Value]] = field(default_factory=dict)
    assignments: dict[str, Assignment] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    block: int = 0
    exports_all: bool = False

    def set(self, name: str, values: list[Value], place: Place, origin: Origin) -> Assignment:
        """Sets a variable; one that is exported already stays so."""
        value = values[0] if values else Value("", place)
        if origin == "shell" and self.exports_all:
            origin = "export"
        if origin == "export":
            self.exported.add(name)
        elif origin == "shell" and name in self.exported:
            origin = "export"
        assignment = Assignment(name, show_placeholders(value), place, origin, self.block)
        self.values[name] = values
        self.assignments[name] = assignment
        return assignment

    def environment(self) -> dict[str, Assignment]:
        """What a program that is started now sees."""
        return {name: one for name, one in self.assignments.items() if name in self.exported}

    def child(self) -> Variables:
        """What a program that is started now begins with."""
        environment = self.environment()
        values = {name: [one.value] for name, one in environment.items()}
        return Variables(values, dict(environment), set(environment), self.block)


@dataclass(frozen=True)
class Simple:
    """A simple command as the shell would start it.

    Attributes:
        argv: its words.
        own: variables set for it alone.
        place: all of it.
        heredoc: text given to its standard input.
        target: file that its output goes to.
    """

    argv: tuple[Value, ...]
    own: tuple[Assignment, ...]
    place: Place
    heredoc: Value | None = None
    target: Value | None = None


class Shell:
    """Reads one piece of script.

    Args:
        code: the script.
        source: the file it is in.
        variables: in force at its start; changed as the script changes them.
        on_command: called with each simple command, in order.
        on_assignment: called with each assignment.
        on_note: called with what cannot be read.
    """

    def __init__(
        self,
        code: Value,
        source: Source,
        variables: Variables,
        on_command: Callable[[Simple], None],
        on_assignment: Callable[[Assignment], None],
        on_note: Callable[[Note], None],
    ) -> None:
        self.code = code = hide_placeholders(code)
        self.source = source
        self.variables = variables
        self.words = Words(code, source, variables.values)
        self.on_command = on_command
        self.on_assignment = on_assignment
        self.on_note = on_note

    def run(self) -> None:
        """Goes through the script from top to bottom, through every branch."""
        self._statements(parse(self.code.text).children, 0)

    def _statements(self, nodes: Iterable[Node], depth: int) -> None:
        for node in nodes:
            self._statement(node, depth)

    def _statement(self, node: Node, depth: int) -> None:
        if depth > MAX_DEPTH:
            return
        kind = node.type
        if kind == "ERROR":
            self._faulty(node)
        elif kind == "command" and not node.has_error:
            self._command(node, None, None)
        elif kind == "declaration_command":
            self._declaration(node)
        elif kind == "variable_assignment":
            self._assign(node, "shell")
        elif kind == "variable_assignments":
            self._statements(node.named_children, depth + 1)
        elif kind == "unset_command":
            for child in node.named_children:
                name = self.words.text(child)
                self.variables.values.pop(name, None)
                self.variables.assignments.pop(name, None)
                self.variables.exported.discard(name)
        elif kind == "redirected_statement":
            self._redirected(node, depth)
        elif kind == "for_statement":
            self._loop(node, depth)
        elif node.has_error and kind == "command":
            self._faulty(node)
        elif kind not in ("comment", "test_command", "heredoc_redirect", "file_redirect", "word"):
            self._statements(node.named_children, depth + 1)

    def _loop(self, node: Node, depth: int) -> None:
        children = node.named_children
        if children and children[0].type == "variable_name":
            name = self.words.text(children[0])
            items = [
                v for child in children[1:] if child.type != "do_group" for v in self.words.fields(child)
            ]
            if len(items) == 1:
                self.variables.set(name, items, self.words.place(node), "shell")
            else:
                self.variables.values.pop(name, None)
        self._statements(children, depth + 1)

    def _redirected(self, node: Node, depth: int) -> None:
        heredoc = target = None
        extra: list[Value] = []
        for child in node.named_children:
            if child.type == "heredoc_redirect":
                heredoc = self._heredoc(child)
            elif child.type == "file_redirect":
                words = [one for one in child.named_children if one.type != "file_descriptor"]
                if words and ">" in self.words.text(child).split("&")[0][:3]:
                    target = self.words.scalar(words[0])
                # The grammar takes words behind the file for more files; the shell takes them for arguments.
                extra += [value for word in words[1:] for value in self.words.fields(word)]
        for child in node.named_children:
            if child.type == "command" and not child.has_error:
                self._command(child, heredoc, target, extra)
            elif child.type == "heredoc_redirect":
                behind = ("pipeline", "command", "list", "redirected_statement")
                self._statements([one for one in child.named_children if one.type in behind], depth + 1)
            elif child.type != "file_redirect":
                self._statement(child, depth + 1)

    def _heredoc(self, node: Node) -> Value | None:
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if start is None or body is None:
            return None
        if re.search(r"['\"\\]", self.words.text(start)):
            return self.code.part(body.start_byte, body.end_byte)
        return self.words.quoted(body, body.start_byte, body.end_byte, "\\$`")

    def _command(
        self, node: Node, heredoc: Value | None, target: Value | None, extra: Iterable[Value] = ()
    ) -> None:
        argv: list[Value] = []
        own: list[Assignment] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                own.append(self._read_assignment(child, "command"))
            elif child.type == "command_name":
                argv += [value for one in child.named_children for value in self.words.fields(one)]
            elif child.type == "heredoc_redirect":
                heredoc = self._heredoc(child)
            elif child.type not in ("file_redirect", "herestring_redirect", "comment"):
                argv += self.words.fields(child)
        argv += extra
        for assignment in own:
            self.on_assignment(assignment)
        if argv:
            words = tuple(show_placeholders(value) for value in argv)
            self.on_command(Simple(words, tuple(own), self.words.place(node), heredoc, target))

    def _declaration(self, node: Node) -> None:
        text = self.words.text(node)
        is_export = bool(re.match(r"export\b|(declare|typeset|local)\s+-\w*x", text))
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child, "export" if is_export else "shell")
            elif child.type == "variable_name" and is_export:
                self._export(self.words.text(child))

    def _export(self, name: str) -> None:
        before = self.variables.assignments.get(name)
        self.variables.exported.add(name)
        if before is not None and before.origin == "shell":
            assignment = replace(before, origin="export")
            self.variables.assignments[name] = assignment
            self.on_assignment(assignment)

    def _assign(self, node: Node, origin: Origin) -> None:
        values = self._values(node)
        read = self._read_assignment(node, origin)
        if "[" not in read.name:
            self.on_assignment(self.variables.set(read.name, values, read.place, origin))

    def _values(self, node: Node) -> list[Value]:
        """What an assignment leaves in the variable."""
        name = self.words.text(node.children[0])
        before = self.variables.values.get(name, [])
        is_added = any(child.type == "+=" for child in node.children)
        last = node.children[-1]
        if last.type == "array":
            items = [
                value
                for child in last.named_children
                if child.type != "comment"
                for value in self.words.fields(child)
            ]
            return [*before, *items] if is_added else items
        is_empty = last.type in ("=", "+=", "variable_name")
        value = self.code.part(node.end_byte, node.end_byte) if is_empty else self.words.scalar(last)
        if is_added and before and len(before[0].text) + len(value.text) < MAX_CHARS:
            return [join([before[0], value], value.place, self.source)]
        return [value]

    def _read_assignment(self, node: Node, origin: Origin) -> Assignment:
        name = node.children[0] if node.children else node
        last = node.children[-1] if node.children else node
        is_empty = last.type in ("=", "+=", "variable_name")
        if is_empty:
            value = self.code.part(node.end_byte, node.end_byte)
        elif last.type == "array":
            value = self.code.part(last.start_byte, last.end_byte)
        else:
            value = show_placeholders(self.words.scalar(last))
        return Assignment(self.words.text(name), value, self.words.place(node), origin, self.variables.block)

    def _faulty(self, node: Node) -> None:
        """What is no shell: each of its lines is taken as a command of plain words."""
        code = self.code.part(node.start_byte, node.end_byte)
        first = code.text.strip().split("\n")[0][:60]
        place = self.code.place_of(node.start_byte, min(node.end_byte, node.start_byte + max(1, len(first))))
        self.on_note(Note("unreadable", place, f"this is no proper shell; read as plain words: {first}"))
        for match in re.finditer(r"(?:[^\n\\]|\\.)+", code.text, re.DOTALL):
            self._plain(code.part(match.start(), match.end()))

    def _plain(self, line: Value) -> None:
        words = [show_placeholders(word) for word in plain_words(line)]
        if words and words[0].text == "export":
            words = words[1:]
            is_export = True
        else:
            is_export = False
        own = []
        while words and (match := ASSIGNMENT.match(words[0].text)):
            value = words[0].part(match.end(), len(words[0].text))
            own.append(Assignment(match.group(1), value, words[0].place, "command", self.variables.block))
            words = words[1:]
        if words and not is_export:
            self.on_command(Simple(tuple(words), tuple(own), line.place))
            return
        for one in own:
            origin: Origin = "export" if is_export else "shell"
            self.on_assignment(self.variables.set(one.name, [one.value], one.place, origin))
