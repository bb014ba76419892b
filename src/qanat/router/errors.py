"""What the router itself has to say to a client that it cannot serve."""

from __future__ import annotations

from qanat.core.errors import AuthenticationError, NotFoundError, QanatError


class NoEndpointError(QanatError):
    """No engine that could take the request is in service now; one may be soon."""

    code = "no_endpoint"
    status = 503


class ShuttingDownError(QanatError):
    """The router was told to stop and takes nothing new."""

    code = "shutting_down"
    status = 503


class UnknownPathError(NotFoundError):
    """Neither the router nor an engine has such a path."""

    code = "unknown_path"


class UnknownEndpointError(NotFoundError):
    """There is no endpoint of this name."""

    code = "unknown_endpoint"


class MethodError(QanatError):
    """The path is known, the method on it is not."""

    code = "method_not_allowed"
    status = 405


class AdminKeyError(AuthenticationError):
    """The admin routes need the admin key."""

    code = "admin_key_required"
    status = 403
