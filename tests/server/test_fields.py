"""Every field that a known client may send is served, accepted as meaningless, or refused with a reason."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from openai.resources.chat.completions import Completions as ChatResource
from openai.resources.completions import Completions as CompletionResource

from qanat.server.fields import CHAT_REFUSALS, COMPLETION_REFUSALS, IGNORED_FIELDS, RefusedField
from qanat.server.requests import ChatRequest, CompletionRequest
from tests.server.test_errors import CHAT, COMPLETIONS, HI, refuse
from tests.support.app_server import AppServer

TRANSPORT = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
VLLM_SAMPLING = """n temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty length_penalty
    use_beam_search logit_bias allowed_token_ids bad_words stop stop_token_ids include_stop_str_in_output ignore_eos
    min_tokens max_tokens seed logprobs prompt_logprobs skip_special_tokens spaces_between_special_tokens
    truncate_prompt_tokens truncation_side logits_processors logprob_token_ids repetition_detection vllm_xargs"""
VLLM_SHARED = """model stream stream_options user priority request_id cache_salt kv_transfer_params return_token_ids
    return_tokens_as_token_ids return_token_offsets return_prompt_text stream_interval session_id response_format
    structured_outputs structural_tag guided_json guided_regex guided_choice guided_grammar
    guided_decoding_backend guided_whitespace_pattern add_special_tokens echo"""
VLLM_CHAT = """messages max_completion_tokens top_logprobs tools tool_choice parallel_tool_calls reasoning_effort
    include_reasoning thinking_token_budget add_generation_prompt continue_final_message documents chat_template
    chat_template_kwargs mm_processor_kwargs media_io_kwargs"""
VLLM_COMPLETION = "prompt suffix best_of prompt_embeds"


def unknown(names: set[str], kind: type[msgspec.Struct], refusals: Mapping[str, RefusedField]) -> set[str]:
    return names - set(kind.__struct_fields__) - set(refusals) - IGNORED_FIELDS


@pytest.mark.parametrize(
    ("resource", "kind", "refusals"),
    [
        (ChatResource, ChatRequest, CHAT_REFUSALS),
        (CompletionResource, CompletionRequest, COMPLETION_REFUSALS),
    ],
)
def test_every_parameter_of_the_official_client_is_known(
    resource: Any, kind: type[msgspec.Struct], refusals: Mapping[str, RefusedField]
) -> None:
    names = set(inspect.signature(resource.create).parameters) - TRANSPORT
    assert len(names) > 10
    assert unknown(names, kind, refusals) == set()


def test_every_field_of_vllm_is_known() -> None:
    shared = {*VLLM_SAMPLING.split(), *VLLM_SHARED.split()}
    assert unknown(shared | set(VLLM_CHAT.split()), ChatRequest, CHAT_REFUSALS) == set()
    assert unknown(shared | set(VLLM_COMPLETION.split()), CompletionRequest, COMPLETION_REFUSALS) == set()


def test_no_field_is_both_served_and_refused() -> None:
    for kind, refusals in ((ChatRequest, CHAT_REFUSALS), (CompletionRequest, COMPLETION_REFUSALS)):
        assert not set(kind.__struct_fields__) & (set(refusals) | IGNORED_FIELDS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("regex", "a+"),
        ("json_schema", {}),
        ("return_prompt_text", True),
        ("stream_interval", 5),
        ("truncation_side", "left"),
    ],
)
def test_words_of_other_servers_are_refused_with_what_to_use(
    server: AppServer, field: str, value: Any
) -> None:
    for path, base in ((CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "x"})):
        error = refuse(server.post(path, {**base, field: value}), param=field)
        assert error["message"].startswith(f"{field} is not supported: ")


@pytest.mark.parametrize("key", ["function_call", "audio", "prefix", "partial"])
def test_keys_of_messages_that_no_template_reads_are_refused(server: AppServer, key: str) -> None:
    server.say(["</think>", "x"])
    messages = [*HI, {"role": "assistant", "content": "a", key: True}]
    refuse(server.post(CHAT, {"messages": messages}), param=f"messages[1].{key}")
    messages = [*HI, {"role": "assistant", "content": "a", key: None}, *HI]
    assert server.post(CHAT, {"messages": messages}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            CHAT,
            {"messages": [{"role": "user", "content": "x" * 900}], "prompt_logprobs": 20, "n": 9},
            "prompt_logprobs",
        ),
        (COMPLETIONS, {"prompt": "x" * 2000, "prompt_logprobs": 20, "n": 3}, "prompt_logprobs"),
        (COMPLETIONS, {"prompt": ["x" * 2000] * 60, "echo": True, "logprobs": 0}, "logprobs"),
    ],
    ids=["chat", "one prompt", "prompts"],
)
def test_more_scores_than_one_answer_holds_are_refused(
    server: AppServer, path: str, body: dict[str, Any], param: str
) -> None:
    refuse(server.post(path, {**body, "max_tokens": 1}), param=param)
