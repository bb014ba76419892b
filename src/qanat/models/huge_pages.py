"""Copies mapped weights to huge pages while the model already answers: reading a file's small pages is slower."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable

import numpy as np

from qanat.core.cache_entry import CHUNK_BYTES
from qanat.core.huge_pages import HAS_HUGE_PAGES, map_huge_pages
from qanat.models.packed_cache import MIB, MappedWeights, work_beside_others

logger = logging.getLogger(__name__)

ALIGNMENT = 64


def copy_in_background(mapped: MappedWeights, why_not: Callable[[], str]) -> threading.Thread:
    """Starts the copying; weights are read from the copy from one op to the next, as each is ready.

    The thread ends with the program: a copy that is not finished is worth nothing to anybody.

    Args:
        mapped: the weights.
        why_not: asked in the thread before anything is taken: why they shall stay mapped; empty if they need not.
    """
    thread = threading.Thread(target=_copy, args=(mapped, why_not), name="huge-pages")
    thread.start()
    return thread


def _copy(mapped: MappedWeights, why_not: Callable[[], str]) -> None:
    work_beside_others()
    begin = time.monotonic()
    reason = why_not() if HAS_HUGE_PAGES else "this system has no advice for huge pages"
    if reason:
        logger.info("Packed weights stay mapped: %s", reason)
        return
    sizes = [-(-weight.nbytes // ALIGNMENT) * ALIGNMENT for weight in mapped.weights]
    try:
        region = map_huge_pages(sum(sizes))
    except (OSError, ValueError) as error:
        logger.info("Packed weights stay mapped: %s", error)
        return
    mapped.hold(region)
    address = int(np.frombuffer(region, dtype=np.uint8).ctypes.data)
    for weight, size in zip(mapped.weights, sizes, strict=True):
        for start in range(0, weight.nbytes, CHUNK_BYTES):
            if not threading.main_thread().is_alive():
                return
            ctypes.memmove(address + start, weight.address + start, min(CHUNK_BYTES, weight.nbytes - start))
        weight.move_to(address)
        address += size
    mapped.forget_pages()
    logger.info(
        "Packed weights were copied to huge pages: %.1f MiB, %.2f s",
        sum(sizes) / MIB,
        time.monotonic() - begin,
    )
