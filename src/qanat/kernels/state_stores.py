"""Recurrent states that are to be left at another place too, while a step passes them."""

from __future__ import annotations

from typing import NamedTuple


class StateStore(NamedTuple):
    """One of them; a step's are in ascending order.

    Attributes:
        request: place of the request in the step.
        num_rows: rows of it in this step that the state has absorbed then; at least one.
        state_id: where conv and recurrent state go besides; nobody else's, and no request's own.
    """

    request: int
    num_rows: int
    state_id: int
