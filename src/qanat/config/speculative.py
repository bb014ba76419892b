"""`--speculative-config`: who drafts tokens, how many, and whether their number follows what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qanat.config.eagle3 import Eagle3Config, is_eagle3, read_eagle3
from qanat.config.known_flags import check_json_keys, did_you_mean
from qanat.config.model_config import ModelConfig
from qanat.config.values import Kind, read_value
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

FLAG = "--speculative-config"
NGRAM, MTP, EAGLE3 = "ngram", "mtp", "eagle3"
METHODS: Mapping[str, str] = {
    NGRAM: NGRAM,
    MTP: MTP,
    "qwen3_5_mtp": MTP,
    "qwen3_next_mtp": MTP,
    EAGLE3: EAGLE3,
}
"""vLLM's names of what is offered, and ours."""

OTHER_METHODS = ("deepseek_mtp", "draft_model", "eagle", "medusa", "mlp_speculator", "ngram_gpu", "suffix")
"""Names that vLLM knows and that this version does not draft with."""

MAX_DRAFT_TOKENS = 16
MAX_LOOKUP = 64
DEFAULT_LOOKUP = 3

_OWN_KEYS = ("adaptive",)
_USED_KEYS = ("method", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max", "enforce_eager")
_EAGLE3_KEYS = ("model", "draft_tensor_parallel_size")
_WITHOUT_EFFECT = (
    "drafts are verified by equality with the token that plain decoding draws: there is nothing to set"
)


@dataclass(frozen=True)
class SpeculativeSettings:
    """How drafts are made; without a method there are none.

    Attributes:
        method: "ngram", "mtp", "eagle3", or "" for no speculation.
        num_tokens: most drafts of one request in one step.
        is_adaptive: fewer, down to none, where measurements say that they do not pay.
        prompt_lookup_min, prompt_lookup_max: tokens of the shortest and longest ending that "ngram" looks for.
        is_eager: drafts are made without graphs.
        eagle3: the draft model of "eagle3".
    """

    method: str = ""
    num_tokens: int = 0
    is_adaptive: bool = True
    prompt_lookup_min: int = DEFAULT_LOOKUP
    prompt_lookup_max: int = DEFAULT_LOOKUP
    is_eager: bool = False
    eagle3: Eagle3Config | None = None

    def as_flag(self) -> dict[str, object] | None:
        """The flag's value that says all of it; None without speculation."""
        if not self.method:
            return None
        return {
            "method": self.method,
            **({"model": self.eagle3.folder} if self.eagle3 is not None else {}),
            "num_speculative_tokens": self.num_tokens,
            "adaptive": self.is_adaptive,
            "prompt_lookup_min": self.prompt_lookup_min,
            "prompt_lookup_max": self.prompt_lookup_max,
            "enforce_eager": self.is_eager,
        }


def speculative_settings(
    value: Mapping[str, object] | None, model: ModelConfig, num_ranks: int, said: list[Decision]
) -> SpeculativeSettings:
    """Reads the flag's value.

    Args:
        value: the flag's JSON.
        model: the checkpoint's shape.
        num_ranks: that share the model.
        said: takes decisions on what has no effect or comes out otherwise.

    Raises:
        ConfigError: a method that nobody knows, or a value that cannot be used.
    """
    if value is None:
        return SpeculativeSettings()
    misnamed = check_json_keys(FLAG[2:], {key: one for key, one in value.items() if key not in _OWN_KEYS})
    said += misnamed
    method = _method(value, said)
    if method == MTP and not model.num_mtp_layers:
        why = f"{model.architecture} brings no multi-token-prediction layer (mtp_num_hidden_layers in config.json)"
        said.append(Decision(FLAG, dict(value), "no speculation", why))
        return SpeculativeSettings()
    used = (*_OWN_KEYS, *_USED_KEYS, *(_EAGLE3_KEYS if method == EAGLE3 else ()))
    if method == EAGLE3:
        _check_draft_ranks(value, num_ranks, said)
    if not method:
        return SpeculativeSettings()
    ignored = {decision.field for decision in misnamed}
    for key, one in value.items():
        if key not in used and f"{FLAG}.{key}" not in ignored and one is not None:
            said.append(Decision(f"{FLAG}.{key}", one, "no effect", _WITHOUT_EFFECT))
    shortest, longest = _lookup(value)
    return SpeculativeSettings(
        method=method,
        num_tokens=_count(value, "num_speculative_tokens", MAX_DRAFT_TOKENS),
        is_adaptive=_switch(value, "adaptive", default=True),
        prompt_lookup_min=shortest,
        prompt_lookup_max=longest,
        is_eager=_switch(value, "enforce_eager", default=False),
        eagle3=_eagle3(value, model, said) if method == EAGLE3 else None,
    )


def _method(value: Mapping[str, object], said: list[Decision]) -> str:
    """Ours; empty where this version does not draft so, which is said."""
    name = value.get("method")
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    draft = value.get("model")
    if name in (None, "eagle") and isinstance(draft, str) and is_eagle3(Path(draft).expanduser()):
        said.append(Decision(f"{FLAG}.method", name, EAGLE3, "the draft model's config.json says so"))
        return EAGLE3
    if name is None or name in OTHER_METHODS:
        why = "no method is named" if name is None else f"{name} is not yet in this version"
        why += ": every token is computed by the model itself. Drafts come from " + ", ".join(METHODS)
        said.append(Decision(FLAG, dict(value), "no speculation", why))
        return ""
    hint = did_you_mean(str(name), [*METHODS, *OTHER_METHODS]) or "; choose one of " + ", ".join(METHODS)
    raise ConfigError(f"{FLAG}: method {name!r} is unknown{hint.removesuffix('?')}.", param=FLAG)


def _check_draft_ranks(value: Mapping[str, object], num_ranks: int, said: list[Decision]) -> None:
    key = "draft_tensor_parallel_size"
    if value.get(key) is None:
        return
    size = read_value(Kind.COUNT, value[key], f"{FLAG}.{key}")
    if size not in (1, num_ranks):
        sizes = " or ".join(map(str, sorted({1, num_ranks})))
        why = f"give {sizes}" + (
            ", as --tensor-parallel-size is" if num_ranks > 1 else ": the model has one rank"
        )
        raise ConfigError(f"{FLAG}.{key}: {size} ranks cannot share the draft model; {why}.", param=FLAG)
    if size > 1:
        why = "each rank has the whole draft model: it is small, and exchanges would cost more than they save"
        said.append(Decision(f"{FLAG}.{key}", size, 1, why))


def _eagle3(value: Mapping[str, object], model: ModelConfig, said: list[Decision]) -> Eagle3Config:
    """The draft model, and what is to be known about it.

    Raises:
        ConfigError: none is named, or there is no such folder.
        CheckpointError: it is no draft of this model.
    """
    name = value.get("model")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{FLAG}: {EAGLE3} needs model, the folder of the draft model.", param=FLAG)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        why = (
            "there is no such folder; download the draft model and name the folder that holds its config.json"
        )
        raise ConfigError(f"{FLAG}.model {name}: {why}.", param=FLAG)
    config = read_eagle3(folder, model)
    guessed = f"{config.draft_vocab_size:,} of " if config.is_reduced else "all "
    layers = ", ".join(map(str, config.tapped_layers))
    what = f"{guessed}{model.vocab_size:,} tokens can be guessed; layers {layers}"
    said.append(
        Decision(f"{FLAG}.model", name, what, "its config.json has it so; what enters these layers is read")
    )
    return config


