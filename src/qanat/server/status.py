"""Small endpoints about the server itself: models, health, readiness, version."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import time
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from qanat.config.resolved import ResolvedConfig
from qanat.core.decision import Decision
from qanat.core.errors import NotFoundError
from qanat.core.memory_plan import Capacity
from qanat.engine.core_line import EngineHealth
from qanat.server.caller import caller_of
from qanat.server.recent import RequestList
from qanat.server.service import Service

WELCOMING = ("ok", "degraded")
"""Words of a server that takes new requests."""


class ModelCard(msgspec.Struct, frozen=True):
    """One served name; `root` is the model behind it, `max_model_len` its window in tokens."""

    id: str
    created: int
    root: str
    max_model_len: int
    parent: None = None
    owned_by: str = "qanat"
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct, frozen=True):
    """All served names."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One replica in the answer of the health endpoints; see `Status` for the fields."""

    rank: int
    status: str
    num_pending: int
    last_step_age_s: float
    reason: str | None = None


class Status(msgspec.Struct, frozen=True):
    """Answer of the health endpoints.

    Attributes:
        status: "ok", "degraded" (some replicas serve), "stalled", "restarting", "dead" or "stopping".
        num_pending: requests that wait or run.
        last_step_age_s: seconds without a step while work is pending.
        reason: what became of the engine, if it is dead or being restarted.
        replicas: each of them, where there are several.
    """

    status: str
    num_pending: int
    last_step_age_s: float
    reason: str | None = None
    replicas: list[ReplicaStatus] | msgspec.UnsetType = msgspec.UNSET


class PlanReport(msgspec.Struct, frozen=True):
    """What this server runs with.

    Attributes:
        version: Qanat's.
        settings: every setting as it holds, but of the served names only the asker's; the model's own shape under
            `model`.
        decisions: settings that were derived or did not come out as wished, with the reason.
        memory: sizes in bytes of everything that is allocated, their sum, and what the cache holds.
        capacity: how many requests of a length run at once.
        ops: kernel providers, one line per op.
    """

    version: str
    settings: ResolvedConfig
    decisions: list[Decision]
    memory: dict[str, int]
    capacity: list[Capacity]
    ops: list[str]


class Version(msgspec.Struct, frozen=True):
    """Qanat's version."""

    version: str


def json_response(value: msgspec.Struct, status: int = 200) -> Response:
    """A response with this body."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


class StatusEndpoints:
    """Handlers over one service.

    Attributes:
        is_stopping: set when the server begins to drain; it is then no longer ready.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._version = Version(importlib.metadata.version("qanat"))
        config = service.engine.config
        created = int(time.time())
        self._models = {
            name: ModelCard(name, created, config.model_path, config.scheduler.max_model_len)
            for name in config.served_model_names
        }
        self.is_stopping = False

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        names = self._service.models_of(caller_of(request.scope))
        return json_response(ModelList([self._models[name] for name in names]))

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{model}."""
        name = request.path_params["model"]
        if name not in self._service.models_of(caller_of(request.scope)):
            raise NotFoundError(f"The model {name!r} does not exist here.", param="model")
        return json_response(self._models[name])

    async def health(self, _: Request) -> Response:
        """GET /health and /ping: 503 if no replica makes progress: dead, restarting, or slower than the limit."""
        status = await self._status()
        return json_response(status, 200 if status.status in (*WELCOMING, "stopping") else 503)

    async def ready(self, _: Request) -> Response:
        """GET /ready: 200 if new requests are welcome."""
        status = await self._status()
        return json_response(status, 200 if status.status in WELCOMING else 503)

    async def version(self, _: Request) -> Response:
        """GET /version."""
        return json_response(self._version)

    async def usage(self, request: Request) -> Response:
        """GET /usage: each sees its own account, an admin everybody's."""
        return json_response(await self._service.desk.usage(caller_of(request.scope)))

    async def requests(self, _: Request) -> Response:
        """GET /requests: where the time of requests went lately, whoever sent them."""
        return json_response(RequestList(await self._service.siblings.requests()))

    async def plan(self, request: Request) -> Response:
        """GET /v1/plan: how the settings came about and where the memory went."""
        engine = self._service.engine
        names = tuple(self._service.models_of(caller_of(request.scope)))
        memory = engine.memory_plan
        sizes = {
            **dataclasses.asdict(memory),
            "blocks_bytes": memory.blocks_bytes,
            "states_bytes": memory.states_bytes,
            "checkpoints_bytes": memory.checkpoints_bytes,
            "total_bytes": memory.total_bytes,
            "max_cached_tokens": memory.max_cached_tokens,
        }
        report = PlanReport(
            self._version.version,
            dataclasses.replace(engine.config, served_model_names=names),
            engine.decisions,
            sizes,
            memory.capacities(),
            engine.op_table,
        )
        return Response(msgspec.json.encode(report, enc_hook=str), media_type="application/json")

    async def _status(self) -> Status:
        health = await self._service.siblings.health()
        replicas = [
            ReplicaStatus(
                rank, _word(one), one.num_pending, round(one.last_step_age_s, 3), one.reason or None
            )
            for rank, one in health.replicas.items()
        ]
        word = _word(health)
        if word == "ok":
            if any(replica.status != "ok" for replica in replicas):
                word = "degraded"
            if self.is_stopping:
                word = "stopping"
        age_s = round(health.last_step_age_s, 3)
        return Status(word, health.num_pending, age_s, health.reason or None, replicas or msgspec.UNSET)


def _word(health: EngineHealth) -> str:
    if health.is_restarting:
        return "restarting"
    if health.is_healthy:
        return "ok"
    return "stalled" if health.is_alive else "dead"
