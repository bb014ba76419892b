"""What the planner says, in the language of the README."""

from __future__ import annotations

import functools
import re
from importlib import resources

import yaml

from qanat.deploy.render.model import Language

_FIELD = re.compile(r"\{(\w+)\}")
_LONG_FIELDS = ("chips", "first", "flag", "issue", "list", "second")
"""Fields that may be of several words; all others are one."""
_MARKS = (("; ", "；"), (", ", "，"))
_ROLE = re.compile(r"(prefill|decode|server): (.+)")
_SOURCE = re.compile(r"(.+?) \(([^()]*)\)")


def in_language(sentence: str, language: Language) -> str:
    """A sentence of the planner; English where there is no other for it."""
    if language == "en" or not sentence:
        return sentence
    role = _ROLE.fullmatch(sentence)
    if role is not None:
        return f"{role[1]}：{in_language(role[2], language)}"
    found = _translated(sentence)
    if found is not None:
        return found
    cited = _SOURCE.fullmatch(sentence)
    words = _translated(cited[1]) if cited is not None else None
    if cited is None or words is None:
        return sentence
    return f"{words}({in_language(cited[2], language)})"


def _translated(sentence: str) -> str | None:
    """The Chinese of a sentence, or of all parts between its semicolons or commas."""
    whole = _matched(sentence)
    if whole is not None:
        return whole
    for mark, chinese_mark in _MARKS:
        parts = [_matched(part) for part in sentence.split(mark)]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            return chinese_mark.join(known)
    return None


def _matched(sentence: str) -> str | None:
    for pattern, chinese in _patterns():
        match = pattern.fullmatch(sentence)
        if match is not None:
            return chinese.format(**match.groupdict())
    return None


@functools.cache
def chinese_sentences() -> dict[str, str]:
    """The Chinese sentences by their English ones, with fields in braces."""
    file = resources.files("qanat.deploy.render").joinpath("planner_words_zh.yaml")
    found: dict[str, str] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Sentences as patterns, those with the most text of their own first."""
    ordered = sorted(chinese_sentences().items(), key=lambda pair: -len(_FIELD.sub("", pair[0])))
    return tuple((_pattern(english), chinese) for english, chinese in ordered)


def _pattern(english: str) -> re.Pattern[str]:
    text = ""
    for index, piece in enumerate(_FIELD.split(english)):
        is_field = index % 2 == 1
        inner = ".+?" if piece in _LONG_FIELDS else r"[^\s,;]+"
        text += f"(?P<{piece}>{inner})" if is_field else re.escape(piece)
    return re.compile(text)
