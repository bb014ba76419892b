"""Python's garbage collector in a process that streams: it must not walk through all that the start made."""

from __future__ import annotations

import gc

THRESHOLDS = (5_000, 10, 10)
"""Allocations before a collection, and younger collections before an older one.

Rare enough for streams, and often enough for what requests leave in cycles: with ten times as many allocations,
memory grew by 2.5 kB a request over thousands of requests before it levelled off.
"""


def spare_lasting_objects() -> None:
    """Takes what lives now (modules, tokenizer, templates) out of later collections, and makes them rarer.

    To be called once everything is loaded. Many streams allocate much that dies soon, and without cycles; measured
    with 256 streams whose tokens pile up, collections were half of the cost of a token, and each held all of them up.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
