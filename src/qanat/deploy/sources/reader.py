"""Collects a document's facts while its scripts are gone through."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from qanat.deploy.sources.docker import read_container_call
from qanat.deploy.sources.env_files import read_variables
from qanat.deploy.sources.launch import (
    Assignment,
    Command,
    Container,
    Document,
    DocumentKind,
    Launch,
    LaunchKind,
    Mention,
    Note,
    read_flags,
)
from qanat.deploy.sources.library import Library
from qanat.deploy.sources.programs import (
    CONTAINER_TOOLS,
    SHELLS,
    Program,
    forwarders,
    guess_role,
    nested_script,
    recognise,
    unwrap,
)
from qanat.deploy.sources.shell import ASSIGNMENT, Shell, Simple, Variables
from qanat.deploy.sources.values import Place, Source, Value, value_at

MAX_NESTING = 6
"""Scripts inside scripts."""
REMOTE_TOOLS = ("kubectl", "ssh")


@dataclass
class Scope:
    """Where a command runs.

    Attributes:
        container: that it runs in, if that is clear.
        depth: scripts around it.
    """

    container: Container | None = None
    depth: int = 0


@dataclass
class Reader:
    """Facts of one document, in order.

    Attributes:
        source: the file.
        library: files that it may name; None to follow none.
        section: the last heading.
        image: of the container that was started last.
        open_files: that are being sourced, outermost first.
        forwarders: functions that run what they are given.
    """

    source: Source
    library: Library | None = None
    section: str = ""
    image: Value | None = None
    launches: list[Launch] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    prose: list[Place] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    services: list[Value] = field(default_factory=list)
    service_ports: list[Value] = field(default_factory=list)
    num_blocks: int = 0
    open_files: list[str] = field(default_factory=list)
    forwarders: set[str] = field(default_factory=set)

    def document(self, kind: DocumentKind) -> Document:
        """All that was found."""
        return Document(
            path=self.source.path,
            text=self.source.text,
            kind=kind,
            launches=tuple(sorted(self.launches, key=lambda one: one.place.start)),
            containers=tuple(self.containers),
            commands=tuple(self.commands),
            assignments=tuple(self.assignments),
            mentions=tuple(sorted(self.mentions, key=lambda one: one.place.start)),
            prose=tuple(sorted(self.prose)),
            notes=tuple(sorted(self.notes, key=lambda one: one.place.start)),
            services=tuple(self.services),
            service_ports=tuple(self.service_ports),
        )

    def new_block(self) -> int:
        """Number of the next piece of script."""
        self.num_blocks += 1
        return self.num_blocks - 1

    def script(self, code: Value, variables: Variables, scope: Scope) -> None:
        """Goes through a script."""
        if scope.depth > MAX_NESTING:
            return
        self.forwarders |= forwarders(code.text)
        Shell(
            code,
            self.source,
            variables,
            on_command=lambda simple: self.command(simple, variables, scope),
            on_assignment=self.assignments.append,
            on_note=self.notes.append,
        ).run()

    def command(self, simple: Simple, variables: Variables, scope: Scope) -> None:
        """Takes one command: itself, and the scripts and programs inside it."""
        program = unwrap(simple.argv)
        for _ in range(MAX_NESTING):
            if program.name in self.forwarders and program.words:
                program = unwrap(program.words)
        environment = variables.environment() | {one.name: one for one in self._own(simple, variables)}
        self.commands.append(
            Command(
                simple.argv,
                program.name,
                program.words,
                simple.place,
                variables.block,
                simple.target,
                scope.container,
            )
        )
        self._builtin(program, variables, self.source)
        self.start(program, simple.place, environment, variables.block, scope)
        if simple.heredoc is not None:
            self._heredoc(simple, program, environment, variables.block, scope)

    def _builtin(self, program: Program, variables: Variables, origin: Source) -> None:
        """What changes the shell itself: variables of another file, and whether they are exported."""
        words = program.words
        if program.name == "set" and words:
            switch = " ".join(word.text for word in words[:2])
            if re.match(r"[-+](?:\w*a\w*|o allexport)(?: |$)", switch):
                variables.exports_all = switch[0] == "-"
        elif program.name in ("source", ".") and words and self.library is not None:
            source = self.library.find(origin.path, words[0]) or self.library.find(self.source.path, words[0])
            if source is not None:
                self._follow(source, variables)

    def _follow(self, source: Source, variables: Variables) -> None:
        """Takes the variables of a sourced file; its commands belong to its own document."""
        if source.path in (self.source.path, *self.open_files) or len(self.open_files) > MAX_NESTING:
            return
        self.open_files.append(source.path)
        Shell(
            value_at(source, 0, len(source.text)),
            source,
            variables,
            on_command=lambda simple: self._builtin(unwrap(simple.argv), variables, source),
            on_assignment=lambda assignment: None,
            on_note=lambda note: None,
        ).run()
        self.open_files.pop()

    def _own(self, simple: Simple, variables: Variables) -> list[Assignment]:
        """Variables before the command and behind `env`."""
        own = list(simple.own)
        program = unwrap(simple.argv)
        for word in simple.argv[: len(simple.argv) - len(program.words)]:
            match = ASSIGNMENT.match(word.text)
            if match:
                value = word.part(match.end(), len(word.text))
                own.append(Assignment(match.group(1), value, word.place, "command", variables.block))
                self.assignments.append(own[-1])
        return own

    def start(
        self, program: Program, place: Place, environment: dict[str, Assignment], block: int, scope: Scope
    ) -> None:
        """Takes a program that is started: a launch, a container, or a shell with a script."""
        if scope.depth > MAX_NESTING:
            return
        inside = Scope(scope.container, scope.depth + 1)
        nested = nested_script(program)
        recognised = recognise(program)
        if nested is not None:
            variables = Variables(block=block)
            if program.name != "ssh":
                variables = _variables(environment, block)
            if program.name in SHELLS:
                for index, word in enumerate(nested[1]):
                    variables.values[str(index)] = [word]
            self.script(nested[0], variables, inside)
        elif recognised is not None:
            self.launch(
                recognised.kind, recognised.program, recognised.argv, place, environment, block, scope
            )
        elif program.name in CONTAINER_TOOLS:
            self._container(program, place, environment, block, scope)
        elif program.name == "kubectl" and any(word.text == "--" for word in program.words):
            at = next(index for index, word in enumerate(program.words) if word.text == "--")
            self.start(unwrap(program.words[at + 1 :]), place, {}, block, inside)

    def launch(
        self,
        kind: LaunchKind,
        program: str,
        argv: tuple[Value, ...],
        place: Place,
        environment: dict[str, Assignment],
        block: int,
        scope: Scope,
    ) -> None:
        """Notes a launch."""
        words, flags = read_flags(argv)
        container = scope.container
        launch = Launch(
            kind=kind,
            argv=argv,
            program=program,
            flags=flags,
            words=words,
            env=dict(environment),
            container=container,
            image=container.image if container else self.image,
            role=guess_role(kind, flags),
            place=place,
            block=block,
            section=self.section,
        )
        self.launches.append(launch)

    def run_in_container(self, container: Container, inner: tuple[Value, ...], scope: Scope) -> None:
        """Notes a container and takes what it starts."""
        self.containers.append(container)
        self.assignments += [one for one in container.env if one.place.path == self.source.path]
        self.image = container.image or self.image
        environment = {one.name: one for one in container.env}
        inside = Scope(container, scope.depth + 1)
        image = container.image.text if container.image else ""
        if inner and inner[0].text.startswith("--") and "vllm" in image:
            place = container.place
            self.launch("serve", "vllm serve", inner, place, environment, container.block, inside)
        elif inner:
            self.start(unwrap(inner), container.place, environment, container.block, inside)

    def _container(
        self, program: Program, place: Place, environment: dict[str, Assignment], block: int, scope: Scope
    ) -> None:
        call = read_container_call(program.words, place, block, environment, self._env_file)
        if call is None:
            return
        if call.container is not None:
            self.run_in_container(call.container, call.inner, scope)
            return
        self.assignments += [one for one in call.env if one.place.path == self.source.path]
        inside = Scope(scope.container, scope.depth + 1)
        self.start(unwrap(call.inner), place, {one.name: one for one in call.env}, block, inside)

    def _env_file(self, name: Value, block: int) -> tuple[Assignment, ...]:
        source = self.library.find(self.source.path, name, is_environment=True) if self.library else None
        return read_variables(source, block, is_unquoted=False) if source is not None else ()

    def _heredoc(
        self, simple: Simple, program: Program, environment: dict[str, Assignment], block: int, scope: Scope
    ) -> None:
        """A script that is given to a shell, or written to a file."""
        text = simple.heredoc
        if text is None:
            return
        inside = Scope(scope.container, scope.depth + 1)
        is_run = program.name in SHELLS or program.name in CONTAINER_TOOLS or program.name in REMOTE_TOOLS
        names = [word.text for word in (*program.words, *([simple.target] if simple.target else []))]
        if program.name in SHELLS:
            self.script(text, _variables(environment, block), inside)
        elif (is_run and program.name != "kubectl") or any(name.endswith((".sh", ".bash")) for name in names):
            self.script(text, Variables(block=self.new_block()), inside)


def _variables(environment: dict[str, Assignment], block: int) -> Variables:
    values = {name: [one.value] for name, one in environment.items()}
    return Variables(values, dict(environment), set(environment), block)
