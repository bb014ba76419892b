"""`qanat deploy lint`: scripts, manifests and guides checked before they run."""

from __future__ import annotations

import contextlib
import gc
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qanat.cli.command import Command
from qanat.cli.deploy_actions.neighbours import Neighbours
from qanat.cli.reading import read_action, say, say_json
from qanat.cli.terminal import tell
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.lint.fix_all import Checked

STANDARD_INPUT = "-"
SUFFIXES = (".sh", ".bash", ".md", ".markdown", ".rst", ".txt", ".yaml", ".yml", ".env")
"""Files that are taken from a folder; a file that is named is always read."""
MAX_SIZE_BYTES = 64 << 20
"""Of one file."""
FOUND = 1
"""Exit code where something was found that asks for a change."""


@dataclass(frozen=True, kw_only=True)
class LintOptions:
    """Lint."""

    image: str | None = option(
        Kind.TEXT,
        None,
        "Image, tag or version of vllm-ascend that runs, e.g. v0.18.0rc1-a3; a suffix says for which chip. Default: "
        "what the files say; where they say nothing, the newest stable release.",
    )
    json: bool = option(Kind.SWITCH, False, "Write JSON.")
    sarif: bool = option(Kind.SWITCH, False, "Write SARIF 2.1.0, which code review services read.")
    fix: bool = option(
        Kind.SWITCH,
        False,
        "Apply the fixes that are safe until none is left, then report what is left. Files are replaced in one step.",
    )


COMMAND = Command(
    name="deploy lint",
    summary="Check scripts, manifests and guides for vLLM-Ascend before they run.",
    description=(
        "Reads shell scripts, docker commands, Compose and Kubernetes files, settings files and guides (Markdown or\n"
        "plain text), and checks names and values against the version of vllm-ascend that runs: flags, variables,\n"
        "JSON arguments, host settings, and what files say about each other, so name all files of a deployment\n"
        "together. A folder stands for the scripts, manifests and guides in it, - for standard input. Files beside\n"
        "a script that it sources, or gives to a container (--env-file, env_file:), are read as well.\n"
        "Exit codes: 0 nothing found (info aside), 1 something found, 2 the command line is at fault,\n"
        "or nothing in the files is known to the linter, which must not pass for checked.\n"
        "A comment `# qanat: ignore[RULE]` silences a rule on its line or on the command below."
    ),
    examples=(
        "qanat deploy lint run_p.sh run_d.sh proxy.sh",
        "qanat deploy lint guide.md --image v0.18.0rc1-a3 --fix",
        "qanat deploy lint deployments/ --sarif > findings.sarif",
    ),
    groups=(),
    own=LintOptions,
    word="FILE...",
    word_help="Files or folders.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat deploy lint`; returns the exit code.

    Raises:
        ConfigError: no file, one that cannot be read, none with anything known, flags that exclude each other, or an
            image without a version.
    """
    options, words = _read(arguments)
    from qanat.deploy.lint import report
    from qanat.deploy.lint.fix_all import fix_all
    from qanat.deploy.lint.recognised import recognised

    with _without_collector():
        texts = dict(_texts(words))
        beside = Neighbours(tuple(Path(word) for word in words if Path(word).is_dir()))
        checked = _check(texts, beside, options.image)
        if options.fix:
            done = fix_all(texts, checked, lambda changed: _check(changed, beside, options.image))
            _write(texts, done.texts)
            tell(done.summary(len(checked.findings)))
            checked = done.left
    findings, num_files = checked.findings, len(checked.documents)
    num_recognised = len(recognised(checked.documents))
    if options.json:
        say_json(report.json_report(findings, num_files, num_recognised))
    elif options.sarif:
        from qanat import __version__
        from qanat.deploy.knowledge.load import load_knowledge

        sarif = report.sarif_report(findings, load_knowledge().rules, __version__)
        say_json(sarif)
    else:
        say(report.text_report(findings, num_files, num_recognised))
    if not findings and not num_recognised:
        # What was not understood must not pass for checked, as when the wrong file is piped in.
        raise ConfigError(_unrecognised(words, num_files))
    return FOUND if report.has_faults(findings) else 0


def _unrecognised(words: Sequence[str], num_files: int) -> str:
    if not num_files:
        return (
            f"{', '.join(words)}: no script, manifest, guide or settings file ({', '.join(SUFFIXES)}) in it."
        )
    return (
        f"{', '.join(words)}: nothing that the linter knows, so nothing was checked: no command of vLLM or docker, "
        "no container, no flag or variable of vLLM-Ascend. Name the scripts, manifests or guides of a deployment."
    )


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Facts of a thousand files live until the end: looking for garbage among them takes half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read(arguments: Sequence[str]) -> tuple[LintOptions, tuple[str, ...]]:
    options, words = read_action(COMMAND, LintOptions, arguments)
    if options.json and options.sarif:
        raise ConfigError("--json and --sarif are two forms of one report; leave one out.", param="--sarif")
    if not words:
        raise ConfigError("name the files to check, e.g. qanat deploy lint run.sh; - reads standard input.")
    if options.fix and STANDARD_INPUT in words:
        raise ConfigError("--fix changes files; standard input is none.", param="--fix")
    return options, words


def _texts(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and content of every file, each once."""
    from qanat.deploy.text_files import decode, read_file

    for word in words:
        if word == STANDARD_INPUT:
            data = sys.stdin.buffer.read(MAX_SIZE_BYTES + 1)
            _bounded("standard input", len(data))
            yield "<stdin>", decode(data)
            continue
        path = Path(word)
        files = [path]
        if path.is_dir():
            files = sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES and one.is_file())
        for file in files:
            try:
                state = file.stat()
                if not stat.S_ISREG(state.st_mode):
                    raise ConfigError(
                        f"{file} is no regular file; to read from a program, name - and pipe it."
                    )
                _bounded(str(file), state.st_size)
                yield str(file), read_file(file)
            except OSError as error:
                raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None


def _bounded(name: str, size_bytes: int) -> None:
    """Refuses what is too large to be a script, manifest or guide."""
    if size_bytes > MAX_SIZE_BYTES:
        raise ConfigError(
            f"{name} has more than {MAX_SIZE_BYTES >> 20} MiB; name scripts, manifests and guides only."
        )


def _check(texts: Mapping[str, str], beside: Neighbours, image: str | None) -> Checked:
    from qanat.deploy.lint.engine import ImageError, lint
    from qanat.deploy.lint.fix_all import Checked, own_fix
    from qanat.deploy.sources.documents import read_documents

    documents = read_documents(texts, beside.read)
    try:
        return Checked(documents, [own_fix(finding, texts) for finding in lint(documents, image)])
    except ImageError as error:
        raise ConfigError(f"--image {error}", param="--image") from None


def _write(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Writes the files that have changed.

    Raises:
        ConfigError: a file cannot be written.
    """
    from qanat.deploy.text_files import rewrite_file

    for path, text in after.items():
        if text != before[path]:
            try:
                rewrite_file(Path(path), text)
            except OSError as error:
                raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None
