"""Rank 0's view of all other ranks, of this host and of others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from qanat.core.errors import EngineDeadError
from qanat.executor.node_link import NodeLink
from qanat.executor.peers import Peer, blame, news
from qanat.executor.rank_messages import FromRank, ToRank, framed
from qanat.executor.rank_processes import RankProcesses
from qanat.executor.ring import FULL_RING_PAUSE_S


class Ranks:
    """All ranks but the first.

    Args:
        local: those of this host.
        links: to other hosts with ranks.
        step_timeout_s: a rank that takes no batch for so long stands still.
    """

    def __init__(self, local: RankProcesses, links: Sequence[NodeLink], step_timeout_s: float) -> None:
        self.local = local
        self._links = links
        self._step_timeout_s = step_timeout_s

    @property
    def peers(self) -> list[Peer]:
        """In order of rank."""
        return [*self.local.peers, *(peer for link in self._links for peer in link.peers)]

    def send(self, batch: bytes) -> None:
        """Gives every rank a batch.

        Raises:
            EngineDeadError: a rank has ended, or takes nothing.
        """
        for link in self._links:
            link.send_batch(batch)
        deadline_s = time.monotonic() + self._step_timeout_s

        def wait() -> None:
            self.check(FULL_RING_PAUSE_S)
            if time.monotonic() > deadline_s:
                raise EngineDeadError("A rank of this host takes no batches; all ranks are ended by force.")

        self.local.send(batch, wait)

    def tell(self, message: ToRank, but: int | None = None) -> None:
        """Tells all ranks, or all but one.

        Raises:
            EngineDeadError: a rank has ended.
        """
        frame = framed(message)
        for peer in self.peers:
            if peer.rank != but:
                peer.send(frame)

    def news(self, timeout_s: float) -> list[tuple[Peer, FromRank]]:
        """What has been said and not yet read; waits for something for at most so long.

        Raises:
            EngineDeadError: a rank has ended, or says that it fails.
        """
        return list(news(self.peers, timeout_s))

    def check(self, timeout_s: float = 0.0) -> None:
        """Looks whether all still live; for at most so long, until one does not.

        Raises:
            EngineDeadError: a rank has ended, or says that it fails.
        """
        for peer, message in self.news(timeout_s):
            peer.unread.append(message)

    def blame(self, num_entered: int) -> EngineDeadError:
        """Who is to blame for an exchange that failed; see `qanat.executor.peers`."""
        return blame(self.peers, num_entered)

    def on_loss(self, act: Callable[[], None]) -> None:
        """What to do, in another thread, when another host is gone."""
        for link in self._links:
            link.on_loss = act

    def stop(self, words: str = "") -> None:
        """Ends all of them, by force if need be. Harmless when repeated.

        Args:
            words: why, if it is by a fault.
        """
        for link in self._links:
            link.close(words)
        self.local.stop()
