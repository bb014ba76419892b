"""The OpenAPI document tells the truth: about routes, about request fields, about answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from qanat.config.engine_config import ServerOptions
from qanat.server.app import build_app
from qanat.server.fields import CHAT_REFUSALS, COMPLETION_REFUSALS, IGNORED_FIELDS
from qanat.server.openapi import openapi_document
from qanat.server.operations import OPERATIONS
from qanat.server.requests import ChatRequest, CompletionRequest
from tests.support.app_server import AppServer, serving

HI = [{"role": "user", "content": "hi"}]
BASES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "x", "max_tokens": 1},
    "/v1/chat/completions": {"messages": HI, "max_tokens": 1},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [65]},
}
KINDS = {"/v1/completions": CompletionRequest, "/v1/chat/completions": ChatRequest}


@pytest.fixture(scope="module")
def document(server: AppServer) -> dict[str, Any]:
    response = server.http.get("/openapi.json")
    assert response.status_code == 200 and response.headers["content-type"] == "application/json"
    values: dict[str, Any] = response.json()
    return values


def schema_of(document: dict[str, Any], path: str, *keys: str) -> dict[str, Any]:
    """A schema inside an operation, with the components that it refers to."""
    value: Any = document["paths"][path]
    for key in keys:
        value = value[key]
    return {**value, "components": document["components"]}


def answer_schema(document: dict[str, Any], path: str, method: str, status: int) -> dict[str, Any]:
    responses = document["paths"][path][method]["responses"]
    key = str(status) if str(status) in responses else "default"
    return schema_of(document, path, method, "responses", key, "content", "application/json", "schema")


def test_every_route_is_in_the_document_and_nothing_else(server: AppServer) -> None:
    def collect() -> dict[str, set[str]]:
        app = build_app(server.scripted.engine, ServerOptions())
        app.close()
        routes: dict[str, set[str]] = {}
        for route in app.routes:
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
            routes.setdefault(path, set()).update((route.methods or set()) - {"HEAD"})
        return routes

    listed: dict[str, set[str]] = {}
    for operation in OPERATIONS:
        listed.setdefault(operation.path, set()).add(operation.method)
    assert server.in_loop(collect) == listed, "name the route in qanat/server/operations.py"


def test_paths_that_are_not_served_are_left_out() -> None:
    assert set(openapi_document(["/health", "/v1/models/{model:path}"])["paths"]) == {
        "/health",
        "/v1/models/{model}",
        "/openapi.json",
    }


def test_references_lead_somewhere_and_ids_are_unique(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    names = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert names <= document["components"]["schemas"].keys()
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids)) > 10
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", KINDS)
def test_every_field_is_documented_with_a_word_about_it(document: dict[str, Any], path: str) -> None:
    properties = document["components"]["schemas"][KINDS[path].__name__]["properties"]
    assert properties.keys() == {*KINDS[path].__struct_fields__, *IGNORED_FIELDS}
    assert [name for name, value in properties.items() if not value.get("description")] == ["stream_options"]


@pytest.mark.parametrize("path", BASES)
def test_every_documented_field_is_known_and_null_is_the_same_as_absent(
    server: AppServer, document: dict[str, Any], path: str
) -> None:
    schema = schema_of(document, path, "post", "requestBody", "content", "application/json", "schema")
    name = schema["$ref"].rpartition("/")[2]
    component = document["components"]["schemas"][name]
    absent = component["properties"].keys() - set(component.get("required", [])) - BASES[path].keys()
    body = {**BASES[path], **dict.fromkeys(absent)}
    jsonschema.validate(body, schema)
    response = server.post(path, body)
    assert response.status_code == 200, response.text
    assert component["additionalProperties"] is False
    for field in absent - IGNORED_FIELDS:
        wrong = {**BASES[path], field: {"no field": ["is of this type"]}}
        response = server.post(path, wrong)
        if response.status_code == 200:  # an object of any content is allowed here, and so says the document
            jsonschema.validate(wrong, schema)
        else:
            assert response.status_code in (400, 403)
            error = response.json()["error"]
            is_unknown = error["param"] == field and error["message"].startswith(f"Unknown field {field}.")
            assert not is_unknown, error


@pytest.mark.parametrize("path", KINDS)
def test_fields_that_are_not_offered_are_not_documented(document: dict[str, Any], path: str) -> None:
    refusals = COMPLETION_REFUSALS if path == "/v1/completions" else CHAT_REFUSALS
    assert not refusals.keys() & document["components"]["schemas"][KINDS[path].__name__]["properties"].keys()


@pytest.mark.parametrize("path", KINDS)
def test_answers_and_events_are_as_documented(server: AppServer, document: dict[str, Any], path: str) -> None:
    server.say(["<think>", "so", "</think>", "an", "swer"])
    logprobs = {"logprobs": 2} if path == "/v1/completions" else {"logprobs": True, "top_logprobs": 2}
    body = {**BASES[path], "max_tokens": 8, "n": 2, "temperature": 0.5, **logprobs}
    whole = server.post(path, {**body, "prompt_logprobs": 1})
    assert whole.status_code == 200
    jsonschema.validate(whole.json(), answer_schema(document, path, "post", 200))
    event = schema_of(document, path, "post", "responses", "200", "content", "text/event-stream")
    for chunk in server.stream(path, {**body, "stream_options": {"include_usage": True}}):
        jsonschema.validate(chunk, {**event["x-event-schema"], "components": document["components"]})


def test_every_get_is_as_documented(server: AppServer, document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        if "get" not in operations:
            continue
        response = server.http.get(path.replace("{model}", "scripted"))
        content = operations["get"]["responses"][str(response.status_code)]["content"]
        kind = response.headers["content-type"].partition(";")[0]
        assert kind in content, (path, kind)
        if kind == "application/json":
            jsonschema.validate(response.json(), answer_schema(document, path, "get", response.status_code))


def test_errors_are_as_documented(server: AppServer, document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "requestBody" not in operation:
                continue
            response = server.http.request(method, path, content=b"{")
            assert str(response.status_code) in operation["responses"], (path, response.status_code)
            jsonschema.validate(response.json(), answer_schema(document, path, method, response.status_code))


def test_security_is_as_the_gate_has_it(document: dict[str, Any]) -> None:
    assert document["paths"]["/health"]["get"]["security"] == []
    assert document["paths"]["/abort"]["post"]["security"] == [{"admin": []}]
    assert {"key": []} in document["paths"]["/v1/models"]["get"]["security"]
    assert {"key": []} in document["paths"]["/openapi.json"]["get"]["security"]


def test_it_can_be_switched_off() -> None:
    with serving(ServerOptions(disable_fastapi_docs=True)) as server:
        assert server.http.get("/openapi.json").status_code == 404
