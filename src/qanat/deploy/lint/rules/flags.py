"""Flags: how they are written, whether this version has them, whether their values fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from qanat.deploy.knowledge.versions import Presence
from qanat.deploy.lint.finding import Edit
from qanat.deploy.lint.names import Named
from qanat.deploy.lint.registry import Hit, on_flags, on_server
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.launch import Flag
from qanat.deploy.sources.values import Place

_WRONG_DASH = re.compile(r"-?[–—]+-?")
_OTHER_PROGRAMS = frozenset(("--help", "-h", "--version", "-v"))
_MANY_WORDS = frozenset(("--served-model-name",))
_OPEN = re.compile(r"[$`\\]|\.\.\.|^\W+$")
"""Words that are no words of the program's: left out by a guide, or what a damaged line leaves."""
MAX_ADVISED = 100
"""Unknown flags of one command for which the nearest name is looked for; a command with more is none of vLLM's."""
_MULTIPLE = frozenset(("--middleware", "--lora-modules", "--header", "--extra-body"))


@on_flags("CLI001", "CLI002")
def dashes(view: LaunchView) -> Iterator[Hit]:
    """Typographic dashes, and one dash where two belong."""
    for flag in view.launch.flags:
        match = _WRONG_DASH.match(flag.written)
        if match is not None:
            right = "--" + flag.written[match.end() :].lstrip("-–—")
            message = f"{flag.written} begins with a typographic dash; write {right}"
            yield Hit("CLI001", flag.place, message, f"write {right}", (Edit(flag.place, right),))
        elif view.names and re.match(r"-[A-Za-z]", flag.written) and flag in view.unresolved:
            if "-" + flag.name.split(".")[0] in view.names.names:
                right = "-" + flag.written
                message = f"{flag.written} has one dash; a long flag has two"
                yield Hit("CLI002", flag.place, message, f"write {right}", (Edit(flag.place, right),))


@on_flags("CLI005", "CLI006", "CLI009", "CLI011", "CLI017")
def known(view: LaunchView) -> Iterator[Hit]:
    """Whether each flag is one of this version, and written in full."""
    if view.names is None or view.launch.kind == "fragment":
        return
    for named in view.named:
        presence = view.names.presence(named.entry)
        name = named.name.split()[-1]
        if presence is Presence.GONE:
            yield Hit(
                "CLI009", named.flag.place, f"{name} was last in vLLM {named.entry.until}", _heir(named)
            )
        elif presence is Presence.NOT_YET:
            yield Hit("CLI011", named.flag.place, f"{name} exists from vLLM {named.entry.since} on")
        elif (since := view.names.alias_since(named)) is not None:
            written = named.flag.written.split(".")[0]
            edit = Edit(_start(named.flag, len(written)), name)
            message = f"{written} is understood from vLLM {since} on"
            yield Hit("CLI011", named.flag.place, message, f"write {name}", (edit,))
        elif named.is_abbreviated:
            edit = Edit(named.flag.place, name)
            message = f"{named.flag.written} is an abbreviation of {name}"
            yield Hit("CLI005", named.flag.place, message, f"write {name}", (edit,))
        elif "_" in named.flag.written.split(".")[0]:
            head, dot, keys = named.flag.written.partition(".")
            right = head.replace("_", "-") + dot + keys
            message = f"{named.flag.written} is documented as {right}"
            edit = Edit(named.flag.place, right)
            yield Hit("CLI006", named.flag.place, message, f"write {right}", (edit,))
    with_dashes = {hit.place for hit in dashes(view)} if view.unresolved else set()
    for number, flag in enumerate(view.unresolved):
        if flag.name not in _OTHER_PROGRAMS and flag.place not in with_dashes:
            yield _unknown(view, flag, has_advice=number < MAX_ADVISED)


def _start(flag: Flag, num_chars: int) -> Place:
    """The first characters of a flag, which stand on one line."""
    place = flag.place
    end, column = place.start + num_chars, place.column + num_chars
    return replace(place, end=end, end_line=place.line, end_column=column)


def _heir(named: Named) -> str:
    """What to do about a flag that is gone."""
    replacement = named.entry.replacement
    if replacement is None or replacement.startswith("nothing"):
        return "remove it"
    return f"remove it; instead: {replacement}"


def _unknown(view: LaunchView, flag: Flag, has_advice: bool) -> Hit:
    assert view.names is not None
    near = view.names.nearest(flag.name) if has_advice else None
    advice = f"did you mean {near}?" if near else "no flag is like it"
    advice = advice if has_advice else "it is one of many"
    return Hit("CLI017", flag.place, f"{view.launch.program} has no flag {flag.written}; {advice}", advice)


@on_flags("CLI007")
def repeated(view: LaunchView) -> Iterator[Hit]:
    """The same flag twice."""
    if view.launch.kind == "fragment":
        return
    last: dict[str, Named] = {}
    for named in reversed(view.named):
        if named.keys or named.entry.kind == "list" or named.name.split()[-1] in _MULTIPLE:
            continue
        if named.name in last:
            line = last[named.name].flag.place.line
            name = named.name.split()[-1]
            yield Hit("CLI007", named.flag.place, f"{name} is given again in line {line}; only that counts")
        else:
            last[named.name] = named


