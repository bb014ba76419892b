"""Context-free grammars as requests bring them: Lark, or the notation with `::=` that llama.cpp calls GBNF."""

from __future__ import annotations

import json
import re

from llguidance.gbnf_to_lark import gbnf_to_lark

from qanat.core.errors import StructuredOutputError
from qanat.structured.grammar_rules import check_rules

BY_HAND = "// by hand"
"""Ends a grammar whose rules a client wrote: they may be ambiguous without bounds, as those made of schemas are not."""

OPTIONS_MARK = "%llguidance"
"""Begins the line of a grammar that holds its options: the first one, if it has any; see `lark_of`."""
GBNF_RULE = re.compile(r"^[ \t]*[\w-]+\s*::=", re.MULTILINE)
"""Tells a grammar in GBNF from one in Lark."""

_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|[^"\[#]+|.', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_CONTINUED = re.compile(r"\s*\n\s*\|")
_LARK_PIECE = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\\n])*")|(?P<regex>/(?:\\.|[^/\\])+/)|(?P<comment>(?://|\#)[^\n]*)|.""",
    re.DOTALL,
)
_REFUSED_ATTRIBUTE = re.compile(r"\b(max_tokens|stop|stop_capture|temperature)\s*=")
"""What a rule may ask for in the library's dialect; nothing else there has an equals sign."""
_BLANKS = re.compile(
    r"^([\w-]+)(\s*::=\s*)\(?\s*(\[[^\]\n]*\])\s*\1\s*(?:\)\s*\?|\|\s*\"\")\s*$", re.MULTILINE
)
"""The usual way to write blanks, `ws ::= ([ \\t] ws)?`, which takes a parser more work with each of them."""
_LAST_CODE_POINT = 0x10FFFF


def lark_of(source: str) -> str:
    """A grammar in Lark, marked with `BY_HAND`.

    Args:
        source: in Lark with a rule `start`, or in GBNF with a rule `root`.

    Raises:
        StructuredOutputError: it is wrong GBNF, or a rule asks for what is no property of the text.
    """
    if source.lstrip().startswith("{"):
        raise StructuredOutputError("The grammar must be Lark or GBNF.", param="grammar")
    if GBNF_RULE.search(source) is None:
        return _marked(_with_options_first(source))
    try:
        lark = gbnf_to_lark(_BLANKS.sub(r"\1\2\3*", _tidied(source)))
    except Exception as error:  # the converter raises bare exceptions, and RecursionError
        raise StructuredOutputError(
            f"The grammar is not understood as GBNF: {error}", param="grammar"
        ) from None
    return _marked(lark)


def _marked(lark: str) -> str:
    bare = "".join(found[0] if found.lastgroup is None else " " for found in _LARK_PIECE.finditer(lark))
    refused = _REFUSED_ATTRIBUTE.search(bare)
    if refused:
        raise StructuredOutputError(f"Rules cannot have {refused[1]}; leave it out.", param="grammar")
    check_rules(bare)
    return f"{lark}\n{BY_HAND}\n"


def _with_options_first(source: str) -> str:
    """The grammar with its options, if it has any, in its first line."""
    if OPTIONS_MARK not in source:
        return source
    before, *after = source.split(OPTIONS_MARK)
    if before.strip() or len(after) > 1:
        raise StructuredOutputError(
            f"{OPTIONS_MARK} must be the first word of a grammar, and come once.", param="grammar"
        )
    try:
        options, end = json.JSONDecoder().raw_decode(after[0].lstrip())
    except (ValueError, RecursionError):
        options, end = None, 0
    if not isinstance(options, dict):
        raise StructuredOutputError(f"{OPTIONS_MARK} must be followed by a JSON object.", param="grammar")
    options["no_forcing"] = True  # see `without_forcing`, which knows of a form's first grammar only
    return f"{OPTIONS_MARK} {json.dumps(options)}\n{after[0].lstrip()[end:]}"


def _tidied(source: str) -> str:
    """The same in the part of the notation that the library's converter reads."""
    pieces = []
    for found in _PIECE.finditer(source):
        piece = found[0]
        if piece[0] in '"[':
            pieces.append(_ESCAPE.sub(_unescaped, piece))
        elif piece[0] != "#":
            pieces.append(_CONTINUED.sub(" |", piece))
    return "".join(pieces)


def _unescaped(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2]
    if digits is None:
        return escape[0]
    code_point = int(digits, 16)
    if code_point > _LAST_CODE_POINT or 0xD800 <= code_point < 0xE000:
        raise StructuredOutputError(f"The grammar's {escape[0]} is no character.", param="grammar")
    character = chr(code_point)
    return character if character.isalnum() or code_point > 0xFF else f"\\x{code_point:02x}"
