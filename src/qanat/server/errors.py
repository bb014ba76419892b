"""Errors as OpenAI's clients expect them: `{"error": {message, type, param, code}}`, for every status from 400 up."""

from __future__ import annotations

import msgspec

from qanat.core import errors
from qanat.core.errors import DeadlineError, InvalidRequestError, QanatError, SlowClientError


class UnknownRouteError(InvalidRequestError):
    """There is no such path."""

    code = "not_found"
    status = 404


class UnknownRequestError(InvalidRequestError):
    """No request with this id is running."""

    code = "request_not_found"
    status = 404


class ForbiddenError(QanatError):
    """The key is right, but not for this path."""

    code = "admin_key_required"
    status = 403


class MethodNotAllowedError(InvalidRequestError):
    """The path exists, but not for this method."""

    code = "method_not_allowed"
    status = 405


class BodyTooLargeError(InvalidRequestError):
    """The request body exceeds the server's limit."""

    code = "body_too_large"
    status = 413


class MediaTypeError(InvalidRequestError):
    """The body is declared as something other than JSON."""

    code = "unsupported_media_type"
    status = 415


class UnavailableError(QanatError):
    """The server is starting or stopping and takes no requests."""

    code = "unavailable"
    status = 503


class ErrorDetail(msgspec.Struct, frozen=True):
    """The inside of an error body; `param` names the request field at fault."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True):
    """An error body."""

    error: ErrorDetail


ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    408: "timeout_error",
    429: "rate_limit_error",
}
"""`type` by status; other statuses under 500 are "invalid_request_error", from 500 on "server_error"."""


FINAL_CODES = frozenset({DeadlineError.code, SlowClientError.code})
"""Errors of the client's own limits: OpenAI's clients would send such a request again by themselves."""


def error_body(error: QanatError) -> ErrorBody:
    """The body that tells a client about this error."""
    fallback = "invalid_request_error" if error.status < 500 else "server_error"
    return ErrorBody(
        ErrorDetail(error.message, ERROR_TYPES.get(error.status, fallback), error.param, error.code)
    )


def error_headers(error: QanatError) -> dict[str, str]:
    """The headers, beside the usual ones, that a response with this error has."""
    headers = {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status == 413:
        headers["connection"] = "close"
    if error.status in (429, 503):
        headers["retry-after"] = str(max(1, error.retry_after_s))
    if error.code in FINAL_CODES:
        headers["x-should-retry"] = "false"
    return headers


def error_of(code: str, message: str) -> QanatError:
    """The error of the class with this code, so that a failure in the engine keeps its HTTP status."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, QanatError) and kind.code == code:
            return kind(message)
    return QanatError(message)
