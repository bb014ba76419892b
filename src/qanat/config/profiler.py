"""What --profiler-config means: which profiles are recorded, where their files go, and how much they may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qanat.config.known_flags import check_json_keys
from qanat.config.values import Kind, read_value
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

FLAG = "--profiler-config"
KINDS: Mapping[str, tuple[str, ...]] = {"torch": ("torch",), "ops": ("ops",), "all": ("torch", "ops")}
"""What each value of `profiler` records."""
DEFAULT_KIND = "all"
DEFAULT_ACTIVE_STEPS = 5
"""vLLM's default of active_iterations, which holds where steps are waited or warmed up for."""
MIN_TRACE_BYTES = 65_536

_KEYS: Mapping[str, tuple[Kind, object]] = {
    "torch_profiler_with_stack": (Kind.SWITCH, False),
    "torch_profiler_record_shapes": (Kind.SWITCH, False),
    "torch_profiler_with_memory": (Kind.SWITCH, False),
    "torch_profiler_with_flops": (Kind.SWITCH, False),
    "torch_profiler_use_gzip": (Kind.SWITCH, True),
    "delay_iterations": (Kind.COUNT, 0),
    "wait_iterations": (Kind.COUNT, 0),
    "warmup_iterations": (Kind.COUNT, 0),
    "active_iterations": (Kind.COUNT, DEFAULT_ACTIVE_STEPS),
    "max_iterations": (Kind.COUNT, 0),
    "max_duration_s": (Kind.NUMBER, 60.0),
    "max_trace_bytes": (Kind.BYTES, 64 * 2**20),
}
"""Kind and default of each value that is served; the last two are ours, the others vLLM's."""
_OWN_KEYS = ("max_duration_s", "max_trace_bytes")
_WITHOUT_EFFECT: Mapping[str, str] = {
    "torch_profiler_dump_cuda_time_total": "there is no time on a device to sum up on this platform",
    "ignore_frontend": "the server's own process is never profiled",
    "detailed_trace_annotation": "each op's line says its step, provider and shapes in any case",
    "capture_torch_profiler": "no graphs are captured while a profile is recorded, but for those of several ranks",
}
_MINIMA: Mapping[str, float] = {
    "active_iterations": 1,
    "max_duration_s": 0.1,
    "max_trace_bytes": MIN_TRACE_BYTES,
}


@dataclass(frozen=True)
class ProfilerSettings:
    """How a profile is recorded.

    Attributes:
        folder: absolute path of the only folder that is written to.
        kinds: of "torch" and "ops", what is recorded.
        has_stacks: torch's events say which line of Python caused them.
        has_shapes: torch's events say the shapes of their inputs; those of ops always do.
        has_memory: torch records allocations.
        has_flops: torch estimates operations of products.
        is_compressed: files are compressed with gzip.
        num_skipped_steps: steps after the start that are not recorded.
        num_warmup_steps: steps after those in which torch's profiler runs and nothing is kept.
        max_steps: recorded steps after which the profile ends by itself; 0 is no bound.
        max_duration_s: seconds after the start after which it ends.
        max_trace_bytes: size of what has been recorded, before compression, at which it ends.
    """

    folder: str
    kinds: tuple[str, ...] = KINDS[DEFAULT_KIND]
    has_stacks: bool = False
    has_shapes: bool = False
    has_memory: bool = False
    has_flops: bool = False
    is_compressed: bool = True
    num_skipped_steps: int = 0
    num_warmup_steps: int = 0
    max_steps: int = 0
    max_duration_s: float = 60.0
    max_trace_bytes: int = 64 * 2**20


def profiler_settings(value: Mapping[str, object] | None, said: list[Decision]) -> ProfilerSettings | None:
    """Reads the flag's value; None if profiling is off.

    Args:
        value: the flag's JSON.
        said: takes decisions on keys without effect.

    Raises:
        ConfigError: a profiler that is not offered, or a value that cannot be used.
    """
    if not value:
        return None
    vllm_keys = {key: inner for key, inner in value.items() if key not in _OWN_KEYS}
    said += check_json_keys("profiler-config", vllm_keys)
    said += [
        Decision(f"{FLAG}.{key}", value[key], "no effect", why)
        for key, why in _WITHOUT_EFFECT.items()
        if value.get(key)
    ]
    kinds = _kinds(value)
    _check_activities(value.get("torch_profiler_activities"), said)
    read = {key: _read(key, value.get(key)) for key in _KEYS}
    folder = _folder(value.get("torch_profiler_dir"))
    if folder is None:
        said.append(
            Decision(FLAG, dict(value), "no profiler", "torch_profiler_dir names no folder for its files")
        )
        return None
    num_waited, num_warmup = int(read["wait_iterations"]), int(read["warmup_iterations"])
    bounds = [int(read["max_iterations"])]
    if num_waited or num_warmup:
        bounds.append(int(read["active_iterations"]))
    return ProfilerSettings(
        folder=folder,
        kinds=kinds,
        has_stacks=bool(read["torch_profiler_with_stack"]),
        has_shapes=bool(read["torch_profiler_record_shapes"]),
        has_memory=bool(read["torch_profiler_with_memory"]),
        has_flops=bool(read["torch_profiler_with_flops"]),
        is_compressed=bool(read["torch_profiler_use_gzip"]),
        num_skipped_steps=int(read["delay_iterations"]) + num_waited,
        num_warmup_steps=num_warmup,
        max_steps=min((bound for bound in bounds if bound), default=0),
        max_duration_s=read["max_duration_s"],
        max_trace_bytes=int(read["max_trace_bytes"]),
    )


def _kinds(value: Mapping[str, object]) -> tuple[str, ...]:
    name = value.get("profiler") or DEFAULT_KIND
    proton = [key for key in value if key.startswith("proton_")]
    is_known = isinstance(name, str) and name in KINDS
    if not is_known or proton:
        what = proton[0] if is_known else f"profiler {name!r}"
        raise ConfigError(
            f"{FLAG}: {what} is not offered here; profiler is one of {', '.join(KINDS)}.", param=FLAG
        )
    return KINDS[str(name)]


def _check_activities(value: object, said: list[Decision]) -> None:
    """Of torch's activities there is one: the CPU's.

    Raises:
        ConfigError: it is not among those that are asked for.
    """
    if value is None:
        return
    names = [str(name).upper() for name in value] if isinstance(value, Sequence) else []
    where = f"{FLAG}.torch_profiler_activities"
    if isinstance(value, str) or "CPU" not in names:
        raise ConfigError(f'{where}: {value!r} must be a list with "CPU", all there is here.', param=FLAG)
    if len(names) > 1:
        said.append(Decision(where, value, ["CPU"], "this version computes on the CPU"))


def _read(key: str, value: object) -> float:
    kind, default = _KEYS[key]
    where = f"{FLAG}.{key}"
    read = default if value is None else read_value(kind, value, where)
    assert isinstance(read, int | float)
    least = _MINIMA.get(key, 0)
    if read < least:
        raise ConfigError(f"{where}: {value} is too small; the least is {least}.", param=FLAG)
    return read


def _folder(value: object) -> str | None:
    if value is None or value == "":
        return None
    where = f"{FLAG}.torch_profiler_dir"
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {value!r} is not the path of a folder.", param=FLAG)
    if "://" in value:
        raise ConfigError(f"{where}: {value} is no folder of this machine.", param=FLAG)
    return str(Path(value).expanduser().resolve())
