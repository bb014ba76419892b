"""The OpenAPI document of this server, made from the types that its endpoints read and write."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from qanat.core.sampling_params import SamplingParams
from qanat.server.errors import ErrorBody
from qanat.server.fields import IGNORED_FIELDS
from qanat.server.gate import ADMIN_PATHS, OPEN_PATHS
from qanat.server.operations import OPERATIONS, Operation
from qanat.server.requests import ChatRequest, CompletionRequest, GenerationRequest

REF_TEMPLATE = "#/components/schemas/{name}"
REASONS = {
    400: "The request has a wrong shape or value, or asks for what is not offered; `param` names the field.",
    401: "The API key is missing or wrong.",
    403: "The key does not allow this.",
    404: "There is no such model, or nothing with this id.",
    408: "The request's time ran out.",
    409: "Something else is going on that excludes this.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    429: "There is too much to do; Retry-After says when to ask again.",
    500: "A defect of the server.",
    503: "The server is loading, stopping, or its engine is dead.",
}
"""What the status codes of errors mean."""

_ATTRIBUTE = re.compile(r"^ {4}(\w[\w, ]*): ")


class OpenApiEndpoint:
    """GET /openapi.json.

    Args:
        routes: of the application, without this one.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._paths = [route.path for route in routes]
        self._body: bytes | None = None

    async def document(self, _: Request) -> Response:
        """The document; made when it is first asked for."""
        if self._body is None:
            self._body = msgspec.json.encode(openapi_document(self._paths))
        return Response(self._body, media_type="application/json")


def openapi_document(paths: Sequence[str]) -> dict[str, Any]:
    """The document, version 3.1, of the operations on these paths (as Starlette spells them)."""
    served = {_spelled(path) for path in paths} | {"/openapi.json"}
    operations = [operation for operation in OPERATIONS if operation.path in served]
    kinds = {kind.__name__: kind for operation in operations for kind in operation.types}
    kinds["ErrorBody"] = ErrorBody
    _, schemas = msgspec.json.schema_components(
        list(kinds.values()), ref_template=REF_TEMPLATE, schema_hook=lambda _: {"description": "Any value."}
    )
    requests = {operation.request.__name__ for operation in operations if operation.request is not None}
    for name, schema in schemas.items():
        _describe(schema, GenerationRequest, SamplingParams)
        if name in requests:
            _accept_null(schema)
    for kind in {ChatRequest, CompletionRequest} & set(kinds.values()):
        _accept_ignored(schemas[kind.__name__])
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Qanat",
            "version": importlib.metadata.version("qanat"),
            "description": "The OpenAI API with vLLM's extra parameters. docs/api.md says more.",
        },
        "paths": {},
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key of --api-key or the like."},
                "admin": {"type": "http", "scheme": "bearer", "description": "A key of --admin-api-key."},
            },
        },
    }
    for operation in operations:
        document["paths"].setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return document


def _spelled(path: str) -> str:
    """A path as OpenAPI has it: `{model:path}` becomes `{model}`."""
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def _described(operation: Operation) -> dict[str, Any]:
    is_open = operation.path in OPEN_PATHS
    is_admin = operation.path in ADMIN_PATHS
    words = re.findall(r"[a-z0-9]+", operation.path.lower())
    described: dict[str, Any] = {
        "operationId": "_".join([operation.method.lower(), *words]),
        "summary": operation.summary,
        "security": [] if is_open else [{"admin": []}] if is_admin else [{}, {"key": []}],
        "responses": dict(_responses(operation)),
    }
    names = re.findall(r"\{(\w+)\}", operation.path)
    if names:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ]
    if operation.request is not None:
        described["requestBody"] = {"required": True, "content": _json_content(operation.request)}
    return described


def _responses(operation: Operation) -> Iterator[tuple[str, dict[str, Any]]]:
    content: dict[str, Any] = {}
    if operation.answer is not None:
        content.update(_json_content(operation.answer))
    if operation.media_type is not None:
        is_json = operation.media_type == "application/json"
        content[operation.media_type] = {"schema": {"type": "object" if is_json else "string"}}
    if operation.event is not None:
        content["text/event-stream"] = {
            "schema": {
                "type": "string",
                "description": "Lines of `data: ` and one event each; the last is [DONE].",
            },
            "x-event-schema": _ref(operation.event),
        }
    yield "200", {"description": operation.summary, "content": content}
    for status in operation.statuses:
        schema = operation.answer if status in operation.answer_statuses else ErrorBody
        assert schema is not None
        yield str(status), {"description": REASONS[status], "content": _json_content(schema)}
    yield "default", {"description": "Any other error.", "content": _json_content(ErrorBody)}


def _json_content(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(kind)}}


def _ref(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": REF_TEMPLATE.format(name=kind.__name__)}


def _describe(schema: dict[str, Any], *fallbacks: type) -> None:
    """Moves what a docstring says about attributes to the properties; bases describe what it does not."""
    text = schema.get("description", "")
    summary, _, _ = text.partition("\n\nAttributes:")
    if summary:
        schema["description"] = summary
    words: dict[str, str] = {}
    for source in [*(kind.__doc__ or "" for kind in reversed(fallbacks)), text]:
        words.update(_attributes(source))
    for name, value in schema.get("properties", {}).items():
        if name in words:
            value["description"] = words[name]


def _attributes(text: str) -> Mapping[str, str]:
    """The entries under `Attributes:` in a docstring, by name."""
    lines = text.partition("Attributes:\n")[2].splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    entries: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        line = "    " + line[indent:]
        found = _ATTRIBUTE.match(line)
        if found:
            names = found.group(1).split(", ")
            entries.update(dict.fromkeys(names, line[found.end() :]))
        elif not line.strip():
            break
        else:
            entries.update({name: f"{entries[name]} {line.strip()}" for name in names})
    return entries


def _accept_null(schema: dict[str, Any]) -> None:
    """Lets every field that may be absent be null: the two mean the same."""
    required = schema.get("required", [])
    for name, value in schema["properties"].items():
        kinds = value.get("anyOf", [value])
        if name in required or {"type": "null"} in kinds:
            continue
        described = {key: value[key] for key in ("description", "default") if key in value}
        bare = [{key: kind[key] for key in kind if key not in described} for kind in kinds]
        schema["properties"][name] = {"anyOf": [*bare, {"type": "null"}], **described}


def _accept_ignored(schema: dict[str, Any]) -> None:
    for name in sorted(IGNORED_FIELDS - schema["properties"].keys()):
        schema["properties"][name] = {"description": "Accepted, without effect."}
