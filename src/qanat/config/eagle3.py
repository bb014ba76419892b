"""What an EAGLE-3 draft model is: the `config.json` of its folder, in either layout, held against the model's.

Two layouts are read. SpecForge and AngelSlim write a flat file, whose `eagle_config` lists layers whose *output* is
read. Files of the speculators library have the layer under `transformer_layer_config`, and list layers by
what *enters* them. Without a list, both mean the rows that enter layers 2, L // 2 and L - 3 of L.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qanat.config.json_section import JsonSection, read_json
from qanat.config.model_config import FULL_ATTENTION, ModelConfig
from qanat.config.model_parts import parse_rope
from qanat.core.errors import CheckpointError

NUM_TAPS = 3
_TAPS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Eagle3Config:
    """One draft model's shape.

    Attributes:
        folder: of its checkpoint.
        layer: its one layer: width, heads, rotary embedding; `vocab_size` is the target's.
        target_hidden_size: width of the rows that it reads.
        draft_vocab_size: tokens that it can guess; fewer than the vocabulary where it has a reduced one.
        tapped_layers: layers of the target whose input rows it reads, low to high.
        has_head_norms: queries and keys pass norms, as in Qwen3; not so in the usual Llama layer.
        norm_before_residual: attention is added to the normed row, not to the row itself.
        norm_before_fc: the three rows pass one norm before they are joined.
        norm_output: a further guess reads the normed row of the last one, not the row itself.
    """

    folder: str
    layer: ModelConfig
    target_hidden_size: int
    draft_vocab_size: int
    tapped_layers: tuple[int, ...]
    has_head_norms: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    norm_output: bool = False

    @property
    def is_reduced(self) -> bool:
        """True if some tokens of the vocabulary are never guessed."""
        return self.draft_vocab_size < self.layer.vocab_size


def read_eagle3(folder: Path, target: ModelConfig) -> Eagle3Config:
    """Reads a draft model's config.

    Args:
        folder: of its checkpoint.
        target: the model that it is to draft for.

    Raises:
        CheckpointError: no such folder, no EAGLE-3 draft, made for another model, or quantised.
    """
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is not a folder; a draft model is a folder with config.json and *.safetensors"
        )
    top = JsonSection(read_json(folder / "config.json"), f"{folder}/config.json")
    own = top.section("transformer_layer_config")
    layer = own or top
    _check_kind(top, layer, is_flat=own is None)
    hidden_size = layer.integer("hidden_size")
    config = Eagle3Config(
        folder=str(folder),
        layer=_layer(top, layer, hidden_size),
        target_hidden_size=top.integer("target_hidden_size", hidden_size),
        draft_vocab_size=top.integer("draft_vocab_size", layer.integer("vocab_size")),
        tapped_layers=_tapped_layers(top, target, is_flat=own is None),
        has_head_norms=str(layer.get("model_type", "llama")).startswith("qwen3"),
        norm_before_residual=top.boolean("norm_before_residual", False),
        norm_before_fc=top.boolean("norm_before_fc", False),
        # SpecForge's flat files mean the norm before the head by this name, which there always is.
        norm_output=own is not None and top.boolean("norm_output", False),
    )
    _check_target(config, target)
    return config


def is_eagle3(folder: Path) -> bool:
    """True for the folder of an EAGLE-3 draft, whatever else may be wrong with it."""
    try:
        return _says_eagle3(JsonSection(read_json(folder / "config.json"), str(folder)))
    except CheckpointError:
        return False


def _says_eagle3(top: JsonSection) -> bool:
    kind = str(top.get("speculators_model_type", ""))
    return kind.startswith("eagle3") or "eagle3" in str(top.get("architectures", "")).lower()


def _check_kind(top: JsonSection, layer: JsonSection, *, is_flat: bool) -> None:
    """Refuses what is no EAGLE-3 draft, and variants whose mathematics is another."""
    if not _says_eagle3(top):
        names = top.get("architectures", [])
        raise CheckpointError(
            f"{top.where} describes no EAGLE-3 draft (architectures {names!r}): give the folder of one, such as "
            "SpecForge, AngelSlim or the speculators library write"
        )
    if layer.integer("num_hidden_layers", 1) != 1:
        raise CheckpointError(f"{layer.where}: drafts of num_hidden_layers 1 are supported, no others")
    if layer.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"{layer.where}: hidden_act {layer.get('hidden_act')!r} is not supported")
    for key in ("attention_bias", "mlp_bias", "use_sliding_window"):
        if layer.boolean(key, False):
            raise CheckpointError(f"{layer.where}: {key} true is not supported")
    if top.boolean("fc_norm", False):
        raise CheckpointError(f"{top.where}: fc_norm true is not supported")
    if is_flat and not top.boolean("norm_output", True):
        raise CheckpointError(f"{top.where}: norm_output false is not supported: a head reads normed rows")
    if top.section("quantization_config") is not None or layer.section("quantization_config") is not None:
        raise CheckpointError(f"{top.where}: quantised draft models are not read; take an unquantised one")


def _layer(top: JsonSection, layer: JsonSection, hidden_size: int) -> ModelConfig:
    heads = layer.integer("num_attention_heads")
    kv_heads = layer.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise CheckpointError(
            f"{layer.where}: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
        )
    head_dim = layer.integer("head_dim", hidden_size // heads)
    names = top.get("architectures")
    return ModelConfig(
        architecture=f"EAGLE-3 draft {names}" if names else "EAGLE-3 draft",
        model_family="eagle3",
        vocab_size=layer.integer("vocab_size"),
        hidden_size=hidden_size,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=layer.integer("intermediate_size"),
        layer_types=(FULL_ATTENTION,),
        rms_norm_eps=layer.number("rms_norm_eps", 1e-6),
        tie_word_embeddings=False,
        attention_output_gate=False,
        rope=parse_rope(layer, head_dim, 1.0),
        max_position_embeddings=layer.integer("max_position_embeddings", 1),
        moe=None,
        gdn=None,
        num_mtp_layers=0,
        dtype="bfloat16",
        eos_token_ids=(),
        quantization_config=None,
        has_vision=False,
    )


def _tapped_layers(top: JsonSection, target: ModelConfig, *, is_flat: bool) -> tuple[int, ...]:
    num_layers = target.num_hidden_layers
    outputs = (top.section("eagle_config") if is_flat else None) or JsonSection({}, top.where)
    section = outputs if outputs.integers(_TAPS) else top
    listed = section.integers(_TAPS)
    if not listed:
        if num_layers < NUM_TAPS:
            raise CheckpointError(
                f"EAGLE-3 drafts for {NUM_TAPS} layers or more; this model has {num_layers}"
            )
        return 2, num_layers // 2, num_layers - NUM_TAPS
    if len(listed) != NUM_TAPS:
        raise CheckpointError(f"{section.where}: {_TAPS} must list {NUM_TAPS} layers, not {list(listed)}")
    entered = tuple(index + 1 for index in listed) if section is outputs else listed
    if not all(0 <= index <= num_layers for index in entered):
        raise CheckpointError(
            f"{section.where}: {_TAPS} {list(listed)} names a layer that {target.architecture} with its "
            f"{num_layers} layers does not have: the draft was made for another model"
        )
    return entered


def _check_target(config: Eagle3Config, target: ModelConfig) -> None:
    """Refuses a draft that was made for another model."""
    pairs = (
        ("hidden size", config.target_hidden_size, target.hidden_size),
        ("vocabulary", config.layer.vocab_size, target.vocab_size),
    )
    for what, own, wanted in pairs:
        if own != wanted:
            raise CheckpointError(
                f"the draft model {config.folder} was made for a model with {what} {own}, and {what} of "
                f"{target.architecture} is {wanted}: name the draft of this very model in --speculative-config"
            )
    if config.draft_vocab_size > target.vocab_size:
        raise CheckpointError(
            f"{config.folder}/config.json: draft_vocab_size {config.draft_vocab_size} is above the vocabulary of "
            f"{target.vocab_size}"
        )
