"""The sentences of the README, in the language that is asked for."""

from __future__ import annotations

import functools
from importlib import resources

import yaml

from qanat.deploy.render.model import Language


class Texts:
    """The sentences of one language by name."""

    def __init__(self, sentences: dict[str, str]) -> None:
        self._sentences = sentences

    def __call__(self, name: str, /, **values: object) -> str:
        """A sentence with values filled in; values are markup already.

        Raises:
            KeyError: there is no such sentence, or a value is missing.
        """
        return self._sentences[name].format(**values)

    def get(self, name: str, default: str) -> str:
        """A sentence without values; `default` where there is none of that name."""
        return self._sentences.get(name, default)

    def head(self, name: str) -> list[str]:
        """The heads of a table's columns."""
        return self._sentences[name].split(" | ")


@functools.cache
def all_sentences() -> dict[str, dict[str, str]]:
    """Every sentence by name, and by language inside."""
    file = resources.files("qanat.deploy.render").joinpath("readme_texts.yaml")
    found: dict[str, dict[str, str]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def texts_of(language: Language) -> Texts:
    """The sentences of a language."""
    return Texts({name: by_language[language] for name, by_language in all_sentences().items()})
