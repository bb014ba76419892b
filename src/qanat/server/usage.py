"""/usage: what each key has used, for its holder and for operators; and the same figures for Prometheus."""

from __future__ import annotations

from operator import attrgetter

import msgspec

from qanat.server.accounts import Account, Accounts
from qanat.server.caller import Caller

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


def usage_report(accounts: Accounts, caller: Caller) -> UsageReport:
    """What this caller may see: its own account, for an admin everybody's."""
    own = accounts.of(caller)
    shown = accounts.all() if caller.is_admin else [own]
    return UsageReport(int(accounts.since_s), [KeyUsage.of(account) for account in shown])


FAMILIES = (
    ("requests_total", "counter", "Requests let in.", attrgetter("num_requests")),
    ("prompt_tokens_total", "counter", "Tokens of their prompts.", attrgetter("num_prompt_tokens")),
    ("generation_tokens_total", "counter", "Tokens generated for them.", attrgetter("num_output_tokens")),
    (
        "cached_tokens_total",
        "counter",
        "Prompt tokens from the prefix cache.",
        attrgetter("num_cached_tokens"),
    ),
    ("requests_running", "gauge", "Requests that have not ended.", attrgetter("num_running")),
    ("requests_waiting", "gauge", "Of those, without output so far.", attrgetter("num_waiting")),
)
"""Name, kind, help and figure of each family of metrics about keys."""


def key_metrics(accounts: Accounts) -> bytes:
    """The same figures in Prometheus' text format, of keys with names only: those of flags have none to tell.

    The lines are written here, as the library takes a hundred milliseconds for 2,000 keys. Names and codes hold
    nothing that would have to be escaped.
    """
    named = [account for account in accounts.all() if account.caller.is_named]
    labels = [f'{{key="{account.caller.name}"}} ' for account in named]
    lines: list[str] = []
    for name, kind, text, figure in FAMILIES:
        lines += _head(name, kind, text)
        family = PREFIX + name
        lines += [
            family + label + str(count) for label, count in zip(labels, map(figure, named), strict=True)
        ]
    lines += _head("requests_refused_total", "counter", "Requests answered with an error.")
    for account in named:
        for code, count in account.refused.items():
            label = f'{{key="{account.caller.name}",code="{code}"}}'
            lines.append(f"{PREFIX}requests_refused_total{label} {count}")
    return ("\n".join(lines) + "\n").encode()


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"
