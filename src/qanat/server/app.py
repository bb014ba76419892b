"""Puts the application together: routes, errors, the gate in front, CORS before that, and the page beside it all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import QanatError
from qanat.engine.async_engine import AsyncEngine
from qanat.server.actions import ActionEndpoints
from qanat.server.chat import ChatPlanner
from qanat.server.completions import CompletionPlanner
from qanat.server.cors import with_cors
from qanat.server.endpoint import GenerationEndpoint, JsonEndpoint
from qanat.server.errors import (
    MethodNotAllowedError,
    UnavailableError,
    UnknownRouteError,
    error_body,
    error_headers,
)
from qanat.server.gate import Gate
from qanat.server.keys import Keys
from qanat.server.keys_file import Rules
from qanat.server.metrics import MetricsEndpoint
from qanat.server.openapi import OpenApiEndpoint
from qanat.server.service import Service
from qanat.server.siblings import Company
from qanat.server.status import StatusEndpoints, json_response
from qanat.server.tokenization import TokenEndpoints
from qanat.server.web.page import with_web_page

log = logging.getLogger(__name__)


class App:
    """The ASGI application.

    Attributes:
        routes: every path that it answers.
    """

    def __init__(self, service: Service, options: ServerOptions) -> None:
        self._service = service
        self._status = StatusEndpoints(service)
        self._tokens = TokenEndpoints(service)
        metrics = MetricsEndpoint(service)
        actions = ActionEndpoints(service)
        status = self._status
        self.routes = [
            Route(
                "/v1/completions", GenerationEndpoint(service, CompletionPlanner(service)), methods=["POST"]
            ),
            Route(
                "/v1/chat/completions", GenerationEndpoint(service, ChatPlanner(service)), methods=["POST"]
            ),
            Route("/tokenize", JsonEndpoint(service, self._tokens.tokenize), methods=["POST"]),
            Route("/detokenize", JsonEndpoint(service, self._tokens.detokenize), methods=["POST"]),
            Route("/abort", JsonEndpoint(service, actions.abort), methods=["POST"]),
            Route("/reset_prefix_cache", JsonEndpoint(service, actions.reset_prefix_cache), methods=["POST"]),
            Route("/start_profile", JsonEndpoint(service, actions.start_profile), methods=["POST"]),
            Route("/stop_profile", JsonEndpoint(service, actions.stop_profile), methods=["POST"]),
            Route("/v1/plan", status.plan),
            Route("/v1/models", status.models),
            Route("/v1/models/{model:path}", status.model),
            Route("/usage", status.usage),
            Route("/requests", status.requests),
            Route("/health", status.health),
            Route("/ping", status.health, methods=["GET", "POST"]),
            Route("/ready", status.ready),
            Route("/version", status.version),
            Route("/metrics", metrics.metrics),
        ]
        if not options.disable_fastapi_docs:
            self.routes.append(Route("/openapi.json", OpenApiEndpoint(self.routes[:]).document))
        inner = Starlette(
            routes=self.routes,
            exception_handlers={HTTPException: _http_error, QanatError: _qanat_error, Exception: _defect},
        )
        guarded = with_cors(Gate(inner, Keys(options, Rules.of(service.engine.config))), options)
        self._outermost = with_web_page(guarded, is_on=options.web_page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        await self._outermost(scope, receive, send)

    def begin_stopping(self) -> None:
        """From now on /ready says no and new generations are refused; what runs goes on."""
        self._status.is_stopping = True
        self._service.engine.refuse_new(
            UnavailableError("The server is being stopped; send the request to another one.")
        )

    def close(self) -> None:
        """Ends the threads that handle texts."""
        self._service.encoder.close()
        self._tokens.close()


def build_app(
    engine: AsyncEngine,
    options: ServerOptions,
    sampling_defaults: Mapping[str, Any] | None = None,
    company: Company | None = None,
) -> App:
    """The OpenAI API over this engine.

    Args:
        engine: a started engine.
        options: keys, template, parser.
        sampling_defaults: values of sampling fields for requests that do not name them.
        company: other processes that serve the address; None if this is the only one.

    Raises:
        ConfigError: the chat template cannot be used, or the flags for CORS contradict each other.
    """
    return App(Service.build(engine, options, sampling_defaults or {}, company), options)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        response = error_response(
            MethodNotAllowedError(f"{request.method} is not allowed on {path}; use {allowed}.")
        )
        response.headers["allow"] = allowed
        return response
    return error_response(UnknownRouteError(f"There is no {path} here."))


async def _qanat_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, QanatError)
    return error_response(error)


async def _defect(_: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return error_response(QanatError("Something went wrong in the server; its log has the details."))


def error_response(error: QanatError) -> Response:
    """What handlers behind Starlette answer for an error; the same as `qanat.server.http.send_error` sends."""
    response = json_response(error_body(error), error.status)
    response.headers.update(error_headers(error))
    return response
