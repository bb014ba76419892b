"""Puts times of several logs on one line: most have no year, and a year may end between them."""

from __future__ import annotations

import datetime

from qanat.deploy.diagnose.lines import Line

_YEAR = 2000
"""Any year with a 29th of February serves; only differences count."""
_HALF_YEAR = datetime.timedelta(days=183)


class Clock:
    """Turns month, day and second into seconds that can be compared.

    The first time that is seen is the anchor. Every other is taken to be the one with its month and day that is
    nearest to the anchor, so logs may span the end of a year, but not more than six months.
    """

    def __init__(self) -> None:
        self._anchor: datetime.datetime | None = None
        self._days: dict[tuple[int, int], float | None] = {}

    def seconds(self, line: Line) -> float | None:
        """Seconds of a line's time; None if it has none, or one that is no date."""
        if not line.has_time:
            return None
        day = (line.month, line.day)
        if day not in self._days:
            self._days[day] = self._start_of(*day)
        start = self._days[day]
        return start + line.second if start is not None else None

    def _start_of(self, month: int, day: int) -> float | None:
        try:
            moment = datetime.datetime(_YEAR, month, day)
        except ValueError:
            return None
        if self._anchor is None:
            self._anchor = moment
        if moment - self._anchor > _HALF_YEAR:
            moment -= datetime.timedelta(days=366)
        elif self._anchor - moment > _HALF_YEAR:
            moment += datetime.timedelta(days=366)
        return (moment - datetime.datetime(_YEAR, 1, 1)).total_seconds()


def show_time(seconds: float | None) -> str:
    """A time as logs write it ("11-17 08:12:05"); empty if unknown."""
    if seconds is None:
        return ""
    moment = datetime.datetime(_YEAR, 1, 1) + datetime.timedelta(seconds=seconds)
    return moment.strftime("%m-%d %H:%M:%S")
