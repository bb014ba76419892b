"""What each path takes and answers, for the OpenAPI document; a test holds that no route is missing."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from qanat.server.actions import AbortAnswer, AbortRequestBody, PrefixCacheReset, ProfileEnded, ProfileStarted
from qanat.server.recent import RequestList
from qanat.server.requests import ChatRequest, CompletionRequest
from qanat.server.responses import ChatChunk, ChatCompletion, Completion
from qanat.server.status import ModelCard, ModelList, PlanReport, Status, Version
from qanat.server.tokenization import DetokenizeAnswer, DetokenizeRequest, TokenizeAnswer, TokenizeRequest
from qanat.server.usage import UsageReport

BODY_STATUSES = (400, 401, 403, 404, 413, 415, 429, 500, 503)
"""Errors of every path that reads a JSON body."""
PROFILE_STATUSES = (401, 403, 409, 413, 415, 500, 503)


@dataclass(frozen=True)
class Operation:
    """One method on one path.

    Attributes:
        method: in capitals.
        path: as OpenAPI spells it.
        summary: one sentence.
        answer: the JSON body of status 200; None if it is something else.
        request: the JSON body that is sent; None if nothing is read.
        event: what each event of a streamed answer holds; None if nothing is streamed.
        statuses: other statuses that clients should expect.
        answer_statuses: those of them whose body is the answer's, not an error's.
        media_type: of an answer that no type describes.
    """

    method: str
    path: str
    summary: str
    answer: type[msgspec.Struct] | None = None
    request: type[msgspec.Struct] | None = None
    event: type[msgspec.Struct] | None = None
    statuses: tuple[int, ...] = (401, 500, 503)
    answer_statuses: tuple[int, ...] = ()
    media_type: str | None = None

    @property
    def types(self) -> list[type[msgspec.Struct]]:
        """Every type that it mentions."""
        return [kind for kind in (self.request, self.answer, self.event) if kind is not None]


_PROBE = (500, 503)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/completions",
        "Continues a text.",
        Completion,
        CompletionRequest,
        Completion,
        (*BODY_STATUSES, 408),
    ),
    Operation(
        "POST",
        "/v1/chat/completions",
        "Replies to a conversation.",
        ChatCompletion,
        ChatRequest,
        ChatChunk,
        (*BODY_STATUSES, 408),
    ),
    Operation(
        "POST",
        "/tokenize",
        "Text or conversation to token ids.",
        TokenizeAnswer,
        TokenizeRequest,
        statuses=BODY_STATUSES,
    ),
    Operation(
        "POST",
        "/detokenize",
        "Token ids to text.",
        DetokenizeAnswer,
        DetokenizeRequest,
        statuses=BODY_STATUSES,
    ),
    Operation(
        "POST", "/abort", "Ends running requests.", AbortAnswer, AbortRequestBody, statuses=BODY_STATUSES
    ),
    Operation(
        "POST",
        "/reset_prefix_cache",
        "Forgets all cached prefixes.",
        PrefixCacheReset,
        statuses=PROFILE_STATUSES,
    ),
    Operation(
        "POST", "/start_profile", "Records the engine's steps.", ProfileStarted, statuses=PROFILE_STATUSES
    ),
    Operation(
        "POST",
        "/stop_profile",
        "Ends the profile and names its files.",
        ProfileEnded,
        statuses=PROFILE_STATUSES,
    ),
    Operation("GET", "/v1/plan", "The settings as they hold, and where the memory went.", PlanReport),
    Operation("GET", "/v1/models", "Served names.", ModelList),
    Operation("GET", "/v1/models/{model}", "One served name.", ModelCard, statuses=(401, 404, 500, 503)),
    Operation(
        "GET", "/health", "Whether work makes progress.", Status, statuses=_PROBE, answer_statuses=(503,)
    ),
    Operation("GET", "/ping", "The same as /health.", Status, statuses=_PROBE, answer_statuses=(503,)),
    Operation("POST", "/ping", "The same as /health.", Status, statuses=_PROBE, answer_statuses=(503,)),
    Operation(
        "GET",
        "/ready",
        "Whether new requests are welcome.",
        Status,
        statuses=_PROBE,
        answer_statuses=(503,),
    ),
    Operation("GET", "/usage", "What one's key has used; for an admin all keys.", UsageReport),
    Operation(
        "GET",
        "/requests",
        "Where the time of requests went lately.",
        RequestList,
        statuses=(401, 403, 500, 503),
    ),
    Operation("GET", "/version", "Qanat's version.", Version, statuses=_PROBE),
    Operation("GET", "/metrics", "Prometheus text.", statuses=_PROBE, media_type="text/plain"),
    Operation(
        "GET", "/openapi.json", "This document.", statuses=(401, 500, 503), media_type="application/json"
    ),
)
"""In the order of the documentation."""
