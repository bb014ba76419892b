"""Words of a shell script: quotes and escapes taken off, variables filled in, every character's place kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import tree_sitter
import tree_sitter_bash

from qanat.deploy.sources.values import Place, Source, Span, Value, join

Node = tree_sitter.Node

ARRAY = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}")
PLAIN = re.compile(r"\$([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}")
WITH_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*|\d)(:?[-=+?])")
PLACEHOLDER = re.compile(
    r"<[A-Za-z_\u4e00-\u9fff](?:[^<>|&;\n\"'$()]*[^<>|&;\n\"'$()\s])?>"
    r"|\{\{[^{}\n]*\}\}|(?<=[:=])\|\w+\|"
)
"""A value that a guide leaves to its reader; the shell would take it for two redirections."""
HIDDEN = str.maketrans("<>{}| ", "\ue000\ue001\ue002\ue003\ue004\ue005")
SHOWN = str.maketrans("\ue000\ue001\ue002\ue003\ue004\ue005", "<>{}| ")
MAX_FIELDS = 2000
"""Of one word that a variable makes many of; more are dropped."""
MAX_CHARS = 200_000
"""Of one word that variables make long; longer ones stay as written."""
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(text: str) -> Node:
    """The syntax tree. One byte of it is one character of the text: others than ASCII are shown to it as letters."""
    shape = re.sub(r"[^\x01-\x7f]", "x", text)
    return _parser().parse(shape.encode("ascii")).root_node


def hide_placeholders(code: Value) -> Value:
    """The script with the angle brackets of placeholders as characters that mean nothing to a shell."""
    text = PLACEHOLDER.sub(lambda match: match.group().translate(HIDDEN), code.text)
    return code if text == code.text else replace(code, text=text)


def show_placeholders(value: Value) -> Value:
    """The value with its angle brackets back."""
    return (
        replace(value, text=value.text.translate(SHOWN))
        if re.search("[\ue000-\ue005]", value.text)
        else value
    )


class Words:
    """Expands words of one piece of script.

    Args:
        code: the script.
        source: the file it is in.
        variables: by name; an array has many values. Read, never written.
    """

    def __init__(self, code: Value, source: Source, variables: dict[str, list[Value]]) -> None:
        self.code = code
        self.source = source
        self.variables = variables

    def text(self, node: Node) -> str:
        """A node as written."""
        return self.code.text[node.start_byte : node.end_byte]

    def place(self, node: Node) -> Place:
        """Where a node stands."""
        return self.code.place_of(node.start_byte, node.end_byte)

    def fields(self, node: Node) -> list[Value]:
        """What a node adds to a command line: one word, many, or none."""
        kind = node.type
        if kind == "concatenation":
            return self._joined(node, node.children)
        if kind in ("simple_expansion", "expansion"):
            return self._variable(node, is_quoted=False)
        inner = node.named_children
        if kind == "string" and len(inner) == 1 and ARRAY.fullmatch(self.text(node)[1:-1]):
            return self._variable(inner[0], is_quoted=True)
        return [self.scalar(node)]

    def scalar(self, node: Node) -> Value:
        """A node as one value, as on the right of an assignment."""
        kind = node.type
        if kind == "concatenation":
            return join([self.scalar(child) for child in node.children], self.place(node), self.source)
        if kind in ("string", "translated_string"):
            start = self.code.text.index('"', node.start_byte)
            return self.quoted(node, start + 1, max(start + 1, node.end_byte - 1), '"\\$`')
        if kind == "raw_string":
            inner = self.code.part(node.start_byte + 1, max(node.start_byte + 1, node.end_byte - 1))
            return Value(inner.text, self.place(node), (), inner.spans, self.source)
        if kind == "ansi_c_string":
            return self._unescaped(node.start_byte + 2, node.end_byte - 1, node, _ANSI)
        if kind in ("simple_expansion", "expansion"):
            values = self._variable(node, is_quoted=True)
            return values[0] if len(values) == 1 else _spaced(values, self.place(node), self.source)
        if kind in ("command_substitution", "process_substitution", "arithmetic_expansion"):
            part = self.code.part(node.start_byte, node.end_byte)
            return Value(part.text, part.place, (part.text,), part.spans, self.source)
        return self._unescaped(node.start_byte, node.end_byte, node, None)

    def quoted(self, node: Node, start: int, end: int, escapes: str) -> Value:
        """Text in which variables count and the given characters can be escaped: double quotes, here-documents."""
        parts: list[Value] = []
        at = start
        for child in node.children:
            if child.type in (
                "simple_expansion",
                "expansion",
                "command_substitution",
                "arithmetic_expansion",
            ):
                if child.start_byte >= at:
                    parts.append(self._without_escapes(at, child.start_byte, escapes))
                    array = ARRAY.fullmatch(self.text(child))
                    values = self._variable(child, is_quoted=True) if array else [self.scalar(child)]
                    parts.append(_spaced(values, self.place(child), self.source))
                    at = child.end_byte
        parts.append(self._without_escapes(at, end, escapes))
        return join(parts, self.place(node), self.source)

    def _joined(self, node: Node, parts: Sequence[Node]) -> list[Value]:
        result: list[Value] = []
        place = self.place(node)
        for index, part in enumerate(parts):
            fields = self.fields(part)
            if index and result and fields:
                result[-1] = join([result[-1], fields[0]], place, self.source)
                result += fields[1:]
            else:
                result += fields
        return result[:MAX_FIELDS]

    def _without_escapes(self, start: int, end: int, escapes: str) -> Value:
        text, pieces, at, begin = self.code.text, [], start, start
        while at < end:
            if text[at] == "\\" and at + 1 < end and (text[at + 1] in escapes or text[at + 1] == "\n"):
                pieces.append(self.code.part(begin, at))
                begin = at + 1 if text[at + 1] != "\n" else at + 2
                at += 1
            at += 1
        pieces.append(self.code.part(min(begin, end), end))
        return pieces[0] if len(pieces) == 1 else join(pieces, self.code.place_of(start, end), self.source)

    def _unescaped(self, start: int, end: int, node: Node, names: dict[str, str] | None) -> Value:
        """A word without its backslashes; with `names` those of $'...' stand for characters."""
        text, pieces, at, begin = self.code.text, [], start, start
        if "\\" not in text[start:end]:
            return self.code.part(start, max(start, end))
        while at < end:
            if text[at] == "\\" and at + 1 < end:
                pieces.append(self.code.part(begin, at))
                letter = text[at + 1]
                begin = at + 2
                if names and letter in names:
                    piece = self.code.part(at + 1, at + 2)
                    pieces.append(Value(names[letter], piece.place, (), piece.spans, self.source))
                elif letter != "\n":
                    begin = at + 1
                at += 1
            at += 1
        pieces.append(self.code.part(min(begin, end), end))
        return join(pieces, self.place(node), self.source)

    def _variable(self, node: Node, is_quoted: bool) -> list[Value]:
        text, place = self.text(node), self.place(node)
        if match := ARRAY.fullmatch(text):
            values = self.variables.get(match.group(1))
            return list(values[:MAX_FIELDS]) if values is not None else [self._unknown(node, match.group(1))]
        if match := PLAIN.fullmatch(text):
            name = match.group(1) or match.group(2)
            values = self.variables.get(name)
            if not values:
                return [self._unknown(node, name)] if values is None or is_quoted else []
            return self._used(values[0], place, node, is_quoted)
        if match := WITH_DEFAULT.match(text):
            values = self.variables.get(match.group(1))
            if values and (values[0].text or ":" not in match.group(2)) and match.group(2)[-1] != "+":
                return self._used(values[0], place, node, is_quoted)
            if match.group(2)[-1] in "-=":
                word = self.code.part(node.start_byte + match.end(), node.end_byte - 1)
                if not re.search(r"[$`\"'\\]", word.text):
                    return self._used(word, place, node, is_quoted)
                inner = [child for child in node.named_children[1:] if child.type != "regex"]
                return [join([self.scalar(child) for child in inner], place, self.source)]
        name = re.search(r"\w+", text)
        return [self._unknown(node, name.group() if name else text)]

    def _used(self, value: Value, place: Place, node: Node, is_quoted: bool) -> list[Value]:
        """A variable's value where it is used; without quotes it falls apart at its blanks."""
        if len(value.text) > MAX_CHARS:
            return [self._unknown(node, self.text(node))]
        if is_quoted or value.unknown:
            return [Value(value.text, place, value.unknown, value.spans_in(self.source), self.source)]
        fields = []
        for match in re.finditer(r"\S+", value.text):
            part = value.part(match.start(), match.end())
            fields.append(Value(part.text, place, part.unknown, part.spans_in(self.source), self.source))
        return fields[:MAX_FIELDS]

    def _unknown(self, node: Node, name: str) -> Value:
        part = self.code.part(node.start_byte, node.end_byte)
        return Value(part.text, part.place, (name,), part.spans, self.source)


def _spaced(values: Sequence[Value], place: Place, source: Source) -> Value:
    """Values with a blank between them."""
    blank = Value(" ", place, (), (Span(0, 1, place.start, place.end),), source)
    parts = [part for value in values for part in (blank, value)][1:]
    return join(parts, place, source)


def plain_words(code: Value) -> list[Value]:
    """Splits at blanks outside quotes and takes the quotes off: for text that is no proper shell command."""
    words = []
    for match in re.finditer(
        r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"\\])+""", code.text, re.DOTALL
    ):
        if match.group() == "\\\n":
            continue
        start, end = match.span()
        word = code.part(start, end)
        inner = word.text
        if len(inner) > 1 and inner[0] == inner[-1] and inner[0] in "'\"":
            cut = code.part(start + 1, end - 1)
            word = Value(cut.text, word.place, (), cut.spans, code.source)
        elif "=" in inner and inner[-1] in "'\"" and (at := inner.find(inner[-1])) < len(inner) - 1:
            source = code.source
            pieces = [code.part(start, start + at), code.part(start + at + 1, end - 1)]
            word = join(pieces, word.place, source) if source else word
        words.append(word)
    return words
