"""The calibration file of `qanat quantize`: its texts as token ids, and the model run over them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qanat.cli.terminal import tell
from qanat.config.model_config import ModelConfig
from qanat.core.errors import ConfigError, ConversionError, InvalidRequestError

if TYPE_CHECKING:
    from qanat.conversion.measure import Activations


FLAG = "--calibrate"
MAX_TEXT_TOKENS = 2048
"""Longer texts are cut."""
RESULT_NAME = "calibration.npz"


class Calibration:
    """Texts for a model.

    Args:
        source: folder of the plain checkpoint, with its tokenizer.
        path: the file.
        num_tokens: to read of it.
        num_threads: that run the model.

    Attributes:
        digest: of the file and of how much of it is read.

    Raises:
        ConfigError: the file cannot be read or holds no text.
    """

    def __init__(self, source: Path, path: Path, num_tokens: int, num_threads: int) -> None:
        try:
            data = path.read_bytes()
            self._lines = data.decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{FLAG} {path} cannot be read: {error}", param=FLAG) from None
        if not any(line.strip() for line in self._lines):
            raise ConfigError(f"{FLAG} {path} holds no text.", param=FLAG)
        self._source, self._path, self._num_tokens = source, path, num_tokens
        self._num_threads = num_threads
        self.digest = hashlib.sha256(f"{num_tokens}\n".encode() + data).hexdigest()

    def measure(self, folder: Path) -> Mapping[str, Activations]:
        """Runs the model over the texts, or reads what an interrupted run found.

        Args:
            folder: in which the result is kept until the conversion is complete.

        Raises:
            ConfigError: a line has no text.
            CheckpointError: the checkpoint has no tokenizer or cannot be read.
        """
        from qanat.conversion.calibration import calibrate, load, save
        from qanat.conversion.threads import torch_threads
        from qanat.worker.load_bar import LoadBar

        kept = folder / RESULT_NAME
        if kept.is_file():
            try:
                return load(kept)
            except ConversionError as error:
                tell(f"{error}; the texts are run through the model again")
        config = ModelConfig.from_folder(self._source)
        sequences = self.sequences(config)
        with LoadBar("calibrating") as bar, torch_threads(self._num_threads):
            activations = calibrate(self._source, config, sequences, bar.update)
        save(activations, kept)
        return activations

    def sequences(self, config: ModelConfig) -> list[list[int]]:
        """Token ids of the texts, until there are enough.

        Raises:
            ConfigError: a line has no text.
        """
        from qanat.engine.tokenizer import Tokenizer
        from qanat.server.renderer import load_template

        tokenizer = Tokenizer.from_folder(self._source, config)
        template = load_template(None, tokenizer, config.model_family, config.hidden_size)
        found: list[list[int]] = []
        left = self._num_tokens
        for text in self._texts(template):
            ids = tokenizer.encode(text)[: min(left, MAX_TEXT_TOKENS)]
            if ids:
                found.append(ids)
                left -= len(ids)
            if left <= 0:
                break
        return found

    def _texts(self, template: Any) -> Iterator[str]:
        for number, line in enumerate(self._lines, 1):
            if not line.strip():
                continue
            if self._path.suffix not in (".jsonl", ".json"):
                yield line
                continue
            where = f"{FLAG} {self._path}, line {number}"
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{where}: no JSON: {error}", param=FLAG) from None
            yield _text_of(record, template, where)


def _text_of(record: object, template: Any, where: str) -> str:
    """The text of one line of JSON: rendered messages, a prompt, or a text."""
    from qanat.server.messages import normalise_messages

    if isinstance(record, str):
        return record
    if isinstance(record, Mapping):
        messages = record.get("messages")
        if isinstance(messages, Sequence) and not isinstance(messages, str):
            try:
                ends_open = not messages or messages[-1].get("role") != "assistant"
                return str(
                    template.render(
                        normalise_messages(messages), record.get("tools"), has_generation_prompt=ends_open
                    )
                )
            except (InvalidRequestError, AttributeError) as error:
                raise ConfigError(f"{where}: {error}", param=FLAG) from None
        for key in ("prompt", "text"):
            if isinstance(record.get(key), str):
                return str(record[key])
    raise ConfigError(f"{where}: give messages, prompt or text.", param=FLAG)
