"""Takes a command line apart into flags and words, in every spelling that `vllm serve` accepts and a few more.

`--flag=value`, `--flag value`, `--no-flag`, `_` for `-`, short aliases, `--flag.key value` and `--flag.key+ value`
into JSON, unambiguous prefixes, and dashes that a text processor or a slip has changed; the last two with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qanat.config.known_flags import did_you_mean, known_aliases, known_flags
from qanat.config.options import Option
from qanat.config.values import Kind
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

TYPOGRAPHIC_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_CHANGED_DASHES = re.compile(rf"(?=[^A-Za-z]*[{TYPOGRAPHIC_DASHES}])[-{TYPOGRAPHIC_DASHES}]+(?=[A-Za-z])")
MIN_PREFIX = 3
"""Shortest abbreviation of a flag, in letters."""
_OPTIMIZATION_LEVEL = re.compile(r"-O=?(\d)")


@dataclass(frozen=True)
class Grammar:
    """Which flags there are.

    Attributes:
        kinds: value kind by flag name (no dashes at the front, dashes inside).
        aliases: flag name by other spelling, with its dashes.
    """

    kinds: Mapping[str, Kind]
    aliases: Mapping[str, str]

    @classmethod
    def of(cls, options: Iterable[Option], *, with_known_flags: bool = True) -> Grammar:
        """The flags of these options and, unless told otherwise, those that only vLLM knows."""
        kinds: dict[str, Kind] = {}
        aliases: dict[str, str] = {}
        if with_known_flags:
            kinds |= {name: known.kind for name, known in known_flags().items()}
            aliases |= known_aliases()
        for one in options:
            name = one.flag.removeprefix("--")
            kinds[name] = one.kind
            aliases |= dict.fromkeys(one.aliases, name)
        return cls(kinds, aliases)


@dataclass(frozen=True)
class Written:
    """One use of a flag.

    Attributes:
        name: the flag's full name, without dashes at the front.
        path: keys below it for `--flag.key value`; empty for the whole value.
        is_appended: the value goes to the end of the list at `path`.
        texts: the words of the value; ("true",) or ("false",) for a switch.
        spelling: the flag as it was written, for messages.
    """

    name: str
    path: tuple[str, ...]
    is_appended: bool
    texts: tuple[str, ...]
    spelling: str


@dataclass(frozen=True)
class CommandLine:
    """A command line taken apart.

    Attributes:
        words: what is neither a flag nor its value.
        written: uses of flags, in order.
        notes: spellings that were understood but should be mended.
    """

    words: tuple[str, ...]
    written: tuple[Written, ...]
    notes: tuple[Decision, ...]


def read_command_line(arguments: Sequence[str], grammar: Grammar) -> CommandLine:
    """Takes the arguments apart; values stay text.

    Raises:
        ConfigError: unknown or ambiguous flag, missing or superfluous value.
    """
    reader = _Reader(arguments, grammar)
    reader.read()
    return CommandLine(tuple(reader.words), tuple(reader.written), tuple(reader.notes))


class _Reader:
    def __init__(self, arguments: Sequence[str], grammar: Grammar) -> None:
        self.words: list[str] = []
        self.written: list[Written] = []
        self.notes: list[Decision] = []
        self._grammar = grammar
        self._rest = list(arguments)

    def read(self) -> None:
        while self._rest:
            argument = self._rest.pop(0)
            if argument == "--":
                self.words += self._rest
                return
            if is_flag(argument):
                self._read_flag(argument)
            else:
                self.words.append(argument)

    def _read_flag(self, argument: str) -> None:
        spelling, has_value, value = argument.partition("=")
        level = _OPTIMIZATION_LEVEL.fullmatch(argument)
        if level:
            self.written.append(Written("optimization-level", (), False, (level[1],), "-O"))
            return
        name, path, is_negated = self._resolve(spelling)
        kind = self._grammar.kinds[name]
        is_appended = bool(path) and path[-1].endswith("+")
        path = tuple(key.removesuffix("+") for key in path)
        if path and kind is not Kind.JSON:
            raise ConfigError(f"{spelling}: --{name} takes no JSON, so it has no keys.", param=f"--{name}")
        if kind is Kind.SWITCH:
            if is_negated and has_value:
                raise ConfigError(
                    f"{argument}: a flag that begins with --no- takes no value.", param=f"--{name}"
                )
            texts: tuple[str, ...] = (value,) if has_value else ("false",) if is_negated else ("true",)
        else:
            texts = (value,) if has_value else self._take_value(name, kind, spelling)
        self.written.append(Written(name, path, is_appended, texts, spelling))

    def _take_value(self, name: str, kind: Kind, spelling: str) -> tuple[str, ...]:
        texts: list[str] = []
        while self._rest and not is_flag(self._rest[0]) and self._rest[0] != "--":
            texts.append(self._rest.pop(0))
            if kind is not Kind.TEXTS:
                break
        if not texts:
            example = f"{spelling} {kind.value}"
            raise ConfigError(f"{spelling} needs a value: {example}.", param=f"--{name}")
        return tuple(texts)

    def _resolve(self, spelling: str) -> tuple[str, tuple[str, ...], bool]:
        """Full name, JSON path and whether it is negated."""
        mended = _CHANGED_DASHES.sub("--", spelling, count=1)
        head, *path = mended.split(".")
        name = self._grammar.aliases.get(head)
        is_negated = False
        if name is None:
            dashes = "--" if head.startswith("--") else "-"
            bare = head.removeprefix(dashes).replace("_", "-")
            if dashes == "--":
                name, is_negated = self._find(bare, spelling)
            elif bare in self._grammar.kinds:
                name = bare
            else:
                raise self._unknown(bare, spelling)
            if dashes == "-" or mended != spelling:
                full = f"--{'no-' if is_negated else ''}{name}"
                self.notes.append(Decision(spelling, None, full, "a flag begins with two plain dashes"))
        return name, tuple(path), is_negated

    def _find(self, bare: str, spelling: str) -> tuple[str, bool]:
        """The flag with this name, its negation, or the only one that begins so."""
        kinds = self._grammar.kinds
        positive = bare.removeprefix("no-")
        switches = [name for name, kind in kinds.items() if kind is Kind.SWITCH]
        if bare in kinds:
            return bare, False
        if positive != bare and positive in switches:
            return positive, True
        name = self._by_prefix(bare, kinds, "--", spelling)
        if name is not None:
            return name, False
        name = self._by_prefix(positive, switches, "--no-", spelling) if positive != bare else None
        if name is not None:
            return name, True
        raise self._unknown(bare, spelling)

    def _by_prefix(self, start: str, names: Iterable[str], dashes: str, spelling: str) -> str | None:
        """The only name that begins so, with a note; None if there is none."""
        found = sorted(name for name in names if name.startswith(start)) if len(start) >= MIN_PREFIX else []
        if len(found) > 1:
            listed = ", ".join(dashes + name for name in found[:6])
            raise ConfigError(f"{spelling} could be {listed}; write the flag in full.", param=spelling)
        if not found:
            return None
        why = "an abbreviation; write the flag in full, a later version may have another that begins so"
        self.notes.append(Decision(spelling, None, dashes + found[0], why))
        return found[0]

    def _unknown(self, bare: str, spelling: str) -> ConfigError:
        if bare.startswith("no-") and bare.removeprefix("no-") in self._grammar.kinds:
            return ConfigError(
                f"{spelling}: --{bare[3:]} takes a value and cannot be negated.", param=spelling
            )
        hint = did_you_mean(bare, self._grammar.kinds, "--") or "; --help lists the flags"
        return ConfigError(f"unknown flag {spelling}{hint}", param=spelling)


def is_flag(argument: str) -> bool:
    """True for what begins like a flag: a dash, plain or typographic, and a letter after the dashes."""
    bare = argument.lstrip("-" + TYPOGRAPHIC_DASHES)
    return bare != argument and bare[:1].isalpha()
