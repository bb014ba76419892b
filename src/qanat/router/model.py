"""The nouns of the router: an endpoint (one engine and what it does now) and a call (one request of a client)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

Header = tuple[bytes, bytes]
"""Name in lower case, and value, as on the wire."""


class Role(str, Enum):
    """What an engine does of a request: all of it, or one half of a disaggregated pair."""

    ANY = "any"
    PREFILL = "prefill"
    DECODE = "decode"


class EngineKind(str, Enum):
    """Which engine answers; it decides how a broken stream is continued."""

    QANAT = "qanat"
    VLLM = "vllm"
    UNKNOWN = "unknown"


class EndpointState(str, Enum):
    """Whether an endpoint gets requests: HALF_OPEN gets one on trial, DRAINING finishes those it has."""

    READY = "ready"
    DRAINING = "draining"
    DOWN = "down"
    HALF_OPEN = "half_open"


@dataclass(slots=True, eq=False)
class Endpoint:
    """One engine: its address and abilities, and its live figures, which the pool alone changes.

    Attributes:
        name: unique; what logs, metrics and the admin routes call it.
        host: name or address; IPv6 without brackets.
        base_path: prefix of every path of the engine, with no slash at its end; mostly empty.
        weight: share of the load compared with other endpoints; 1.0 is usual.
        models: names that it serves; empty if not known, which fits every request.
        max_model_len: longest prompt with output, in tokens; None if not known.
        num_running: requests that it has from this router now.
        num_outstanding_tokens: tokens that those requests may still cost, prompts included.
        num_served: requests that it was given since it was added.
        num_pieces: grows with every sign of progress of its open answers; health looks whether it moved.
        last_turn: number of the choice that fell on it last; who waited longest wins a tie.
    """

    name: str
    host: str
    port: int
    role: Role = Role.ANY
    kind: EngineKind = EngineKind.UNKNOWN
    weight: float = 1.0
    is_tls: bool = False
    base_path: str = ""
    models: frozenset[str] = frozenset()
    max_model_len: int | None = None
    state: EndpointState = EndpointState.READY
    num_running: int = 0
    num_outstanding_tokens: int = 0
    num_served: int = 0
    num_pieces: int = 0
    last_turn: int = 0

    @property
    def address(self) -> str:
        """`host:port`, as in a URL and the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Where the engine is, without a path of its API."""
        return f"{'https' if self.is_tls else 'http'}://{self.address}{self.base_path}"


@dataclass(slots=True, eq=False)
class Call:
    """One request of a client; the transport sets the first six, the application what it reads from them.

    Attributes:
        id: unique in this process.
        target: path with the query, as the client sent it.
        headers: names in lower case, in the order of the client, hop-by-hop ones included.
        client_host: address of the other end of the connection.
        fields: the decoded JSON object of the body; None until decoded, and if it is none, or one of too many values.
        num_prompt_tokens: estimate; prompts are not tokenized here.
        max_tokens: bound of the output; None if the client set none.
        session: what keeps requests of one conversation together; None if nothing does.
        key_hash: stands for the API key in logs and fairness; empty if the client sent none.
        priority: lower goes first.
        prefix_hashes: of the prompt's leading pieces, each including those before; None until a policy asks.
    """

    id: str
    method: str
    target: str
    headers: Sequence[Header]
    body: bytes
    client_host: str = ""
    fields: dict[str, Any] | None = None
    model: str | None = None
    is_stream: bool = False
    num_choices: int = 1
    num_prompt_tokens: int = 0
    max_tokens: int | None = None
    session: str | None = None
    key_hash: str = ""
    priority: int = 0
    prefix_hashes: tuple[int, ...] | None = None

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, by its name in lower case."""
        for key, value in self.headers:
            if key == name:
                return value
        return None
