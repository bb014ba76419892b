"""What can be told of a run while it goes on, from times alone: nothing that came in is read before the end.

The first piece with more than a head counts as the first token, the time between two pieces as the time between
tokens: near to what the result will say, and no part of it.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from qanat.bench.client.load import Load
from qanat.bench.client.recording import Recording
from qanat.bench.online.statistics import Distribution

MAX_LOOKED = 128
"""Running requests whose times are looked at each time; bounds what a look takes."""
MAX_GAPS = 32
"""Of one request, each time."""
NUM_RECENT = 1000
"""Values that percentiles are of, the latest."""


class Glance:
    """Looks at a run now and then."""

    def __init__(self) -> None:
        self._num_known = 0
        self._open: dict[Recording, int] = {}
        self._num_failed = 0
        self._num_ended_pieces = 0
        self._last = (0.0, 0)
        self._ttfts_ms: deque[float] = deque(maxlen=NUM_RECENT)
        self._gaps_ms: deque[float] = deque(maxlen=NUM_RECENT)

    def look(self, load: Load, num_planned: int, output_rate: float | None) -> dict[str, Any]:
        """The figures of this moment, for `LiveView`.

        Args:
            load: the run.
            num_planned: requests of it.
            output_rate: tokens a second, as the server tells; None if it does not.
        """
        recordings = load.record.recordings
        for recording in recordings[self._num_known :]:
            self._open[recording] = 0
        self._num_known = len(recordings)
        for recording in list(self._open)[:MAX_LOOKED]:
            self._times_of(recording)
        for recording in [one for one in self._open if one.end_ns]:
            self._end(recording)
        now_s = time.monotonic()
        num_pieces = self._num_ended_pieces + sum(len(recording.times_ns) for recording in self._open)
        passed_s = now_s - self._last[0]
        piece_rate = (num_pieces - self._last[1]) / passed_s if self._last[0] and passed_s > 0 else None
        self._last = (now_s, num_pieces)
        return {
            "planned": num_planned,
            "sent": len(recordings),
            "running": load.num_running,
            "done": load.num_done,
            "errors": self._num_failed,
            "passed_s": (time.monotonic_ns() - load.record.start_ns) / 1e9 if load.record.start_ns else 0.0,
            "tokens_per_s": output_rate,
            "pieces_per_s": piece_rate,
            "ttft_ms": _percentiles(self._ttfts_ms),
            "itl_ms": _percentiles(self._gaps_ms),
        }

    def _times_of(self, recording: Recording) -> None:
        seen, times = self._open[recording], recording.times_ns
        if not seen and times:
            is_head = bool(recording.pieces) and recording.pieces[0].endswith(b"\r\n\r\n")
            if is_head and len(times) < 2:
                return
            seen = 2 if is_head else 1
            self._ttfts_ms.append((times[seen - 1] - recording.intended_ns) / 1e6)
        for place in range(max(seen, len(times) - MAX_GAPS), len(times)):
            self._gaps_ms.append((times[place] - times[place - 1]) / 1e6)
        self._open[recording] = max(seen, len(times))

    def _end(self, recording: Recording) -> None:
        del self._open[recording]
        self._num_ended_pieces += len(recording.times_ns)
        self._num_failed += bool(recording.failure) or recording.status >= 400


def _percentiles(values: deque[float]) -> list[float] | None:
    """Median, 90th and 99th."""
    if not values:
        return None
    ordered = Distribution(sorted(values))
    return [ordered.percentile(percent) for percent in (50, 90, 99)]
