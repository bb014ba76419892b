"""A faulty service for every symptom that the knowledge base knows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.small_service import Alteration, Body, Handler, Override

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Faulty:
    """A service with a fault.

    Attributes:
        check: that must see it.
        overrides: answers of its own, by path.
        alter: changes good answers.
        flags: of the command.
    """

    check: str
    overrides: dict[str, Override] = field(default_factory=dict)
    alter: Alteration | None = None
    flags: tuple[str, ...] = ()


def status(code: int, message: str = "it says no") -> Override:
    def override(handler: Handler, request: Body) -> bool:
        handler.refuse(code, message)
        return True

    return override


def body(text: str, kind: str = "application/json") -> Override:
    def override(handler: Handler, request: Body) -> bool:
        handler.raw(text, kind=kind)
        return True

    return override


def when(condition: Callable[[Handler, Body], bool], then: Override) -> Override:
    return lambda handler, request: condition(handler, request) and then(handler, request)


def silence(handler: Handler, request: Body) -> bool:
    """Never answers."""
    handler.server.is_over.wait()
    return True


def drip(handler: Handler, request: Body) -> bool:
    """A letter now and then, so that no single read takes long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    with contextlib.suppress(OSError):
        while not handler.server.is_over.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()
    return True


def cut(handler: Handler, request: Body) -> bool:
    handler.raw('{"choices', length=1000)
    return True


def announced(*lines: str) -> Override:
    """An answer of which only the beginning is there: what it says of its length is enough."""

    def override(handler: Handler, request: Body) -> bool:
        handler.wfile.write("\r\n".join(["HTTP/1.1 200 OK", lines[0], "", *lines[1:], ""]).encode() + b"\r\n")
        return True

    return override


def other_protocol(handler: Handler, request: Body) -> bool:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    return True


def choices(change: Callable[[Body], None], path: str = COMPLETIONS) -> Alteration:
    """Changes every choice of a whole answer."""

    def alter(where: str, request: Body, value: Any) -> None:
        if where == path and isinstance(value, dict):
            for choice in value["choices"]:
                change(choice)

    return alter


def message(**fields: Any) -> Alteration:
    return choices(lambda choice: choice["message"].update(fields), CHAT)


def chunks(change: Callable[[list[Any]], Any]) -> Alteration:
    """Changes the chunks of a stream."""

    def alter(where: str, request: Body, value: Any) -> None:
        if isinstance(value, list):
            value[:] = change(value)

    return alter


def whole(change: Callable[[Body], None]) -> Alteration:
    return lambda path, request, value: (
        change(value) if isinstance(value, dict) and "choices" in value else None
    )


def call(name: str = "get_weather", arguments: str = '{"city": "Paris"}') -> list[Body]:
    return [{"id": "a", "type": "function", "function": {"name": name, "arguments": arguments}}]


def models(**fields: Any) -> Alteration:
    return lambda path, request, value: value["data"][0].update(fields) if path == "/v1/models" else None


def is_sampled(handler: Handler, request: Body) -> bool:
    return bool(request.get("temperature"))


def window_error(text: str) -> Override:
    return when(
        lambda handler, request: len(str(request.get("prompt"))) >= handler.server.window, status(400, text)
    )


def cut_prompt(path: str, request: Body, value: Any) -> None:
    if "usage" in value and len(request["prompt"]) > 100:
        value["usage"]["prompt_tokens"] = 100


def accept_all(handler: Handler, request: Body) -> bool:
    if len(str(request.get("prompt"))) < handler.server.window:
        return False
    usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": 1}
    handler.answer(200, {"choices": [{"index": 0, "text": "a", "finish_reason": "length"}], "usage": usage})
    return True


def another_text_after(num_requests: int) -> Override:
    """The greedy story changes after some times."""

    def override(handler: Handler, request: Body) -> bool:
        is_story = str(request.get("prompt", "")).startswith("Once") and not request.get("stream")
        if is_story and handler.server.count("story") > num_requests:
            request["prompt"] = "Another " + request["prompt"][8:]
        return False

    return override


