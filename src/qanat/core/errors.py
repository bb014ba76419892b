"""Every error that a user can meet: a stable code, an HTTP status, and a message that says what to change."""

from __future__ import annotations


class QanatError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: one sentence or two; it names the setting or field to change.
        param: the request field or flag at fault, where there is one.
        retry_after_s: whole seconds after which the same request may succeed; 0 if nothing is known.

    Attributes:
        has_cost: so much was done before the refusal that the request counts against the bounds of its key.
    """

    code = "internal_error"
    status = 500

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.has_cost = False


class ConfigError(QanatError):
    """A flag, variable or config file asks for something that cannot be done."""

    code = "invalid_config"


class CheckpointError(QanatError):
    """A model folder cannot be served: missing or wrong files, tensors or keys."""

    code = "invalid_checkpoint"


class CapacityError(QanatError):
    """What was asked does not fit the memory of this machine."""

    code = "insufficient_memory"


class InvalidRequestError(QanatError):
    """The request is malformed or asks for something that is not offered."""

    code = "invalid_request_error"
    status = 400


class ContextLengthError(InvalidRequestError):
    """Prompt and output together exceed the model's window, or the cache can never hold them."""

    code = "context_length_exceeded"


class StructuredOutputError(InvalidRequestError):
    """The form that the output must have cannot be compiled or followed."""

    code = "invalid_structured_output"


class AuthenticationError(QanatError):
    """The API key is missing or wrong."""

    code = "invalid_api_key"
    status = 401


class NotFoundError(QanatError):
    """There is no such model or route."""

    code = "model_not_found"
    status = 404


class QueueFullError(QanatError):
    """The waiting queue is at its bound; try again later."""

    code = "queue_full"
    status = 429


class RateLimitError(QanatError):
    """A bound of the caller's key is reached; try again later."""

    code = "rate_limit_exceeded"
    status = 429


class DeadlineError(QanatError):
    """The request's own deadline passed before it finished."""

    code = "deadline_exceeded"
    status = 408


class SlowClientError(QanatError):
    """The client left so much of its stream unread that the request was ended."""

    code = "client_too_slow"
    status = 408


class EngineDeadError(QanatError):
    """The engine process died; the request cannot be finished by it."""

    code = "engine_dead"
    status = 503


class NumericError(QanatError):
    """The model produced logits that are not finite numbers for this request."""

    code = "numeric_error"


class IntegrityError(QanatError):
    """A bookkeeping invariant of the cache is broken: a defect in Qanat itself."""

    code = "integrity_error"


class ProfilerStateError(QanatError):
    """A profile is to start while one runs, or to stop while none does."""

    code = "profiler_state"
    status = 409


class PrefixesInUseError(QanatError):
    """Cached prefixes are to be forgotten while requests run."""

    code = "prefix_cache_in_use"
    status = 409


class ProfileWriteError(QanatError):
    """A profile's files cannot be written: no room, no rights, no such folder."""

    code = "profile_not_written"


class ConversionError(QanatError):
    """A checkpoint cannot be written: no room, no rights, or another process at work on it."""

    code = "conversion_failed"


class EngineRestartingError(QanatError):
    """The engine process died and a new one is on its way; try again."""

    code = "engine_restarting"
    status = 503


def error_of(code: str, message: str) -> QanatError:
    """The error of the class with this code, so that a refusal keeps its kind across the process boundary."""
    for kind in list(globals().values()):
        if isinstance(kind, type) and issubclass(kind, QanatError) and kind.code == code:
            return kind(message)
    return QanatError(message)
