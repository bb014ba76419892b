"""What the server's log says of each HTTP request; no line holds a prompt."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from qanat.config.engine_config import ServerOptions
from qanat.core.log_lines import JSON_FORMAT, JsonFormatter, write_log

ACCESS_LOGGER = "uvicorn.access"
SCOPE_LOGGER = "uvicorn.asgi"
ACCESS_FIELDS = ("client", "method", "path", "http_version", "status")
"""What the arguments of an access line are, in uvicorn's order."""


def without_query(record: logging.LogRecord) -> bool:
    """A filter that passes every record, with the query cut off: clients may put texts there, and no path takes one.

    It stands in access lines, and at the level "trace" among what uvicorn says of each request.
    """
    if isinstance(record.args, tuple):
        record.args = tuple(_without_query(arg, record.name) for arg in record.args)
    return True


def _without_query(argument: object, logger: str) -> object:
    if logger == ACCESS_LOGGER and isinstance(argument, str):
        return argument.partition("?")[0]
    if logger == SCOPE_LOGGER and isinstance(argument, Mapping) and "query_string" in argument:
        return {**argument, "query_string": "<...>"}
    return argument


def set_up_logs(options: ServerOptions) -> None:
    """Sends every logger's lines to standard error, in the format that was asked for."""
    formatter = JsonFormatter({ACCESS_LOGGER: ACCESS_FIELDS}) if options.log_format == JSON_FORMAT else None
    handler = write_log(options.log_format, (options.log_level or "info").upper(), formatter)
    handler.addFilter(without_query)