def seedless(handler: Handler, request: Body) -> bool:
    if "seed" in request:
        request["seed"] = handler.server.count("seed")
    return False


def dies_after_stream(handler: Handler, request: Body) -> bool:
    if not request.get("stream"):
        if handler.server.state.get("stream"):
            handler.refuse(500, "the engine is dead")
            return True
        return False
    handler.server.count("stream")
    return False


def running_for_ever(handler: Handler, request: Body) -> bool:
    count = handler.server.count("metrics")
    handler.raw(f'vllm:num_requests_running{{engine="0"}} {3 if count > 2 else 0}.0\n', kind="text/plain")
    return True


def rejected_drafts(handler: Handler, request: Body) -> bool:
    drafted = 90 * handler.server.count("metrics")
    names = ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total")
    handler.raw(f"{names[0]} {drafted}\n{names[1]} 0\n", kind="text/plain")
    return True


def sick_later(handler: Handler, request: Body) -> bool:
    if handler.server.count("health") == 1:
        return False
    handler.refuse(500, "the engine does not move")
    return True


def without_finish(parts: list[Any]) -> list[Any]:
    return [part for part in parts if not (part["choices"] and part["choices"][0].get("finish_reason"))]


def in_one_piece(parts: list[Any]) -> list[Any]:
    text = "".join(choice["text"] for part in parts for choice in part["choices"])
    first = {"choices": [{"index": 0, "text": text, "finish_reason": "length"}]}
    return [first, parts[-1]]


