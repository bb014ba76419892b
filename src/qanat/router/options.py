"""The flags of `qanat router`, which are the keys of its settings file too."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.config.options import option
from qanat.config.values import Kind
from qanat.router.policies import POLICIES

MAX_SPAN_S = 86_400
CONNECTORS = ("pull", "push")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Engines behind the router."""

    endpoint: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "URL of an engine, with what is known of it behind commas: role=any|prefill|decode, weight=2, "
        "kind=qanat|vllm, name=a. May be given several times.",
    )
    endpoints_file: str | None = option(
        Kind.TEXT,
        None,
        "File with one endpoint a line, or a YAML list. It is read again when its content changes: endpoints come "
        "and go with it.",
    )
    endpoints_dns: tuple[str, ...] = option(
        Kind.TEXTS,
        (),
        "NAME:PORT whose addresses are engines, such as a headless service; looked up again and again. Takes what "
        "--endpoint takes behind commas.",
    )
    prefiller_hosts: tuple[str, ...] = option(
        Kind.TEXTS, (), "Hosts of prefill engines, as vllm-ascend's example proxies have it."
    )
    prefiller_ports: tuple[str, ...] = option(
        Kind.TEXTS, (), "Their ports, as many as hosts; one for all if there is one."
    )
    decoder_hosts: tuple[str, ...] = option(Kind.TEXTS, (), "Hosts of decode engines.")
    decoder_ports: tuple[str, ...] = option(Kind.TEXTS, (), "Their ports, as for prefill.")
    connector: str = option(
        Kind.TEXT,
        "pull",
        "How prefill and decode exchange the cache. pull: decode fetches it (MooncakeConnectorV1, "
        "MooncakeHybridConnector); push: prefill sends it layer by layer (MooncakeLayerwiseConnector). The wrong "
        "one stops the engines.",
        choices=CONNECTORS,
    )
    metaserver_url: str | None = option(
        Kind.TEXT,
        None,
        "Where decode engines reach this router, for --connector push: http://HOST:PORT. Default: this machine's "
        "address on the way to them.",
    )
    engine_key_env: str | None = option(
        Kind.TEXT,
        None,
        "Name of the variable with the API key that engines get. Default: the key that the client sent.",
    )
    ca_file: str | None = option(
        Kind.TEXT, None, "Certificates (PEM) to trust for engines behind https. Default: the system's."
    )


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """Choice and queue."""

    policy: str = option(
        Kind.TEXT,
        "least-tokens",
        "Who gets a request: least-tokens (fewest tokens yet to compute), power-of-two (the better of two drawn), "
        "prefix (who would be done first, with what it has in its cache), session (the same for each X-Session-Id or "
        "`user`).",
        choices=tuple(POLICIES),
    )
    max_inflight_per_endpoint: int | None = option(
        Kind.COUNT,
        None,
        "Requests at once for each endpoint; more wait here, in turns of the API keys. Best is a little more than "
        "the engine's --max-num-seqs. Default: no bound, so that requests wait in the engines.",
        minimum=1,
    )
    max_queue: int = option(
        Kind.COUNT,
        4096,
        "Requests that wait here; more are refused with 429 and Retry-After.",
        minimum=0,
    )
    max_queue_wait_s: float | None = option(
        Kind.NUMBER, None, "Longest wait here; past it a request ends with 408. Default: any.", minimum=0.001
    )
    max_retries: int = option(
        Kind.COUNT,
        3,
        "Further attempts, each at another endpoint, for a request of which the client has got nothing yet.",
        minimum=0,
        maximum=100,
    )
    continue_streams: bool = option(
        Kind.SWITCH,
        True,
        "Go on elsewhere with a stream whose engine died, so that the client notices nothing.",
    )


@dataclass(frozen=True, kw_only=True)
class TimeOptions:
    """Times."""

    connect_timeout_s: float = option(
        Kind.NUMBER, 5.0, "Seconds for a connection to an engine.", minimum=0.01, maximum=MAX_SPAN_S
    )
    first_byte_timeout_s: float = option(
        Kind.NUMBER,
        600.0,
        "Seconds until an engine begins to answer; a long prompt takes its time.",
        minimum=0.01,
        maximum=MAX_SPAN_S,
    )
    idle_timeout_s: float = option(
        Kind.NUMBER, 120.0, "Seconds between two pieces of an answer.", minimum=0.01, maximum=MAX_SPAN_S
    )
    drain_timeout_s: float = option(
        Kind.NUMBER,
        30.0,
        "Seconds that running requests may go on after SIGTERM or SIGINT; a second signal cuts them off.",
        minimum=0,
        maximum=MAX_SPAN_S,
    )
    health_interval_s: float = option(
        Kind.NUMBER, 2.0, "Seconds between two looks at an engine.", minimum=0.01, maximum=3600
    )
    health_timeout_s: float = option(
        Kind.NUMBER,
        3.0,
        "Seconds for an answer to a look. An engine that misses two and moves no stream meanwhile is taken out.",
        minimum=0.01,
        maximum=3600,
    )
    stall_timeout_s: float = option(
        Kind.NUMBER,
        60.0,
        "Seconds without any movement, in its streams and its own counters, after which an engine that is busy is "
        "asked for one token; without that within as many seconds again it is taken out.",
        minimum=0.05,
        maximum=MAX_SPAN_S,
    )
    dns_interval_s: float = option(
        Kind.NUMBER, 5.0, "Seconds between two look-ups of --endpoints-dns.", minimum=0.05, maximum=3600
    )


@dataclass(frozen=True, kw_only=True)
class FrontOptions:
    """Clients."""

    config: str | None = option(
        Kind.TEXT, None, "YAML file with flags as keys; a flag on the command line goes before it."
    )
    host: str = option(Kind.TEXT, "127.0.0.1", "Address to listen on; 0.0.0.0 for all.")
    port: int = option(Kind.COUNT, 8000, "Port to listen on; 0 takes a free one.", minimum=0, maximum=65_535)
    api_key_env: str | None = option(
        Kind.TEXT,
        None,
        "Name of the variable with the API keys of clients, separated by commas. Default: keys are the engines' "
        "business.",
    )
    admin_key_env: str | None = option(
        Kind.TEXT,
        None,
        "Name of the variable with the key of the routes under /router. Default: these are closed.",
    )
    max_body_bytes: int = option(Kind.BYTES, 16 << 20, "Largest body of a request.", minimum=1024)
    ssl_certfile: str | None = option(Kind.TEXT, None, "Certificate (PEM), to serve https.")
    ssl_keyfile: str | None = option(Kind.TEXT, None, "Its key (PEM).")
    access_log: str = option(
        Kind.TEXT, "-", "File for one JSON line a request; - is standard output, off is none."
    )
    router_header: bool = option(
        Kind.SWITCH, True, "Tell clients in the header X-Qanat-Router which endpoint answers, and why."
    )


@dataclass(frozen=True, kw_only=True)
class RouterOptions(EngineOptions, ChoiceOptions, TimeOptions, FrontOptions):
    """Router."""


GROUPS: tuple[type, ...] = (FrontOptions, EngineOptions, ChoiceOptions, TimeOptions)
"""In the order of the help."""
