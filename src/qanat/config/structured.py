"""What --structured-outputs-config means: which grammar library is used, and how much a form may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from qanat.config.known_flags import check_json_keys, did_you_mean
from qanat.config.values import Kind, read_value
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

FLAG = "--structured-outputs-config"
OLD_FLAG = "--guided-decoding-backend"
BACKENDS = ("guidance", "xgrammar")
"""The first is the default."""
_OTHER_BACKENDS = ("outlines", "lm-format-enforcer")
_MIB = 2**20

_LIMITS: Mapping[str, tuple[Kind, float, float]] = {
    "compile_timeout_s": (Kind.NUMBER, 5.0, 0.1),
    "max_form_bytes": (Kind.BYTES, _MIB, 64),
    "max_grammar_bytes": (Kind.BYTES, 2 * _MIB, 64),
    "max_compile_memory_bytes": (Kind.BYTES, 256 * _MIB, 32 * _MIB),
}
"""Kind, default and least value of each limit; they are ours."""
_SWITCHES = ("disable_any_whitespace", "disable_additional_properties", "enable_in_reasoning")
_WITHOUT_EFFECT: Mapping[str, str] = {
    "disable_fallback": "there is never a fallback: what the backend does not support is refused",
    "reasoning_parser": "--reasoning-parser says it",
    "reasoning_parser_plugin": "thinking is told by the tags in the model's own vocabulary",
}


@dataclass(frozen=True)
class StructuredSettings:
    """How forms of outputs are compiled.

    Attributes:
        backend: one of BACKENDS.
        is_compact: no whitespace between the parts of any JSON text.
        is_closed: JSON objects have only the properties that their schema names.
        is_in_reasoning: the form begins with the output, thoughts included.
        compile_timeout_s: seconds after which compiling one form is given up.
        max_form_bytes: size of a form as the request writes it.
        max_grammar_bytes: size of the grammar that becomes of a form.
        max_compile_memory_bytes: memory that compiling one form may take.
    """

    backend: str = BACKENDS[0]
    is_compact: bool = False
    is_closed: bool = False
    is_in_reasoning: bool = False
    compile_timeout_s: float = _LIMITS["compile_timeout_s"][1]
    max_form_bytes: int = int(_LIMITS["max_form_bytes"][1])
    max_grammar_bytes: int = int(_LIMITS["max_grammar_bytes"][1])
    max_compile_memory_bytes: int = int(_LIMITS["max_compile_memory_bytes"][1])

    def as_flag(self) -> dict[str, object]:
        """The flag's value that says all of it."""
        return {
            "backend": self.backend,
            "compile_timeout_s": self.compile_timeout_s,
            "max_form_bytes": self.max_form_bytes,
            "max_grammar_bytes": self.max_grammar_bytes,
            "max_compile_memory_bytes": self.max_compile_memory_bytes,
            "disable_any_whitespace": self.is_compact,
            "disable_additional_properties": self.is_closed,
            "enable_in_reasoning": self.is_in_reasoning,
        }


def structured_settings(
    value: Mapping[str, object] | None, old_backend: str | None, said: list[Decision]
) -> StructuredSettings:
    """Reads the flag's value.

    Args:
        value: the flag's JSON.
        old_backend: value of the older flag for the backend.
        said: takes decisions on what has no effect or comes out otherwise.

    Raises:
        ConfigError: a backend that is not there, or a value that cannot be used.
    """
    value = value or {}
    said += check_json_keys(FLAG[2:], {key: inner for key, inner in value.items() if key not in _LIMITS})
    said += [
        Decision(f"{FLAG}.{key}", value[key], "no effect", why)
        for key, why in _WITHOUT_EFFECT.items()
        if value.get(key)
    ]
    if old_backend is not None and value.get("backend") not in (None, old_backend):
        raise ConfigError(
            f"{OLD_FLAG} {old_backend} contradicts {FLAG}.backend {value['backend']}; give one.",
            param=OLD_FLAG,
        )
    switches = {key: _switch(key, value.get(key)) for key in _SWITCHES}
    limits = {key: _limit(key, value.get(key)) for key in _LIMITS}
    return StructuredSettings(
        backend=_backend(value.get("backend") or old_backend, said),
        is_compact=switches["disable_any_whitespace"],
        is_closed=switches["disable_additional_properties"],
        is_in_reasoning=switches["enable_in_reasoning"],
        compile_timeout_s=limits["compile_timeout_s"],
        max_form_bytes=int(limits["max_form_bytes"]),
        max_grammar_bytes=int(limits["max_grammar_bytes"]),
        max_compile_memory_bytes=int(limits["max_compile_memory_bytes"]),
    )


def _backend(wanted: object, said: list[Decision]) -> str:
    if wanted is None or wanted == "auto":
        return BACKENDS[0]
    name = str(wanted)
    if name in _OTHER_BACKENDS:
        why = "not offered here; forms mean the same with this backend"
        said.append(Decision(f"{FLAG}.backend", name, BACKENDS[0], why))
        return BACKENDS[0]
    if name not in BACKENDS:
        hint = did_you_mean(name, BACKENDS)
        raise ConfigError(
            f"{FLAG}.backend: {name} is unknown{hint or '; choose ' + ' or '.join(BACKENDS) + '.'}",
            param=FLAG,
        )
    if name == "xgrammar" and find_spec("xgrammar") is None:
        raise ConfigError(
            f"{FLAG}.backend xgrammar needs a library that is not installed: pip install 'qanat[xgrammar]', or leave "
            f"the backend at {BACKENDS[0]}.",
            param=FLAG,
        )
    return name


def _switch(key: str, value: object) -> bool:
    return False if value is None else bool(read_value(Kind.SWITCH, value, f"{FLAG}.{key}"))


def _limit(key: str, value: object) -> float:
    kind, default, least = _LIMITS[key]
    where = f"{FLAG}.{key}"
    read = default if value is None else read_value(kind, value, where)
    assert isinstance(read, int | float)
    if read < least:
        raise ConfigError(f"{where}: {value} is too small; the least is {least:g}.", param=FLAG)
    return read
