"""What a grammar library must know of a tokenizer, as plain data that can cross process boundaries."""

from __future__ import annotations

import msgspec


class Vocabulary(msgspec.Struct, frozen=True):
    """Every token's bytes.

    Attributes:
        tokens: bytes of each token by id, as many as can be chosen; empty for ids without text.
        added_ids: tokens that are no text, such as `<|im_end|>` and `<tool_call>`: a form allows them by name only.
        eos_ids: tokens that end an output; at least one, or no form can end.
    """

    tokens: list[bytes]
    added_ids: list[int]
    eos_ids: list[int]

    @property
    def size(self) -> int:
        """Number of tokens that can be chosen."""
        return len(self.tokens)

    @property
    def num_mask_words(self) -> int:
        """32-bit words of a mask with one bit per token."""
        return -(-len(self.tokens) // 32)

    def packed(self) -> bytes:
        """All of it as bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpacked(cls, packed: bytes) -> Vocabulary:
        """From the bytes of `packed`."""
        return msgspec.msgpack.decode(packed, type=cls)

    def added_ids_by_text(self) -> dict[str, int]:
        """Ids of the added tokens by their spelling."""
        return {self.tokens[i].decode(errors="replace"): i for i in self.added_ids}
