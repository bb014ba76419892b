"""Errors of request bodies in our own words, with the field first."""

from __future__ import annotations

import pytest

from qanat.core.errors import InvalidRequestError
from qanat.server.decoding import decode_request
from qanat.server.fields import CHAT_REFUSALS, COMPLETION_REFUSALS
from qanat.server.requests import ChatRequest, CompletionRequest


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b'{"prompt": "x", "n": 1.5}', "n: expected integer or null, got number.", "n"),
        (b'{"prompt": "x", "stop": [1]}', "stop[0]: expected string, got integer.", "stop[0]"),
        (b'{"prompt": "x", "stream": 1}', "stream: expected boolean, got integer.", "stream"),
        (b'{"prompt": {}}', "prompt: expected string or array, got object.", "prompt"),
        (b"{}", "prompt is required.", "prompt"),
        (
            b'{"prompt": "x", "stream_options": {"a": 1}}',
            "Unknown field stream_options.a.",
            "stream_options.a",
        ),
        (b'{"prompt": "x", "top_kk": 1}', "Unknown field top_kk. Did you mean top_k?", "top_kk"),
        (b"[]", "The body must be a JSON object.", None),
    ],
)
def test_messages_name_field_and_types(body: bytes, message: str, param: str | None) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_request(body, CompletionRequest, COMPLETION_REFUSALS)
    assert (caught.value.message, caught.value.param) == (message, param)


def test_keys_of_logit_bias_are_token_ids() -> None:
    request = decode_request(
        b'{"messages": [], "logit_bias": {"5": -1, "7": 2.5}}', ChatRequest, CHAT_REFUSALS
    )
    assert request.logit_bias == {5: -1.0, 7: 2.5}


def test_every_sampling_field_of_the_engine_can_be_set_by_a_request() -> None:
    """A field that is added to SamplingParams must be offered, or be named here as internal."""
    from qanat.core.sampling_params import SamplingParams

    internal = {"bad_words_token_ids", "detokenize"}
    offered = set(CompletionRequest.__struct_fields__)
    assert set(SamplingParams.__struct_fields__) - internal <= offered


def test_settings_of_the_request_go_before_defaults_also_when_neutral() -> None:
    body = b'{"prompt": "x", "temperature": 1, "top_k": 0, "stop": "end"}'
    request = decode_request(body, CompletionRequest, COMPLETION_REFUSALS)
    sampling = request.sampling({"temperature": 0.6, "top_k": 20, "top_p": 0.9})
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.stop) == (1.0, 0, 0.9, ["end"])
