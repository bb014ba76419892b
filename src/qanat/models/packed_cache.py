"""Packed weights between starts: mapped from the disk where an earlier start has left them, else left for the next.

What is kept of a layer is the memory that its products read and the header that says how; its parameters that went
into it are not read from the checkpoint again. Norms and other small parameters always are, and so are layers that
were packed in part only.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from torch import Tensor

from qanat import __version__
from qanat.core.affinity import unbind_thread
from qanat.core.cache_entry import EntryError
from qanat.core.cache_folder import CacheFolder, CacheRefusedError, OpenEntry
from qanat.kernels.packing import Packed, is_packed
from qanat.kernels.providers import map_packed, packed_layout
from qanat.kernels.quantised import QuantisedMatrix
from qanat.models.packed_key import PackedIdentity
from qanat.models.units import LoadUnit

logger = logging.getLogger(__name__)

MIB = 2**20
LOW_PRIORITY = 10
WRITER_NAME = "packed-weights"
"""Of the thread that writes."""

_DAMAGE = (EntryError, msgspec.ValidationError, OSError, OverflowError)
"""What an entry raises that is not what it should be."""


class KeptWeight(msgspec.Struct, frozen=True):
    """One packed weight of a layer.

    Attributes:
        attribute: of the layer that holds it.
        header: says how its memory is to be read.
    """

    attribute: str
    header: dict[str, Any]


class KeptLayer(msgspec.Struct, frozen=True):
    """A layer as it is kept; its weights are the next pieces of the entry.

    Attributes:
        name: of the layer in the model.
        consumed: its parameters that went into the weights.
        weights: what was made of them.
    """

    name: str
    consumed: list[str]
    weights: list[KeptWeight]


class MappedWeights:
    """The packed weights of a model in a mapped file.

    Args:
        entry: the opened file; its descriptor is closed, the mapping keeps its lock.
        layers: what its pieces are.

    Attributes:
        size_bytes: of all weights.
        weights: all of them, in the order of the file.

    Raises:
        EntryError: pieces and layers do not go together.
    """

    def __init__(self, entry: OpenEntry, layers: Sequence[KeptLayer]) -> None:
        try:
            self._file = mmap.mmap(entry.descriptor, entry.size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        finally:
            os.close(entry.descriptor)
        self._held: list[mmap.mmap] = []
        self._address = int(np.frombuffer(self._file, dtype=np.uint8).ctypes.data)
        pieces = iter(zip(entry.index.starts(), entry.index.sizes, strict=True))
        self._layers: dict[str, tuple[KeptLayer, dict[str, Packed]]] = {}
        for layer in layers:
            self._layers[layer.name] = (
                layer,
                {kept.attribute: self._weight(kept, next(pieces, None)) for kept in layer.weights},
            )
        if next(pieces, None) is not None:
            raise EntryError("it has more pieces than layers")
        self.weights = [weight for _, weights in self._layers.values() for weight in weights.values()]
        self.size_bytes = sum(entry.index.sizes)

    def restore(self, unit: LoadUnit) -> frozenset[str]:
        """Gives a layer its packed weights; names of the parameters that it needs no longer, none if it is not kept."""
        if unit.module is None or unit.name not in self._layers:
            return frozenset()
        layer, weights = self._layers[unit.name]
        for own in layer.consumed:
            owner, _, parameter = own.rpartition(".")
            delattr(unit.module.get_submodule(owner), parameter)
        for attribute, weight in weights.items():
            setattr(unit.module, attribute, weight)
        return frozenset(f"{unit.name}.{own}" for own in layer.consumed)

    def hold(self, memory: mmap.mmap) -> None:
        """Keeps memory that a weight was moved to for as long as the weights live."""
        self._held.append(memory)

    def forget_pages(self) -> None:
        """Gives the file's pages back; where one is read all the same, it comes from the disk again."""
        self._file.madvise(mmap.MADV_DONTNEED)

    def check(self, units: Iterable[LoadUnit]) -> None:
        """Compares the layers with those of a model.

        Raises:
            EntryError: a kept layer is not in the model, or has other parameters there.
        """
        known = {unit.name: unit for unit in units if unit.module is not None}
        for name, (layer, _) in self._layers.items():
            if (
                name not in known
                or not {f"{name}.{own}" for own in layer.consumed} <= known[name].parameters.keys()
            ):
                raise EntryError(f"the model has no layer {name} as it is kept")

    def _weight(self, kept: KeptWeight, piece: tuple[int, int] | None) -> Packed:
        if piece is None:
            raise EntryError("pieces are missing")
        start, size = piece
        try:
            weight = map_packed(kept.header, self._address + start, self)
        except (TypeError, ValueError, KeyError) as error:
            raise EntryError(f"the header of {kept.attribute} cannot be read: {error}") from None
        if weight.nbytes != size:
            raise EntryError(f"{kept.attribute} takes {weight.nbytes} bytes and {size} are there")
        return weight


