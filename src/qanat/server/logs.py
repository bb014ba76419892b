"""Log lines as text or as JSON, each with the id of the request that it is about; no line holds a prompt."""

from __future__ import annotations

import contextvars
import datetime
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from qanat.config.engine_config import ServerOptions

TEXT_FORMAT = "%(levelname)s %(name)s: %(message)s"
ACCESS_LOGGER = "uvicorn.access"
SCOPE_LOGGER = "uvicorn.asgi"
ACCESS_FIELDS = ("client", "method", "path", "http_version", "status")
"""What the arguments of an access line are, in uvicorn's order."""

request_id_of_task: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")
"""Id of the request that this task serves; the gate sets it. Empty outside of requests."""


class TextFormatter(logging.Formatter):
    """Level, logger, message, and the request's id in brackets."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """One line; a traceback follows it."""
        request_id = request_id_of_task.get()
        text = super().formatMessage(record)
        return f"{text} [{request_id}]" if request_id else text


class JsonFormatter(logging.Formatter):
    """One JSON object in one line: time, level, logger, message; request_id, traceback, access fields where known."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := request_id_of_task.get():
            fields["request_id"] = request_id
        if record.name == ACCESS_LOGGER and isinstance(record.args, tuple):
            fields |= dict(zip(ACCESS_FIELDS, record.args, strict=False))
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if options.log_format == "json" else TextFormatter())
    handler.addFilter(without_query)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel((options.log_level or "info").upper())
