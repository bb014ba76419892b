"""Says once, in the log, that hardly any draft is right."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

NUM_WATCHED = 1000
"""Drafts of which a share is taken."""
LEAST_SHARE = 0.05
"""Below it, drafts are taken to be useless."""


class UselessDrafts:
    """Watches what becomes of drafts, so many after so many, until it has said so."""

    def __init__(self) -> None:
        self._num_drafted = self._num_accepted = 0
        self._is_said = False

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """Takes the outcome of a request's drafts into account."""
        if self._is_said:
            return
        self._num_drafted += num_drafted
        self._num_accepted += num_accepted
        if self._num_drafted < NUM_WATCHED:
            return
        if self._num_accepted < LEAST_SHARE * self._num_drafted:
            self._is_said = True
            logger.warning(
                "Of %d drafted tokens %d were right: speculation only costs time. Likely causes: a draft layer that "
                "was not trained with this checkpoint or lost its meaning when it was converted; for ngram, output "
                "that does not repeat its input. Check --speculative-config, or leave it out.",
                self._num_drafted,
                self._num_accepted,
            )
        self._num_drafted = self._num_accepted = 0