def _lookup(value: Mapping[str, object]) -> tuple[int, int]:
    """Shortest and longest ending; one of the two stands for both."""
    keys = ("prompt_lookup_min", "prompt_lookup_max")
    given = [_count(value, key, MAX_LOOKUP) if value.get(key) is not None else None for key in keys]
    shortest = given[0] or given[1] or DEFAULT_LOOKUP
    longest = given[1] or shortest
    if shortest > longest:
        raise ConfigError(
            f"{FLAG}: prompt_lookup_min {shortest} is above prompt_lookup_max {longest}.", param=FLAG
        )
    return shortest, longest


def _count(value: Mapping[str, object], key: str, most: int) -> int:
    where = f"{FLAG}.{key}"
    if value.get(key) is None:
        raise ConfigError(f"{FLAG} needs {key}, a whole number from 1 to {most}.", param=FLAG)
    count = read_value(Kind.COUNT, value[key], where)
    assert isinstance(count, int)
    if not 1 <= count <= most:
        raise ConfigError(f"{where}: {count} is not between 1 and {most}.", param=FLAG)
    return count


def _switch(value: Mapping[str, object], key: str, *, default: bool) -> bool:
    one = value.get(key)
    return default if one is None else bool(read_value(Kind.SWITCH, one, f"{FLAG}.{key}"))