NO_HEALTH = {"/health": status(404)}
EVENTS = "text/event-stream"
WHOLE_STREAM = 'data: {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}\n\n'
FAULTS: dict[str, tuple[Faulty, ...]] = {
    "not_ready": (Faulty("ready", {"/health": status(503, "loading")}),),
    "no_health": (Faulty("ready", NO_HEALTH),),
    "blind_health": (Faulty("ready", NO_HEALTH | {"/healthcheck": body("{}")}),),
    "no_answer_in_time": (
        Faulty("completion", {COMPLETIONS: silence}, flags=("--timeout-s", "2")),
        Faulty("completion", {COMPLETIONS: drip}, flags=("--timeout-s", "2")),
    ),
    "broken_off": (
        Faulty("completion", {COMPLETIONS: cut}),
        Faulty("completion", {COMPLETIONS: lambda *_: True}),
    ),
    "answer_too_long": (
        Faulty("completion", {COMPLETIONS: announced("Content-Length: 300000000")}),
        Faulty("completion", {COMPLETIONS: announced("Transfer-Encoding: chunked", "11e1a300")}),
    ),
    "no_http": (Faulty("ready", {"/health": other_protocol}),),
    "empty_answer": (
        Faulty("completion", {COMPLETIONS: body("")}),
        Faulty("stream_chat", {CHAT: when(lambda _, request: "stream" in request, body("", EVENTS))}),
        Faulty("wrong_value", {COMPLETIONS: body("")}),
    ),
    "no_json": (Faulty("completion", {COMPLETIONS: body("<html>Welcome</html>")}),),
    "error_as_success": (Faulty("completion", {COMPLETIONS: body('{"error": {"message": "no engine"}}')}),),
    "misshapen_answer": (
        Faulty("completion", {COMPLETIONS: body('{"text": "a"}')}),
        Faulty("completion", {COMPLETIONS: body("[1]")}),
        Faulty("model", {"/v1/models": body('{"models": []}')}),
        Faulty("chat", alter=message(content=["a"])),
    ),
    "refused": (Faulty("completion", {COMPLETIONS: status(400, "temperature is not known")}),),
    "redirected": (Faulty("ready", {"/health": status(301)}),),
    "key_refused": (Faulty("completion", {COMPLETIONS: status(401)}),),
    "busy": (Faulty("completion", {COMPLETIONS: status(429)}),),
    "server_error": (Faulty("completion", {COMPLETIONS: status(500)}),),
    "wrong_usage": (
        Faulty("completion", alter=whole(lambda value: value.pop("usage"))),
        Faulty("completion", alter=whole(lambda value: value["usage"].update(completion_tokens=99))),
    ),
    "wrong_end": (
        Faulty("completion", alter=choices(lambda choice: choice.update(finish_reason=None))),
        Faulty("chat", alter=choices(lambda choice: choice.update(finish_reason="recomputed"), CHAT)),
    ),
    "no_text": (
        Faulty("completion", alter=choices(lambda choice: choice.update(text=""))),
        Faulty("chat", alter=message(content="  ")),
    ),
    "no_model_list": (Faulty("model", {"/v1/models": status(404)}),),
    "no_model_list_but_named": (Faulty("model", {"/v1/models": status(404)}, flags=("--model", "small")),),
    "other_model": (
        Faulty("model", flags=("--model", "large")),
        Faulty("model", {"/v1/models": body('{"data": []}')}),
    ),
    "other_window": (Faulty("model", flags=("--max-model-len", "512")),),
    "open_without_key": (Faulty("key", flags=("--api-key-env", "SERVICE_KEY")),),
    "thinks_unasked": (Faulty("chat", alter=message(reasoning="Let me see.")),),
    "thinking_in_answer": (
        Faulty("chat", alter=message(content="<think>\n\n</think>\n\nyes")),
        Faulty("thinking", alter=message(content="Let me see.\n</think>\nyes", reasoning=None)),
    ),
    "no_reasoning": (Faulty("thinking", alter=message(reasoning=None)),),
    "no_answer_after_thinking": (Faulty("thinking", alter=message(content=None)),),
    "tools_refused": (
        Faulty(
            "tool_auto",
            {CHAT: when(lambda _, request: "tools" in request, status(400, "--enable-auto-tool-choice"))},
        ),
    ),
    "tool_call_in_text": (
        Faulty("tool_auto", alter=message(content="<tool_call>\n<function=get_weather>", tool_calls=[])),
        Faulty("tool_thinking", alter=message(reasoning="<tool_call>{}", tool_calls=None)),
    ),
    "no_tool_call": (Faulty("tool_auto", alter=message(content="It rains.", tool_calls=[])),),
    "no_required_tool_call": (Faulty("tool_required", alter=message(content="It rains.", tool_calls=[])),),
    "wrong_tool_call": (
        Faulty("tool_auto", alter=message(tool_calls=call(arguments='{"city": "Par'))),
        Faulty("tool_required", alter=message(tool_calls=call(arguments='{"town": "Paris"}'))),
        Faulty("tool_auto", alter=message(tool_calls=call(name="get_wether"))),
        Faulty(
            "tool_streamed",
            alter=chunks(
                lambda parts: [
                    part for part in parts if '"name"' not in str(part) and "get_" not in str(part)
                ]
            ),
        ),
    ),
    "broken_stream": (
        Faulty("stream_completion", alter=chunks(without_finish)),
        Faulty("stream_completion", alter=chunks(lambda parts: ["data: {\n\n", *parts])),
        Faulty("stream_completion", alter=chunks(lambda parts: [*parts, "data: [DONE]\n\n", parts[0]])),
        Faulty("stream_completion", alter=chunks(lambda parts: ["<p>hello</p>\n\n", *parts])),
        Faulty(
            "stream_completion", {COMPLETIONS: when(lambda _, r: "stream" in r, body(WHOLE_STREAM, EVENTS))}
        ),
        Faulty("stream_completion", {COMPLETIONS: when(lambda _, r: "stream" in r, body('{"choices": []}'))}),
        Faulty("stream_chat", alter=chunks(lambda parts: [{"choices": "none"}, *parts])),
    ),
    "error_in_stream": (
        Faulty("stream_chat", alter=chunks(lambda parts: [parts[0], {"error": {"message": "dead"}}])),
    ),
    "no_usage_in_stream": (Faulty("stream_completion", alter=chunks(lambda parts: parts[:-1])),),
    "stream_in_one_piece": (Faulty("stream_completion", alter=chunks(in_one_piece)),),
    "stream_differs": (Faulty("stream_completion", alter=chunks(lambda parts: [*parts[:3], *parts[4:]])),),
    "no_prompt_logprobs": (
        Faulty("echo_logprobs", {COMPLETIONS: when(lambda _, request: "echo" in request, status(400))}),
        Faulty("prompt_logprobs", alter=choices(lambda choice: choice.pop("prompt_logprobs", None))),
    ),
    "wrong_prompt_logprobs": (
        Faulty(
            "echo_logprobs",
            alter=choices(lambda choice: choice.update(logprobs={"token_logprobs": [None, -1]})),
        ),
        Faulty(
            "echo_logprobs",
            alter=choices(lambda one: "logprobs" in one and one["logprobs"]["token_logprobs"].append(None)),
        ),
        Faulty("prompt_logprobs", alter=choices(lambda choice: choice.update(prompt_logprobs=[None, {}]))),
    ),
    "window_refused": (
        Faulty("window", {COMPLETIONS: when(lambda _, r: len(r["prompt"]) > 200, status(413, "too large"))}),
    ),
    "window_cut": (Faulty("window", alter=cut_prompt),),
    "window_not_kept": (Faulty("window", {COMPLETIONS: accept_all}),),
    "unclear_window_error": (Faulty("window", {COMPLETIONS: window_error("no")}),),
    "sampling_fails": (Faulty("temperature", {COMPLETIONS: when(is_sampled, status(500, "device error"))}),),
    "stop_in_text": (Faulty("stop", {COMPLETIONS: lambda _, request: bool(request.update(stop=None))}),),
    "stop_differs": (Faulty("stop", alter=chunks(lambda parts: parts[1:])),),
    "wrong_choices": (
        Faulty("choices", {COMPLETIONS: lambda _, request: bool(request.pop("n", None) and False)}),
    ),
    "seed_differs": (Faulty("choices", {COMPLETIONS: seedless}),),
    "mistake_accepted": (Faulty("malformed_json", {COMPLETIONS: body("{}")}),),
    "mistake_as_server_error": (
        Faulty("window", {COMPLETIONS: when(lambda h, r: len(r["prompt"]) >= h.server.window, status(500))}),
        Faulty("wrong_value", {COMPLETIONS: when(lambda _, r: r.get("max_tokens") == "many", status(500))}),
        Faulty("malformed_json", {COMPLETIONS: when(lambda _, r: "broken" in r, status(500))}),
    ),
    "other_error_status": (Faulty("unknown_model", {COMPLETIONS: status(400)}),),
    "not_deterministic": (Faulty("determinism", {COMPLETIONS: another_text_after(2)}),),
    "not_deterministic_beside_others": (Faulty("determinism", {COMPLETIONS: another_text_after(4)}),),
    "streams_failed": (
        Faulty(
            "concurrency", {COMPLETIONS: when(lambda _, r: str(r["prompt"]).startswith("3."), status(503))}
        ),
    ),
    "dead_after_abort": (Faulty("abort", {COMPLETIONS: dies_after_stream}),),
    "abort_not_seen": (Faulty("abort", {"/metrics": running_for_ever}),),
    "garbage": (
        Faulty("repetition", alter=message(content="!" * 160)),
        Faulty("repetition", alter=message(content="\ufffd" * 9 + "It is so. " * 4 + "\ufffd")),
    ),
    "loop": (Faulty("repetition", alter=message(content="First. " + "It is a day of the week. " * 8)),),
    "no_draft_accepted": (Faulty("drafts", {"/metrics": rejected_drafts}),),
    "sick_after_checks": (Faulty("still_ready", {"/health": sick_later}),),
}
"""Services by the symptom that they show. Those without a service to ask are tested by themselves."""
