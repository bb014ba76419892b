"""Asks for a wish, question by question; an empty answer takes what stands in brackets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.plan.commands import command_line
from qanat.deploy.plan.subject import find_chip, find_model, published_variants, runs_on, stated_variant
from qanat.deploy.plan.wish import Scenario, Topology, Wish

MAX_TRIES = 5
"""Wrong answers to one question before the wizard gives up, so that a piped file cannot hold it for ever."""


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        field: of the wish.
        text: what is asked.
        default: shown in brackets, taken for an empty answer; empty leaves the field open.
        read: makes the value of an answer; raises ConfigError for a wrong one.
    """

    field: str
    text: str
    default: str
    read: Callable[[str], Any]


class Wizard:
    """Asks through two functions, so that it runs on a terminal and on a pipe alike.

    Args:
        ask: shows a question and returns the answer; None at the end of input.
        tell: shows a line.
        knowledge: facts.
    """

    def __init__(
        self, ask: Callable[[str], str | None], tell: Callable[[str], None], knowledge: Knowledge
    ) -> None:
        self._ask = ask
        self._tell = tell
        self._knowledge = knowledge

    def run(self, known: dict[str, Any]) -> Wish:
        """The wish, after all questions that `known` leaves open.

        Args:
            known: fields that flags stated already.

        Raises:
            ConfigError: an answer is wrong again and again, or the input ends before model and machine are known.
        """
        fields = dict(known)
        for question in self._first_questions():
            self._put(question, fields)
        for question in self._further_questions(fields):
            self._put(question, fields)
        wish = msgspec.convert(fields, Wish)
        self._tell(f"The same without questions: {command_line(wish)}")
        return wish

    def _put(self, question: Question, fields: dict[str, Any]) -> None:
        if question.field in fields:
            return
        for _ in range(MAX_TRIES):
            shown = f" [{question.default}]" if question.default else ""
            answer = self._ask(f"{question.text}{shown}: ")
            text = (answer or "").strip() or question.default
            if answer is None and not question.default and question.field in ("model", "hardware"):
                raise ConfigError(f"the input ended before this was answered: {question.text}")
            if not text:
                return
            try:
                value = question.read(text)
            except ConfigError as error:
                self._tell(error.message)
                continue
            if value is not None:
                fields[question.field] = value
            return
        raise ConfigError(f"no usable answer after {MAX_TRIES} tries: {question.text}")

    def _first_questions(self) -> list[Question]:
        knowledge = self._knowledge
        chips = ", ".join(chip.name for chip in knowledge.chips)

        def model(text: str) -> str:
            find_model(text, knowledge)
            return text

        def hardware(text: str) -> str:
            find_chip(text, knowledge)
            return text

        return [
            Question("model", "Model, its repository or the folder of its weights", "", model),
            Question("hardware", f"Machine or chip ({chips})", "", hardware),
        ]

    def _further_questions(self, fields: dict[str, Any]) -> list[Question]:
        knowledge = self._knowledge
        model = find_model(fields["model"], knowledge)
        chip = find_chip(fields["hardware"], knowledge)
        named = stated_variant(Wish(model=fields["model"], hardware=fields["hardware"]), knowledge)
        variants = [one for one in published_variants(model, knowledge) if runs_on(one, chip, knowledge)]
        listed = f" ({', '.join(variants)})" if variants else ""

        def weights(text: str) -> str | None:
            if text == "auto":
                return None
            wish = Wish(model=fields["model"], hardware=fields["hardware"], weights=text)
            stated_variant(wish, knowledge)
            return text

        questions = [
            Question("nodes", "Number of nodes, or auto for the fewest that hold the model", "auto", _count),
            Question("scenario", f"What it is for ({_listed(Scenario)})", "balanced", _one_of(Scenario)),
            Question("topology", f"Topology, or auto ({_listed(Topology)})", "auto", _one_of(Topology)),
            Question(
                "max_model_len", "Longest request in tokens, prompt and answer, or auto", "auto", _count
            ),
            Question("concurrency", "Requests at once, or auto", "auto", _count),
        ]
        if named is None:
            questions.insert(0, Question("weights", f"Weights, or auto{listed}", "auto", weights))
        return questions


def _listed(kind: type[Scenario] | type[Topology]) -> str:
    return ", ".join(str(one.value) for one in kind)


def _count(text: str) -> int | None:
    if text.lower() == "auto":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"{text!r} is neither auto nor a whole number above 0.")
    return int(text)


def _one_of(kind: type[Scenario] | type[Topology]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text == "auto":
            return None
        try:
            return kind(text)
        except ValueError:
            raise ConfigError(f"{text!r} is none of {_listed(kind)}.") from None

    return read
