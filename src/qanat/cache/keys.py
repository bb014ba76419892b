"""Names of cached content: SHA-256 over everything that decides it, chained from block to block.

A key is the same in every process and on every machine, so that an index, a file and another engine speak of the
same thing; and nobody can make two prompts that share one (which a weaker hash would allow).
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence

from qanat.core.request import Request


def root_key(model_digest: str, layout: str, *, adapter: str = "", salt: str = "", owner: str = "") -> bytes:
    """The key before a sequence's first block.

    Args:
        model_digest: tells the weights.
        layout: tells how the cache stores them: types, block size, shapes.
        adapter: applied to the weights; empty for none.
        salt: of the request.
        owner: whose prefixes are kept apart; empty if they are shared.
    """
    parts = [model_digest, layout, adapter, salt, owner]
    # With lengths, so that no part can pretend to be the end of the one before.
    text = b"".join(len(part.encode()).to_bytes(8, "little") + part.encode() for part in parts)
    return hashlib.sha256(text).digest()


def block_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The key of a full block: over its parent's key and its tokens as little-endian 32-bit numbers."""
    ids = array("I", token_ids)
    if sys.byteorder == "big":
        ids.byteswap()
    return hashlib.sha256(parent + ids.tobytes()).digest()


class KeyChain:
    """The keys of one request's full blocks, made as they are asked for.

    Args:
        root: from `root_key`.
        request: its tokens only grow.
        block_size: tokens in a block.
    """

    def __init__(self, root: bytes, request: Request, block_size: int) -> None:
        self._root = root
        self._request = request
        self._block_size = block_size
        self._keys: list[bytes] = []

    def __getitem__(self, index: int) -> bytes:
        """The key of the block with this index; its tokens are known."""
        while len(self._keys) <= index:
            start = len(self._keys) * self._block_size
            parent = self._keys[-1] if self._keys else self._root
            self._keys.append(block_key(parent, self._tokens(start, start + self._block_size)))
        return self._keys[index]

    def _tokens(self, start: int, end: int) -> list[int]:
        prompt, output = self._request.prompt_token_ids, self._request.output_token_ids
        num_prompt = len(prompt)
        if end <= num_prompt:
            return prompt[start:end]
        if start >= num_prompt:
            return output[start - num_prompt : end - num_prompt]
        return prompt[start:] + output[: end - num_prompt]
