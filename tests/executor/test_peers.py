"""Who is blamed when an exchange between ranks fails."""

from __future__ import annotations

import socket

from qanat.executor.peers import Peer, blame, news
from qanat.executor.rank_messages import FromRank, RankFailed, RankLoaded, framed


class Other:
    """Another rank as rank 0 sees it, with the line's other end."""

    def __init__(self, rank: int, end: str = "ended with exit code 1") -> None:
        own, self.line = socket.socketpair()
        self.peer = Peer(rank, f"Rank {rank}", own, own.sendall, lambda: end)

    def say(self, message: FromRank) -> None:
        self.line.sendall(framed(message))

    def fails(self, num_entered: int) -> None:
        self.say(RankFailed("internal_error", "Connection closed", True, num_entered))

    def ends(self) -> None:
        self.line.close()


def test_one_that_ended_without_a_word_is_blamed_before_those_that_noticed() -> None:
    first, second = Other(1), Other(2, "was killed by SIGKILL")
    first.fails(7)
    first.ends()
    second.ends()
    assert "Rank 2 was killed by SIGKILL" in blame([first.peer, second.peer], 7).message


def test_one_with_an_error_of_its_own_is_blamed_before_those_that_noticed() -> None:
    first, second = Other(1), Other(2)
    first.fails(7)
    second.say(RankFailed("integrity", "rows do not match"))
    assert blame([first.peer, second.peer], 7).message == "Rank 2 failed: rows do not match"


def test_one_that_says_nothing_stands_still() -> None:
    first, second = Other(1), Other(2)
    first.fails(7)
    assert blame([first.peer, second.peer], 7).message.startswith(
        "Rank 2 stood still in the middle of a step"
    )


def test_if_all_have_spoken_the_one_that_was_behind_is_named() -> None:
    first, second = Other(1), Other(2)
    first.fails(7)
    second.fails(6)
    assert blame([first.peer, second.peer], 7).message.startswith("Rank 2 came too late")
    first, second = Other(1), Other(2)
    first.fails(7)
    second.fails(7)
    assert blame([first.peer, second.peer], 6).message.startswith("Rank 0 came too late")


def test_nobody_is_named_if_all_were_equally_far() -> None:
    only = Other(1)
    only.fails(7)
    assert blame([only.peer], 7).message == "An exchange between the ranks failed: Connection closed"


def test_news_come_in_order_also_those_that_waited() -> None:
    other = Other(1)
    other.peer.unread.append(RankLoaded())
    other.say(RankLoaded())
    assert [message for _, message in news([other.peer], 5.0)] == [RankLoaded(), RankLoaded()]
