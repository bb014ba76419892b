"""Variables of vLLM that stand for a flag here: they fill wishes that were left open."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qanat.config.engine_config import OPTIONS, EngineConfig
from qanat.config.env import Environment
from qanat.config.known_flags import HIDDEN
from qanat.config.values import Kind, read_text
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

GIB = 2**30


@dataclass(frozen=True)
class StandIn:
    """A variable that stands for a flag.

    Attributes:
        variable: its name.
        field: the wish that it fills.
        read: its text as the field's value; None if it says nothing.
        why: added to the decision.
    """

    variable: str
    field: str
    read: Callable[[str, str], Any]
    why: str


def _gibibytes(text: str, where: str) -> int | None:
    return _whole(text, where) * GIB or None


def _whole(text: str, where: str) -> int:
    value = read_text(Kind.COUNT, [text], where)
    assert isinstance(value, int)
    return value


def _seconds(text: str, where: str) -> float:
    value = read_text(Kind.NUMBER, [text], where)
    assert isinstance(value, float)
    return value


def _threads(text: str, where: str) -> int:
    """OpenMP takes a list with a number for each level of nesting; the first counts here."""
    return _whole(text.split(",")[0], where)


def _key(text: str, where: str) -> tuple[str, ...]:
    return (text,)


def _level(text: str, where: str) -> str:
    return "warning" if text.lower() == "warn" else text.lower()


STAND_INS = (
    StandIn("VLLM_API_KEY", "api_key", _key, "honoured"),
    StandIn("VLLM_CPU_KVCACHE_SPACE", "kv_cache_memory_bytes", _gibibytes, "honoured; it counts GiB"),
    StandIn("OMP_NUM_THREADS", "num_threads", _threads, "honoured; the flag goes before it"),
    StandIn("VLLM_ENGINE_READY_TIMEOUT_S", "init_timeout_s", _seconds, "honoured"),
    StandIn("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "step_timeout_s", _seconds, "honoured"),
    StandIn("VLLM_LOGGING_LEVEL", "log_level", _level, "honoured"),
)


def honour(wishes: EngineConfig, environment: Environment) -> tuple[EngineConfig, list[Decision]]:
    """The wishes with open ones filled from variables, and what was filled.

    Raises:
        ConfigError: a variable with a value that cannot be used.
    """
    filled: dict[str, Any] = {}
    said = []
    for stand_in in STAND_INS:
        text = environment.honoured.get(stand_in.variable)
        if text is None:
            continue
        option = OPTIONS[stand_in.field]
        shown = HIDDEN if option.is_secret else text
        if getattr(wishes, stand_in.field) not in (None, ()):
            said.append(Decision(stand_in.variable, shown, "ignored", f"{option.flag} goes before it"))
            continue
        value = stand_in.read(text, stand_in.variable)
        if value is None:
            said.append(Decision(stand_in.variable, shown, "ignored", "it leaves the choice to the engine"))
            continue
        try:
            option.check(value, stand_in.variable)
        except ConfigError as error:
            raise ConfigError(f"{error.message} Unset it or give {option.flag}.", param=error.param) from None
        filled[stand_in.field] = value
        got = HIDDEN if option.is_secret else value
        said.append(Decision(stand_in.variable, shown, f"{option.flag} {got}", stand_in.why))
    return dataclasses.replace(wishes, **filled), said
