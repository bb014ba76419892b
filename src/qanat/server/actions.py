"""What only an operator may do to a running server; the gate asks for the admin key before any of it."""

from __future__ import annotations

import dataclasses

import msgspec

from qanat.config.profiler import ProfilerSettings
from qanat.core.errors import ProfilerStateError
from qanat.server.caller import Caller
from qanat.server.decoding import decode_request
from qanat.server.errors import UnknownRequestError
from qanat.server.service import Service


class AbortRequestBody(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Body of /abort: the X-Request-Id of a request, or the `id` of its answer."""

    request_id: str


class AbortAnswer(msgspec.Struct, frozen=True):
    """Answer of /abort.

    Attributes:
        request_id: as it was asked for.
        num_aborted: prompts that were still running; each ends at the engine's next step.
    """

    request_id: str
    num_aborted: int


class PrefixCacheReset(msgspec.Struct, frozen=True):
    """Answer of /reset_prefix_cache."""

    status: str = "reset"


class ProfileStarted(msgspec.Struct, frozen=True):
    """Answer of /start_profile: what is recorded, and after how many seconds it ends by itself."""

    kinds: list[str]
    max_duration_s: float
    status: str = "recording"


class ProfileEnded(msgspec.Struct, frozen=True):
    """Answer of /stop_profile; see `qanat.core.profile.ProfileReport`."""

    files: list[str]
    num_steps: int
    num_op_calls: int
    duration_s: float
    ended_by: str
    status: str = "written"


class ActionEndpoints:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def abort(self, body: bytes, _: Caller) -> AbortAnswer:
        """POST /abort: ends every running request with this id.

        Raises:
            InvalidRequestError: the body has the wrong shape.
            UnknownRequestError: nothing runs under this id.
            UnavailableError: nothing is known to run under it, but a process that may do so does not answer.
        """
        request_id = decode_request(body, AbortRequestBody, {}).request_id
        num_aborted = await self._service.siblings.abort(request_id)
        if not num_aborted:
            raise UnknownRequestError(
                f"No request with the id {request_id!r} is running here.", param="request_id"
            )
        return AbortAnswer(request_id, num_aborted)

    async def reset_prefix_cache(self, _body: bytes, _: Caller) -> PrefixCacheReset:
        """POST /reset_prefix_cache: forgets all cached prefixes, on disk too. Nothing in the body is read.

        Raises:
            PrefixesInUseError: requests wait or run.
        """
        await self._service.engine.reset_prefix_cache()
        return PrefixCacheReset()

    async def start_profile(self, _body: bytes, _: Caller) -> ProfileStarted:
        """POST /start_profile: records the engine's steps from now on. Nothing in the body is read.

        Raises:
            ProfilerStateError: profiling is off, or a profile is recorded or written already.
            ProfileWriteError: the folder cannot be written to.
        """
        settings = self._profiler()
        await self._service.engine.start_profile()
        return ProfileStarted(list(settings.kinds), settings.max_duration_s)

    async def stop_profile(self, _body: bytes, _: Caller) -> ProfileEnded:
        """POST /stop_profile: ends the profile and waits for its files. Nothing in the body is read.

        Raises:
            ProfilerStateError: profiling is off, or there is no profile.
            ProfileWriteError: the files could not be written.
        """
        self._profiler()
        report = await self._service.engine.stop_profile()
        return ProfileEnded(**dataclasses.asdict(report))

    def _profiler(self) -> ProfilerSettings:
        settings = self._service.engine.config.profiler
        if settings is None:
            raise ProfilerStateError(
                "Profiling is switched off: the server was started without a folder for profiles "
                '(--profiler-config \'{"torch_profiler_dir": "./profiles"}\').'
            )
        return settings
