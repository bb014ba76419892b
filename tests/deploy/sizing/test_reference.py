"""Every figure of the reference beside the project, where that is present."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from qanat.deploy.sizing.cache_layout import CacheLayout
from qanat.deploy.sizing.communicators import mc2_need_mib
from qanat.deploy.sizing.parameters import parameters_of
from qanat.deploy.sizing.weights import total_weight_bytes
from tests.deploy.sizing.cases import (
    CHIPS,
    KNOWLEDGE,
    MODELS,
    all_parameters,
    example,
    filled_state_bytes,
    sequence_bytes,
    state_bytes,
    token_bytes,
)

_FOLDER = Path(__file__).parents[4] / "shared" / "reference"
pytestmark = pytest.mark.skipif(not _FOLDER.is_dir(), reason="the reference is not beside the checkout")

_CACHE_FIELDS = {
    "block": "block_tokens",
    "attn_layers": "num_attention_layers",
    "group_size": "group_size",
    "groups_attn": "num_attention_groups",
    "groups_mamba": "num_state_groups",
    "page_bytes": "page_bytes",
    "pool_block_bytes": "pool_block_bytes",
    "kv_heads_per_rank": "num_kv_heads",
}
_SUMS = {
    "kv_bytes_per_token_per_rank": token_bytes,
    "state_bytes_per_seq": state_bytes,
    "raw_state_bytes_per_seq": filled_state_bytes,
}
_PARAMETERS = {
    "routed_experts": "routed_experts",
    "shared_experts": "shared_experts",
    "router": "router",
    "dense_mlp": "dense_mlp",
    "gdn": "linear_attention",
    "attention": "attention",
    "embed_and_head": "embeddings",
    "mtp": "mtp",
}


def reference() -> Any:
    return json.loads((_FOLDER / "vllm_ascend" / "hbm_model.json").read_text(encoding="utf-8"))


def test_parameters_of_every_model() -> None:
    for name, figures in reference()["models"].items():
        counts = parameters_of(MODELS[name])
        for theirs, ours in _PARAMETERS.items():
            assert getattr(counts, ours) == figures["params"][theirs], (name, theirs)
        assert all_parameters(counts) == figures["params"]["total_main"], name
        for variant, key in (("bf16", "bf16_gb"), ("w8a8", "int8_linear_gb_est")):
            assert round(total_weight_bytes(MODELS[name], variant) / 1e9, 1) == figures[key], (name, variant)
        four = total_weight_bytes(MODELS[name], "w4a8") / 1e9
        assert four == pytest.approx(figures["int4_expert_gb_est"], rel=0.02), name


def test_cache_of_every_model_size_and_number_of_tokens() -> None:
    num_compared = 0
    for name, figures in reference()["models"].items():
        for tp, by_k in figures["per_tp"].items():
            cases = {0: by_k} if "block" in by_k else {int(key[1:]): one for key, one in by_k.items()}
            for k, case in cases.items():
                cache = CacheLayout(model=MODELS[name], tp=int(tp), num_speculative_tokens=k)
                for theirs, ours in _CACHE_FIELDS.items():
                    if theirs in case:
                        assert getattr(cache, ours) == case[theirs], (name, tp, k, theirs)
                for theirs, total in _SUMS.items():
                    if theirs in case:
                        assert total(cache) == case[theirs], (name, tp, k, theirs)
                if "ctx128k_bytes_per_seq" in case:
                    assert sequence_bytes(cache, 131072) == case["ctx128k_bytes_per_seq"], (name, tp, k)
                num_compared += 1
    assert num_compared == 125


def test_examples_of_what_fits_and_of_exchange_buffers() -> None:
    budget = reference()["budget"]
    for text, gigabytes in budget["fit_examples_GB_per_rank"].items():
        size = re.match(r"(?:Qwen3-)?(\d+)B", text)
        assert size is not None
        (name,) = [one for one in reference()["models"] if f"-{size[1]}B" in one and "3.6" not in one]
        variant = next(one for one in ("w8a8", "w4a8", "BF16") if one in text)
        tp = re.search(r"TP(\d+)", text)
        assert tp is not None
        share = total_weight_bytes(MODELS[name], variant) / int(tp[1]) / 1e9
        assert round(share, 1) == gigabytes, text
    for text, need in budget["mc2_need_examples_MiB"].items():
        name, tp_text, largest = re.fullmatch(r"(\S+) TP(\d+)=EP\d+ capture(\d+)", text).groups()  # type: ignore[union-attr]
        layout = example(model=MODELS[name], tp=int(tp_text), capture_sizes=(int(largest),))
        assert round(mc2_need_mib(layout)) == need, text


def test_sizes_of_every_config() -> None:
    num_compared = 0
    for path in sorted((_FOLDER / "configs").glob("*.json")):
        name = path.name.split(".json")[0].removesuffix(".reconstructed")
        if name not in MODELS:
            continue
        config = json.loads(path.read_text(encoding="utf-8"))
        text, vision = config.get("text_config", config), config.get("vision_config", {})
        model = MODELS[name]
        expected = {
            "num_layers": text["num_hidden_layers"],
            "hidden_size": text["hidden_size"],
            "num_query_heads": text["num_attention_heads"],
            "num_kv_heads": text["num_key_value_heads"],
            "head_dim": text["head_dim"],
            "vocab_size": text["vocab_size"],
            "max_position": text["max_position_embeddings"],
            "intermediate_size": 0 if text.get("num_experts") else text["intermediate_size"],
            "expert_intermediate_size": text.get("moe_intermediate_size", 0),
            "shared_intermediate_size": text.get("shared_expert_intermediate_size", 0),
            "num_experts": text.get("num_experts", 0),
            "num_experts_per_token": text.get("num_experts_per_tok", 0),
            "has_tied_embeddings": text.get("tie_word_embeddings", config.get("tie_word_embeddings", False)),
            "linear_conv_kernel": text.get("linear_conv_kernel_dim", 0),
            "num_linear_key_heads": text.get("linear_num_key_heads", 0),
            "num_linear_value_heads": text.get("linear_num_value_heads", 0),
            "full_attention_interval": text.get("full_attention_interval", 0),
            "num_mtp_layers": text.get("mtp_num_hidden_layers", 0),
            "vision_layers": vision.get("depth", 0),
            "vision_hidden_size": vision.get("hidden_size", 0),
            "vision_intermediate_size": vision.get("intermediate_size", 0),
        }
        for field, value in expected.items():
            assert getattr(model, field) == value, (name, field)
        num_compared += 1
    assert num_compared >= 15


def test_published_weights_are_those_of_the_reference() -> None:
    file = _FOLDER / "vllm_ascend" / "hardware_images_models.yaml"
    known = {(one.model, one.variant): one for one in KNOWLEDGE.weights}
    for model, facts in yaml.safe_load(file.read_text(encoding="utf-8"))["weights"].items():
        for variant, entry in facts.get("variants", {}).items() if "variants" in facts else ():
            ours = known[model, variant.lower()]
            if "repo" in entry:
                assert entry["repo"].split()[0] == ours.repository
            if "gb_est" in entry:
                with_vision = MODELS[model].has_vision
                size = total_weight_bytes(MODELS[model], variant, True, with_vision) / 1e9
                assert size == pytest.approx(entry["gb_est"], rel=0.05), (model, variant)
            for chip, nodes in entry.get("doc_nodes", {}).items():
                assert chip in CHIPS
                if isinstance(nodes, int):
                    assert ours.nodes[chip] == nodes
