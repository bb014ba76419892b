"""What `qanat deploy diagnose` reads: lines of logs, and figures of servers."""

from __future__ import annotations

from typing import Literal

from qanat.deploy.knowledge.entry import Lifetime
from qanat.deploy.knowledge.kinds.rules import Severity

LogPart = Literal[
    "start",
    "connect",
    "load",
    "profile",
    "cache",
    "capture",
    "listen",
    "ready",
    "serve",
    "disaggregated",
    "bench",
    "container",
    "host",
]
"""What a line of a log is about: a stage of the start, serving, disaggregated serving, a client, or the host."""


class LogSignature(Lifetime, frozen=True, kw_only=True):
    """A line of a log by which a fault, or something worth knowing, is recognised.

    `pattern` is a regular expression whose named groups are values worth showing, `literals` are texts of which a line
    needs one; `cause` and `remedy` are sentences; `rules` would have found it before the start; `issues` are threads
    ("owner/repo#number"); `is_consequence` says that something else failed before; `can_follow` that it is one only
    behind another fault that has a signature. All `examples` match, `near_miss` must not.
    """

    stage: LogPart
    severity: Severity
    pattern: str
    literals: tuple[str, ...]
    cause: str
    remedy: str = ""
    rules: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()
    is_consequence: bool = False
    can_follow: bool = False
    examples: tuple[str, ...]
    near_miss: str


class LogQuotation(Lifetime, frozen=True, kw_only=True):
    """A line in which the server repeats what users wrote or the model answered: no evidence of anything.

    The text behind the line's prefix begins with `pattern`, a regular expression; `example` is such a line, and
    `near_miss` is none.
    """

    pattern: str
    example: str
    near_miss: str


StartStage = Literal[
    "start", "connect", "load", "profile", "cache", "capture", "engine", "listen", "ready", "serve"
]
"""How far the start of a server is, in this order."""


class LogStage(Lifetime, frozen=True, kw_only=True):
    """A line of a log that shows how far the start of a server is.

    `pattern` is a regular expression and `literals` are texts of which it needs one; groups fill the braces of
    `detail` ("{done} of {total} files"). `begins_anew` marks lines that only the first process of a start writes.
    `example` matches, `near_miss` must not.
    """

    stage: StartStage
    pattern: str
    literals: tuple[str, ...]
    example: str
    near_miss: str
    detail: str = ""
    begins_anew: bool = False


class Metric(Lifetime, frozen=True, kw_only=True):
    """A figure that /metrics of vLLM gives: `names` are its names over the versions, the newest first.

    Counters are listed without `_total`, histograms without `_bucket`, `_sum` and `_count`.
    """

    kind: Literal["counter", "gauge", "histogram", "labels"]
    names: tuple[str, ...]
    about: str
