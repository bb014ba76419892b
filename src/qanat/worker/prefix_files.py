"""One rank's share of what is kept of the prefix cache on disk: from the cache's tensors to files, and back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from qanat.core.cache_entry import EntryError
from qanat.core.prefix_entry import PrefixEntry, PrefixOrder
from qanat.core.prefix_folder import PrefixFolder
from qanat.models.packed_cache import work_beside_others
from qanat.platforms.groups import ParallelGroup
from qanat.worker.cache_tensors import CacheTensors

logger = logging.getLogger(__name__)


class PrefixFiles:
    """Carries out orders; all ranks get the same ones in the same order.

    Args:
        folder: this rank's view of it; None where there is none, so that nothing can be loaded.
        cache: the tensors.
        group: the ranks that share the model.
    """

    def __init__(self, folder: PrefixFolder | None, cache: CacheTensors, group: ParallelGroup) -> None:
        self._folder, self._group = folder, group
        self._block_tensors, self._state_tensors = cache.shared_blocks, cache.kept_states
        self._writer: threading.Thread | None = None

    @property
    def is_writing(self) -> bool:
        """True while an entry is on its way to the disk."""
        return self._writer is not None and self._writer.is_alive()

    def obey(self, order: PrefixOrder) -> bool:
        """Carries an order out; False if an entry cannot be loaded, on whatever rank."""
        entry = order.entry
        if order.act == "finish" or entry is None:
            self._await_writer()
            return self._agree(True)
        if order.act == "load":
            return self._agree(self._load(entry))
        if self._folder is not None and order.act == "save":
            self._save(self._folder, entry)
        elif self._folder is not None:
            self._await_writer()
            self._folder.remove(self._folder.path_of(entry))
        return True

    def _save(self, folder: PrefixFolder, entry: PrefixEntry) -> None:
        """Copies what the entry holds now, and writes it in a thread."""
        self._await_writer()
        pieces = [
            _bytes_of([tensor[:, block] for tensor in self._block_tensors]) for block in entry.block_ids
        ]
        if entry.state_id:
            pieces.append(_bytes_of([tensor[entry.state_id] for tensor in self._state_tensors]))

        def write() -> None:
            work_beside_others()
            try:
                folder.write(entry, (memoryview(piece.numpy()) for piece in pieces))
            except OSError as error:
                logger.warning("A prefix is not kept on disk: %s", error)

        # Not a daemon: a program that ends waits for it.
        self._writer = threading.Thread(target=write, name="prefix-cache")
        self._writer.start()

    def _load(self, entry: PrefixEntry) -> bool:
        """Fills places that nobody can find yet; what they hold counts only if all of it was as it was written."""
        if self._folder is None:
            return False
        targets: list[list[Tensor]] = [
            [tensor[:, block] for tensor in self._block_tensors] for block in entry.block_ids
        ]
        if entry.state_id:
            targets.append([tensor[entry.state_id] for tensor in self._state_tensors])
        try:
            for piece, parts in zip(self._folder.read(entry), targets, strict=True):
                _fill(parts, piece)
        except (EntryError, OSError, ValueError) as error:
            logger.warning("A prefix that was kept on disk is not loaded: %s", error)
            return False
        return True

    def _agree(self, is_well: bool) -> bool:
        if self._group.size == 1:
            return is_well
        num_failed = self._group.all_reduce(torch.tensor([0.0 if is_well else 1.0]))
        return float(num_failed.item()) == 0.0

    def _await_writer(self) -> None:
        if self._writer is not None:
            self._writer.join()
            self._writer = None


def _bytes_of(parts: Sequence[Tensor]) -> Tensor:
    """A copy of all of them, one after the other."""
    return torch.cat([part.cpu().contiguous().view(torch.uint8).flatten() for part in parts])


def _fill(parts: Sequence[Tensor], piece: bytearray) -> None:
    """The reverse.

    Raises:
        ValueError: they take another number of bytes.
    """
    if sum(part.nbytes for part in parts) != len(piece):
        raise ValueError(f"a piece of {len(piece)} bytes is of another size than its place")
    flat, at = torch.frombuffer(piece, dtype=torch.uint8), 0
    for part in parts:
        part.copy_(flat[at : at + part.nbytes].view(part.dtype).view(part.shape))
        at += part.nbytes
