"""Text to token ids and back, with exact bytes for every token."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers

from qanat.config.model_config import ModelConfig
from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import CheckpointError

CHAT_TEMPLATE_FILE = "chat_template.jinja"


class Tokenizer:
    """A checkpoint's byte-level BPE tokenizer.

    Attributes:
        vocab_size: highest token id + 1; the model's padded vocabulary may be larger.
        eos_token_ids: union of what the model's files and the tokenizer call end of sequence. Some checkpoints
            name only one of them in each place, so none alone can be trusted.
        special_token_ids: left out of text when special tokens are skipped.
        added_token_ids: these, and added tokens that stay in the text, such as the tags of tool calls.
        chat_template: the checkpoint's jinja template, if it ships one.
    """

    def __init__(
        self,
        tokenizer: HfTokenizer,
        *,
        eos_token_ids: tuple[int, ...],
        chat_template: str | None = None,
        named_tokens: dict[str, str] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self.eos_token_ids = eos_token_ids
        self.chat_template = chat_template
        self.named_tokens = named_tokens or {}
        added = tokenizer.get_added_tokens_decoder()
        self.special_token_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.added_token_ids = frozenset(added)
        vocab = tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocab.values(), default=-1) + 1
        byte_of = _byte_of_character()
        self._bytes: list[bytes] = [b""] * self.vocab_size
        for text, token_id in vocab.items():
            self._bytes[token_id] = text.encode() if token_id in added else _to_bytes(text, byte_of)

    @classmethod
    def from_folder(cls, folder: str | Path, model: ModelConfig) -> Tokenizer:
        """Reads tokenizer.json and the files beside it.

        Raises:
            CheckpointError: if tokenizer.json is missing or unreadable.
        """
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(
                f"{folder} has no tokenizer.json. Copy it from the original checkpoint; "
                "a model without one can only be started with --load-format dummy."
            )
        try:
            tokenizer = HfTokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for a malformed file
            raise CheckpointError(f"{path} cannot be read as a tokenizer: {error}") from error
        tokenizer.no_truncation()  # fine-tuned checkpoints ship the settings of their training; a prompt is never cut
        tokenizer.no_padding()
        settings = _read_json(folder / "tokenizer_config.json")
        named = {
            name: text
            for name in ("bos_token", "eos_token", "pad_token")
            if (text := _token_text(settings.get(name)))
        }
        eos_ids = list(model.eos_token_ids)
        if (eos_id := tokenizer.token_to_id(named.get("eos_token", ""))) is not None:
            eos_ids.append(eos_id)
        return cls(
            tokenizer,
            eos_token_ids=tuple(dict.fromkeys(eos_ids)),
            chat_template=_chat_template(folder, settings),
            named_tokens=named,
        )

    @classmethod
    def bytes_only(cls, model: ModelConfig) -> Tokenizer:
        """A stand-in in which token id b is byte b, for random weights without a tokenizer file."""
        vocab = {
            character: byte for byte, character in enumerate(_character_of_byte()) if byte < model.vocab_size
        }
        tokenizer = HfTokenizer(models.BPE(vocab=vocab, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        return cls(tokenizer, eos_token_ids=tuple(model.eos_token_ids))

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; no token is added at either end."""
        # The batch call lets other threads run meanwhile, and its fast form skips offsets that nobody reads.
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = True) -> str:
        """Text of the tokens; bytes that are not UTF-8 become replacement characters."""
        skipped = self.special_token_ids if skip_special_tokens else frozenset()
        return b"".join(self.token_bytes(i) for i in token_ids if i not in skipped).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Exact bytes of one token; empty for ids of the model's padding rows."""
        return self._bytes[token_id] if 0 <= token_id < self.vocab_size else b""

    def token_id(self, text: str) -> int | None:
        """Id of the token spelled exactly so, if there is one."""
        token_id: int | None = self._tokenizer.token_to_id(text)
        return token_id


def load_tokenizer(config: ResolvedConfig) -> tuple[Tokenizer, ResolvedConfig]:
    """The checkpoint's tokenizer, and the configuration with the ids that it can spell.

    Random weights without a tokenizer file get one token per byte.

    Raises:
        CheckpointError: tokenizer.json is missing or unreadable.
    """
    if config.load_format == "dummy" and not (Path(config.model_path) / "tokenizer.json").is_file():
        tokenizer = Tokenizer.bytes_only(config.model)
    else:
        tokenizer = Tokenizer.from_folder(config.model_path, config.model)
    num_valid = min(tokenizer.vocab_size, config.model.vocab_size)
    return tokenizer, dataclasses.replace(config, num_valid_token_ids=num_valid)


def _character_of_byte() -> list[str]:
    """The printable stand-in of each byte in byte-level BPE vocabularies (GPT-2's convention)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def _byte_of_character() -> dict[str, int]:
    return {character: byte for byte, character in enumerate(_character_of_byte())}


def _to_bytes(text: str, byte_of: dict[str, int]) -> bytes:
    try:
        return bytes(byte_of[character] for character in text)
    except KeyError:
        return text.encode()


def _read_json(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _token_text(value: object) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _chat_template(folder: Path, settings: dict[str, object]) -> str | None:
    path = folder / CHAT_TEMPLATE_FILE
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several named templates; "default" is the one for chat
        by_name = {
            str(entry.get("name")): entry.get("template") for entry in template if isinstance(entry, dict)
        }
        template = by_name.get("default")
    return template if isinstance(template, str) else None
