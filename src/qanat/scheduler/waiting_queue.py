"""Requests that wait for a place in the batch, and whose turn it is."""

from __future__ import annotations

from qanat.scheduler.lazy_heap import Key, LazyHeap
from qanat.scheduler.live_request import LiveRequest
from qanat.scheduler.owner import OutputMean, Owner

MAX_IDLE_OWNERS = 1024
"""Owners without a waiting request whose account is kept; their number is bounded wherever owners are keys."""
MAX_LANES_LOOKED_AT = 1000
"""Lanes that a forecast looks at one by one."""


class Lane:
    """The waiting requests of one owner with one priority, in order of rank.

    Attributes:
        priority: of all of them.
        owner: of all of them.
        requests: by arrival, then number.
        entry: the number of its place among the lanes.
        num_served: its owner's count when it took that place.
        head: its first request then.
    """

    __slots__ = ("entry", "head", "num_served", "owner", "priority", "requests")

    def __init__(self, priority: int, owner: Owner) -> None:
        self.priority = priority
        self.owner = owner
        self.requests: LazyHeap[LiveRequest] = LazyHeap()
        self.entry = -1
        self.num_served = 0
        self.head: LiveRequest | None = None


class WaitingQueue:
    """Waiting requests in the order in which they are to enter the batch (S10).

    By priority first; of one priority, preempted requests by arrival, and then the requests of the owner who has been
    served least, by arrival. With a single owner that is the order of rank.

    Nothing here costs more than O(log n), so a long queue does not slow the steps down: a lane's place is corrected
    only when it comes to the front, and as counts of owners only grow, no lane stands too far behind.

    Attributes:
        num_tokens: known tokens of all waiting requests.
    """

    def __init__(self) -> None:
        self._turns: LazyHeap[Lane | LiveRequest] = LazyHeap()  # a preempted request stands by itself
        self._num_entries = 0
        self._lanes: dict[tuple[int, str], Lane] = {}
        self._owners: dict[str, Owner] = {}
        self._preempted: dict[int, int] = {}  # number of a request: its place among the lanes
        self._num_waiting = 0
        self._num_served_at_turn = 0
        self._outputs = OutputMean()
        self.num_tokens = 0

    def __len__(self) -> int:
        return self._num_waiting + len(self._preempted)

    def push(self, live: LiveRequest, *, is_preempted: bool = False) -> None:
        """Puts a request in its place."""
        priority, arrival_s, number = live.rank
        self.num_tokens += live.request.num_tokens
        if is_preempted:
            self._preempted[number] = self._enter((priority, 0, arrival_s, number), live)
            return
        owner = self._owner(live.request.owner)
        if not owner.num_waiting:
            owner.come_back(self._num_served_at_turn)
        owner.num_waiting += 1
        owner.num_waiting_tokens += live.request.num_tokens
        self._num_waiting += 1
        lane = self._lanes.get((priority, owner.name))
        if lane is None:
            lane = self._lanes[priority, owner.name] = Lane(priority, owner)
        lane.requests.push((arrival_s,), number, live)
        if lane.requests.peek() is live:
            self._place(lane)

    def peek(self) -> LiveRequest | None:
        """The request whose turn it is; it stays."""
        while isinstance(turn := self._turns.peek(), Lane):
            if turn.num_served == turn.owner.num_served:
                return turn.head
            self._place(turn)
        return turn

    def pop(self) -> LiveRequest | None:
        """Removes the request whose turn it is."""
        live = self.peek()
        if live is not None:
            if live.number not in self._preempted:
                owner = self._owners[live.request.owner]
                self._num_served_at_turn = max(self._num_served_at_turn, owner.num_served)
            self.discard(live)
        return live

    def discard(self, live: LiveRequest) -> None:
        """Removes a request, wherever it stands; harmless if it does not wait."""
        entry = self._preempted.pop(live.number, None)
        if entry is not None:
            self._turns.discard(entry)
            self.num_tokens -= live.request.num_tokens
            return
        lane = self._lanes.get((int(live.rank[0]), live.request.owner))
        if lane is None or not lane.requests.discard(live.number):
            return
        self.num_tokens -= live.request.num_tokens
        self._num_waiting -= 1
        lane.owner.num_waiting -= 1
        lane.owner.num_waiting_tokens -= live.request.num_tokens
        if lane.head is live:
            self._place(lane)
        self._forget_idle_owners()

    def charge(self, name: str, num_tokens: int) -> None:
        """Counts work that is done for an owner, waiting or not; a negative number gives back."""
        self._owner(name).charge(num_tokens)

    def note_output(self, name: str, num_tokens: int) -> None:
        """An output of an owner is complete."""
        self._owner(name).outputs.observe(num_tokens)
        self._outputs.observe(num_tokens)

    def mean_output(self, name: str) -> float | None:
        """The mean length of an owner's outputs, else of everybody's; None before the first."""
        own = self._owner(name).outputs.num_tokens
        return self._outputs.num_tokens if own is None else own

    def settle(self) -> None:
        """Forgets all accounts: nothing waits or runs, so nobody has a claim on anybody."""
        self._owners.clear()
        self._num_served_at_turn = 0

    def share_of(self, name: str) -> tuple[int, int, int]:
        """Waiting requests of this owner, their tokens, and owners who have any waiting, this one included."""
        own = self._owners.get(name)
        num_others = sum(other.num_waiting > 0 for other in self._owners.values() if other is not own)
        if own is None:
            return 0, 0, num_others + 1
        return own.num_waiting, own.num_waiting_tokens, num_others + 1

    def ahead_of(self, name: str, priority: int) -> tuple[int, int]:
        """Requests whose turn comes before that of a new one of this owner, and their known tokens: an estimate.

        Owners take turns, so each of the others goes first with as many requests as this owner has waiting, and one
        more. Where there are priorities, those that come later do not count and those that come earlier all do. Too
        many lanes to look at are taken for one line.
        """
        if len(self._lanes) > MAX_LANES_LOOKED_AT:
            return len(self), self.num_tokens
        own = self._owners.get(name)
        num_own = own.num_waiting if own else 0
        num_requests, num_tokens = len(self._preempted), self.num_tokens
        for owner in self._owners.values():
            num_tokens -= owner.num_waiting_tokens
        for lane in self._lanes.values():
            if lane.priority > priority:
                continue
            num_first = len(lane.requests)
            if lane.priority == priority and lane.owner is not own:
                num_first = min(num_first, num_own + 1)
            num_requests += num_first
            num_tokens += lane.owner.num_waiting_tokens * num_first // max(1, lane.owner.num_waiting)
        return num_requests, num_tokens

    def _owner(self, name: str) -> Owner:
        owner = self._owners.get(name)
        if owner is None:
            owner = self._owners[name] = Owner(name, self._num_served_at_turn)
        return owner

    def _place(self, lane: Lane) -> None:
        """Gives a lane the place that its head and its owner's count deserve; without requests it is gone."""
        self._turns.discard(lane.entry)
        lane.head = lane.requests.peek()
        if lane.head is None:
            del self._lanes[lane.priority, lane.owner.name]
            return
        lane.num_served = lane.owner.num_served
        _, arrival_s, number = lane.head.rank
        lane.entry = self._enter((lane.priority, 1, lane.num_served, arrival_s, number), lane)

    def _enter(self, key: Key, turn: Lane | LiveRequest) -> int:
        self._num_entries += 1
        self._turns.push(key, self._num_entries, turn)
        return self._num_entries

    def _forget_idle_owners(self) -> None:
        if len(self._owners) <= MAX_IDLE_OWNERS + self._num_waiting:
            return
        self._owners = {name: owner for name, owner in self._owners.items() if owner.num_waiting}