@on_server("CLI026")
def stray_words(view: LaunchView) -> Iterator[Hit]:
    """Words that neither stand for the model nor behind a flag that takes them."""
    words = list(view.launch.words)
    for named in view.named:
        kind, values = named.entry.kind, list(named.flag.values)
        if kind == "bool" or named.flag.has_equals:
            behind = values if not named.flag.has_equals else values[1:]
            words += [word for word in behind if word.text.lower() not in ("true", "false")]
        elif kind not in ("list", "json") and not named.keys and named.name not in _MANY_WORDS:
            words += values[1:]
    words.sort(key=lambda word: word.place.start)
    known = [word for word in words if word.is_known and word.text and not _OPEN.search(word.text)]
    if len(known) < len(words) or view.document.kind == "guide":
        return  # what nobody knows may hold flags; in guides text follows commands, which CLI025 tells
    for word in known[1:]:  # beside --model the first one is taken, and counts
        yield Hit("CLI026", word.place, f"{word.text[:40]!r} stands behind no flag that takes it")


@on_server("SRV003")
def tool_choice(view: LaunchView) -> Iterator[Hit]:
    """Tool calls without a parser."""
    is_given = view.get("--tool-call-parser") is not None or view.get("--config") is not None
    if view.switch("--enable-auto-tool-choice") and not is_given:
        place = view.place("--enable-auto-tool-choice")
        yield Hit("SRV003", place, "--enable-auto-tool-choice needs --tool-call-parser", _parser_advice(view))


def _parser_advice(view: LaunchView) -> str | None:
    name = view.model.name.lower() if view.model else ""
    known = view.knowledge.parsers.entries.values()
    fitting = [parser.name for parser in known if parser.role == "tool" and re.match(parser.models, name)]
    return f"--tool-call-parser {fitting[0]}" if fitting else None


@on_server("CLI008", "CLI013", "CLI014", "CLI015", "CLI016", "CLI028", "SRV002", "MEM008", "MEM010")
def single_flags(view: LaunchView) -> Iterator[Hit]:
    """Flags that are questionable by themselves."""
    model = view.get("--model")
    if model is not None and view.launch.program == "vllm serve":
        yield Hit("CLI008", model.flag.place, "vllm serve takes the model as its first word")
    if view.switch("--async-scheduling"):
        message = f"asynchronous scheduling is automatic in vLLM {view.version.base}"
        yield Hit("CLI013", view.place("--async-scheduling"), message)
    yield from _quantization(view)
    if view.switch("--trust-remote-code") and view.model is not None:
        message = f"{view.model.name} is built into vLLM and runs no code from its checkpoint"
        yield Hit("SRV002", view.place("--trust-remote-code"), message)
    path = view.text("--allowed-local-media-path")
    if path is not None and path.strip() and not path.strip("/ "):
        message = "clients may read every file of the server through file:// addresses"
        yield Hit("MEM008", view.place("--allowed-local-media-path"), message)
    share = view.number("--gpu-memory-utilization")
    if share is not None and not 0 < share <= 1:
        message = f"{share:g} is no share of the memory; it lies above 0 and at most at 1"
        yield Hit("MEM010", view.place("--gpu-memory-utilization"), message)


def _quantization(view: LaunchView) -> Iterator[Hit]:
    method = view.text("--quantization")
    name = view.model_name or ""
    is_ascend_name = re.search(r"w\d+a\d+", name.lower()) is not None
    if method == "ascend" and is_ascend_name:
        message = "an Ascend checkpoint is recognised by its quantization description"
        yield Hit("CLI014", view.place("--quantization"), message)
    elif method == "ascend" and re.fullmatch(r"Qwen/Qwen3(\.\d)?-[\w.]+?B(-A\d+B)?/?", name):
        yield Hit("CLI016", view.place("--quantization"), f"{name} is the BF16 checkpoint")
    elif method is not None and is_ascend_name and _is_other_method(view, method, name):
        yield Hit("CLI028", view.place("--quantization"), f"{name} is quantized for NPUs, not by {method}")
    elif method is None and view.get("--quantization") is None and is_ascend_name:
        message = f"{name} is a quantized checkpoint and --quantization ascend is missing"
        yield Hit("CLI015", view.launch.words[0].place if view.launch.words else view.launch.place, message)


def _is_other_method(view: LaunchView, method: str, name: str) -> bool:
    """Whether a method that vLLM knows is none for checkpoints of NPUs; other makers put the method into the name."""
    known = view.knowledge.serve_flags.entries["--quantization"].choices
    kinds = ("ascend", "compressed-tensors", "modelslim")
    return method.lower() in known and method.lower() not in kinds and method.lower() not in name.lower()
