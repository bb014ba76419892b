"""How log lines look, in every process: as text or as JSON, with the id of the request that they are about."""

from __future__ import annotations

import contextvars
import datetime
import json
import logging
import sys
from collections.abc import Sequence
from typing import Any

TEXT_FORMAT = "%(levelname)s %(name)s: %(message)s"
JSON_FORMAT = "json"
"""The value of --log-format that asks for JSON."""

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
    """One JSON object in one line: time, level, logger, message; request_id, traceback, named fields where known.

    Args:
        argument_names: by logger, what the arguments of its lines are; they become fields.
    """

    def __init__(self, argument_names: dict[str, Sequence[str]] | None = None) -> None:
        super().__init__()
        self._argument_names = argument_names or {}

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
        names = self._argument_names.get(record.name)
        if names and isinstance(record.args, tuple):
            fields |= dict(zip(names, record.args, strict=False))
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def write_log(
    log_format: str, level: str | int, formatter: logging.Formatter | None = None
) -> logging.Handler:
    """Sends every logger's lines to standard error, and Python's warnings with them; returns the handler.

    Args:
        log_format: "text" or "json".
        level: least severe that is written.
        formatter: None makes the plain one of the format.
    """
    if formatter is None:
        formatter = JsonFormatter() if log_format == JSON_FORMAT else TextFormatter()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    return handler


def present_format() -> str:
    """The format in which this process writes: "json" or "text"."""
    is_json = any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)
    return JSON_FORMAT if is_json else "text"
