"""/usage: what each key has used, for its holder and for operators; and the same figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from qanat.server.accounts import Account, Accounts
from qanat.server.caller import caller_of

PREFIX = "qanat:key_"


class KeyLimits(msgspec.Struct, frozen=True):
    """Bounds of a key; null is none."""

    max_concurrency: int | None
    tokens_per_minute: int | None
    requests_per_minute: int | None


class KeyUsage(msgspec.Struct, frozen=True):
    """Counts of one key since the server's start.

    Attributes:
        name: of the key; empty where no key is asked for.
        requests: that were let in, /tokenize and /detokenize included.
        running: of those, how many have not ended.
        waiting: of the running, how many have no output yet.
        prompt_tokens, output_tokens: of the requests that were let in.
        cached_tokens: prompt tokens that the prefix cache supplied.
        refused: requests that were answered with an error, by its code.
        limits: bounds of the key.
    """

    name: str
    requests: int
    running: int
    waiting: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    refused: dict[str, int]
    limits: KeyLimits

    @classmethod
    def of(cls, account: Account) -> KeyUsage:
        """The counts of this account."""
        caller = account.caller
        return cls(
            caller.name,
            account.num_requests,
            account.num_running,
            account.num_waiting,
            account.num_prompt_tokens,
            account.num_output_tokens,
            account.num_cached_tokens,
            dict(account.refused),
            KeyLimits(caller.max_concurrency, caller.tokens_per_minute, caller.requests_per_minute),
        )


class UsageReport(msgspec.Struct, frozen=True):
    """Answer of /usage.

    Attributes:
        since: when counting began, in seconds since the epoch.
        keys: one's own; for an admin all that have sent a request.
    """

    since: int
    keys: list[KeyUsage]


class UsageEndpoint:
    """Handler of GET /usage."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def usage(self, request: Request) -> Response:
        """Each sees its own account, an admin everybody's."""
        caller = caller_of(request.scope)
        own = self._accounts.of(caller)
        accounts = self._accounts.all() if caller.is_admin else [own]
        report = UsageReport(int(self._accounts.since_s), [KeyUsage.of(account) for account in accounts])
        return Response(msgspec.json.encode(report), media_type="application/json")


class KeyCollector(Collector):
    """The same figures as metric families, of keys with names only: those of flags have none to tell."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def collect(self) -> Iterable[Metric]:
        """All families; without samples where no key has a name."""
        named = [account for account in self._accounts.all() if account.caller.is_named]
        for kind, name, text, attribute in (
            (CounterMetricFamily, "requests", "Generation requests let in.", "num_requests"),
            (CounterMetricFamily, "prompt_tokens", "Tokens of their prompts.", "num_prompt_tokens"),
            (CounterMetricFamily, "generation_tokens", "Tokens generated for them.", "num_output_tokens"),
            (
                CounterMetricFamily,
                "cached_tokens",
                "Prompt tokens from the prefix cache.",
                "num_cached_tokens",
            ),
            (GaugeMetricFamily, "requests_running", "Requests that have not ended.", "num_running"),
            (GaugeMetricFamily, "requests_waiting", "Of those, without output so far.", "num_waiting"),
        ):
            family = kind(PREFIX + name, text, labels=["key"])
            for account in named:
                family.add_metric([account.caller.name], getattr(account, attribute))
            yield family
        refused = CounterMetricFamily(
            PREFIX + "requests_refused", "Requests answered with an error.", labels=["key", "code"]
        )
        for account in named:
            for code, count in account.refused.items():
                refused.add_metric([account.caller.name, code], count)
        yield refused
