"""Values of flags: numbers with their bounds, names that must be known, switches that are given a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qanat.deploy.knowledge.kinds.settings import ConfigKey, Flag
from qanat.deploy.knowledge.versions import Version, must_parse
from qanat.deploy.lint.finding import Edit
from qanat.deploy.lint.names import Named, nearest
from qanat.deploy.lint.reading import read_integer
from qanat.deploy.lint.registry import Hit, on_flags
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.values import Value

_VALUE_OPTIONAL = frozenset(("--hf-token",))
_LONGEST_CONTEXT = ("auto", "-1")
"""What --max-model-len takes beside numbers: the longest context that fits."""


@on_flags("CLI018")
def values(view: LaunchView) -> Iterator[Hit]:
    """Numbers and choices, values that are missing, and switches that are given one."""
    for named in view.named if view.launch.kind != "fragment" else ():
        kind, value = named.entry.kind, named.flag.value
        name = named.name.split()[-1]
        if kind == "bool" and value is not None:
            yield from _switch_value(named, name, value)
        elif value is None and _needs_value(named, name):
            yield Hit("CLI018", named.flag.place, f"{name} needs a value")
        if value is None or not value.is_known or not value.text or "$" in value.text or named.keys:
            continue
        message, advice = _fault(view, named, name, value.text)
        if message:
            yield Hit("CLI018", value.place, f"{name} {message}", advice)
    yield from _levels(view)
    yield from _capture_sizes(view)


def _fault(view: LaunchView, named: Named, name: str, text: str) -> tuple[str, str | None]:
    """What is wrong with the value of a flag, and what to write; empty if nothing is."""
    entry = named.entry
    if name == "--max-model-len" and text in _LONGEST_CONTEXT:
        return "", None
    if entry.kind == "int" and not _is_whole(text, entry.has_units):
        return f"takes a whole number, not {text[:40]!r}", None
    if entry.kind == "float" and not _is_float(text):
        return f"takes a number, not {text[:40]!r}", None
    number = _number(text) if entry.kind in ("int", "float") else None
    if number is not None and is_outside(entry, number):
        return f"is {text[:40]}; it takes {bounds(entry)}", f"a number of {bounds(entry)}"
    if entry.plugin is not None and view.get(entry.plugin) is not None:
        return "", None
    if entry.choices and is_complete(entry, view.version) and not _is_choice(name, text, entry.choices):
        return not_one_of(text, entry.choices)
    return "", None


def is_complete(entry: Flag | ConfigKey, version: Version) -> bool:
    """Whether all choices of a setting are known for a release of vllm-ascend."""
    return entry.choices_until is None or version.base <= must_parse(entry.choices_until)


def _is_choice(name: str, text: str, choices: tuple[str, ...]) -> bool:
    is_class = name == "--distributed-executor-backend" and "." in text
    is_any_case = name in ("--quantization", "--load-format")
    return is_class or (text.lower() if is_any_case else text) in choices


def not_one_of(text: str, choices: tuple[str, ...]) -> tuple[str, str | None]:
    """A sentence about a name that is none of the choices, and the nearest one as advice."""
    near = nearest(text, choices)
    listed = ", ".join(choice for choice in choices if choice)
    if len(choices) > 12 and near is not None:
        return f"knows no {text[:40]!r}; did you mean {near}?", f"did you mean {near}?"
    advice = f"did you mean {near}?" if near else None
    return f"takes one of {listed}, not {text[:40]!r}", advice


def _levels(view: LaunchView) -> Iterator[Hit]:
    """-O9: the level stands in the flag."""
    entry = view.knowledge.serve_flags.entries["--optimization-level"]
    for flag in view.launch.flags if view.names is not None else ():
        level = flag.written.removeprefix("-O")
        is_level = flag.written.startswith("-O") and level.isdecimal()
        if is_level and level not in entry.choices and is_complete(entry, view.version):
            yield Hit(
                "CLI018", flag.place, f"-O takes a level of {', '.join(entry.choices)}, not {level[:40]}"
            )


def _capture_sizes(view: LaunchView) -> Iterator[Hit]:
    """Numbers of flags that take several."""
    for named in view.named if view.launch.kind != "fragment" else ():
        if named.entry.kind != "list" or named.entry.minimum is None:
            continue
        name = named.name.split()[-1]
        for value in named.flag.values:
            number = _number(value.text)
            is_open = not value.is_known or "$" in value.text or not value.text
            if not is_open and (number is None or number % 1 or is_outside(named.entry, number)):
                yield Hit(
                    "CLI018",
                    value.place,
                    f"{name} takes whole numbers of {bounds(named.entry)}, not {value.text[:40]!r}",
                )


def is_outside(entry: Flag | ConfigKey, value: float) -> bool:
    """Whether a number is below the smallest or above the largest that a setting takes."""
    return (entry.minimum is not None and value < entry.minimum) or (
        entry.maximum is not None and value > entry.maximum
    )


def bounds(entry: Flag | ConfigKey) -> str:
    """The numbers that a setting takes, in words."""
    known = (("at least", entry.minimum), ("at most", entry.maximum))
    return " and ".join(f"{word} {bound:.10g}" for word, bound in known if bound is not None)


def _number(text: str) -> float | None:
    digits = text.strip()
    sign = -1 if digits.startswith("-") else 1
    whole = read_integer(digits.lstrip("-+"))
    if whole is not None:
        return sign * whole
    return float(digits) if _is_float(digits) else None


def _needs_value(named: Named, name: str) -> bool:
    is_level = named.flag.name.startswith("-O")  # the level stands in the flag itself
    return not (named.is_negated or named.entry.kind == "bool" or is_level or name in _VALUE_OPTIONAL)


def _switch_value(named: Named, name: str, value: Value) -> Iterator[Hit]:
    """A switch with a value behind it: the parser refuses `=false`, and takes a word for one too many."""
    is_word = value.text.lower() in ("true", "false")
    if named.keys or not (named.flag.has_equals or is_word):
        return
    right = f"--no-{name.removeprefix('--')}" if value.text.lower() == "false" else name
    place, end = named.flag.place, value.place
    is_behind = place.path == end.path and place.end <= end.start <= place.end + 1
    whole = (
        replace(place, end=end.end, end_line=end.end_line, end_column=end.end_column) if is_behind else place
    )
    is_plain = is_word and is_behind and not named.is_negated
    edits = (Edit(whole, right),) if is_plain else ()
    yield Hit(
        "CLI018",
        whole,
        f"{name} takes no value; its opposite is --no-{name.removeprefix('--')}",
        f"write {right}",
        edits,
    )


def _is_whole(text: str, has_units: bool) -> bool:
    return read_integer(text.lstrip("-+")) is not None and (has_units or not text[-1].isalpha())


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
