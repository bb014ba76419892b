"""What the prefix cache did for one request, and why it ended where it did."""

from __future__ import annotations

import msgspec

OFF = "prefix caching is switched off"
SCORED = "the prompt's log-probabilities are asked for, so all of it is computed"
SHORT = "the prompt is not longer than a block"
NEW = "no earlier prompt goes on with the same tokens"
EVICTED = "what follows was cached and had to make room"
WHOLE = "all full blocks before the last token, which is always computed"
NO_STATE = "keys and values go on, but no state was kept there"


class PrefixReport(msgspec.Struct, frozen=True):
    """Where a hit ended, and why.

    Attributes:
        num_tokens: that were looked up.
        num_matched_tokens: leading ones whose keys and values are cached.
        num_cached_tokens: leading ones that need not be computed: with recurrent layers, up to the deepest state.
        why: what kept it from being more.
    """

    num_tokens: int
    num_matched_tokens: int
    num_cached_tokens: int
    why: str