class PackedCache:
    """The place of one model's packed weights on disk. Whatever fails there is a line in the log and no more.

    Args:
        folder: of the cache.
        key: of the model's entry.
        label: what it is, for people.
    """

    def __init__(self, folder: CacheFolder, key: str, label: str) -> None:
        self._folder, self._key, self._label = folder, key, label
        self._is_kept = False

    def open(self, units: Sequence[LoadUnit]) -> MappedWeights | None:
        """The weights if they are there and go with the model; what is damaged is set aside.

        Args:
            units: of the model, before anything is loaded.
        """
        try:
            entry = self._folder.open(self._key)
            if entry is None:
                return None
            mapped = self._mapped(entry, units)
        except CacheRefusedError as error:
            logger.warning("Packed weights that are kept cannot be used: %s", error)
            return None
        except _DAMAGE as error:
            logger.warning("Packed weights that were kept are damaged and made again: %s", error)
            return None
        self._is_kept = True
        return mapped

    def keep(self, units: Iterable[LoadUnit]) -> threading.Thread | None:
        """Writes what the layers have packed, in a thread that the end of the program waits for.

        Args:
            units: of the model, all loaded; each still lists the parameters that it had before.
        """
        layers: list[KeptLayer] = []
        weights: list[Packed] = []
        for unit in units:
            if unit.module is not None:
                packed = {name: value for name, value in vars(unit.module).items() if is_packed(value)}
                if packed and _is_all_packed(unit):
                    layers.append(_kept(unit, packed))
                    weights += packed.values()
        if self._is_kept or not weights:
            return None
        thread = threading.Thread(target=self._write, args=(layers, weights), name=WRITER_NAME)
        thread.start()
        return thread

    def _mapped(self, entry: OpenEntry, units: Sequence[LoadUnit]) -> MappedWeights:
        """The entry as weights; one that does not go with the model is set aside, as the folder does with others."""
        try:
            try:
                layers = msgspec.convert(entry.index.description, list[KeptLayer])
            except msgspec.ValidationError:
                os.close(entry.descriptor)
                raise
            mapped = MappedWeights(entry, layers)
            mapped.check(units)
        except _DAMAGE:
            self._folder.set_aside(self._folder.path_of(self._key))
            raise
        return mapped

    def _write(self, layers: list[KeptLayer], weights: list[Packed]) -> None:
        begin = time.monotonic()
        work_beside_others()
        try:
            size_bytes = self._folder.store(
                self._key,
                (_memory(weight) for weight in weights),
                [weight.nbytes for weight in weights],
                made_by=__version__,
                label=self._label,
                description=msgspec.to_builtins(layers),
            )
        except CacheRefusedError as error:
            logger.warning("Packed weights are not kept for the next start: %s", error)
            return
        if size_bytes:
            logger.info(
                "Packed weights are kept for the next start: %.1f MiB in %s, %.2f s",
                size_bytes / MIB,
                self._folder.path_of(self._key),
                time.monotonic() - begin,
            )


def open_cache(folder: CacheFolder, identity: PackedIdentity) -> PackedCache | None:
    """The place of a model's packed weights; None if the kernels that were chosen pack nothing."""
    layout = packed_layout()
    return PackedCache(folder, identity.key(layout), identity.label()) if layout else None


def work_beside_others() -> None:
    """Lets the calling thread run anywhere, and only where nothing else wants to."""
    unbind_thread()
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)
    except OSError:  # it then runs like any other
        return


def _is_all_packed(unit: LoadUnit) -> bool:
    """False if the layer's method made something that no packed weight holds: a start then has to make it again."""
    assert unit.module is not None
    are_old = (f"{unit.name}.{own}" in unit.parameters for own, _ in unit.module.named_parameters())
    loose = (isinstance(value, Tensor | QuantisedMatrix) for value in vars(unit.module).values())
    return all(are_old) and not any(loose)


def _kept(unit: LoadUnit, packed: Mapping[str, Packed]) -> KeptLayer:
    assert unit.module is not None
    left = {name for name, _ in unit.module.named_parameters()}
    consumed = [
        own for own in (name.removeprefix(f"{unit.name}.") for name in unit.parameters) if own not in left
    ]
    return KeptLayer(unit.name, consumed, [KeptWeight(name, each.header()) for name, each in packed.items()])


def _memory(weight: Packed) -> memoryview:
    return memoryview((ctypes.c_char * weight.nbytes).from_address(weight.address)).cast("B")
