"""One example of the lossless matrix: a model, calls that come in, and ways of serving them that must not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the bits of an answer may depend on.

    Attributes:
        family: a key of `tests.matrix.models.FAMILIES`, or "demo".
        seed: of random weights.
        dtype, quantization, kv_cache_dtype: as the flags of the same names.
    """

    family: str
    seed: int = 0
    dtype: str = "float32"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"


class Way(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How calls are served: everything that must not show in an answer.

    Attributes:
        flags: of `qanat serve`, by names with underscores.
        num_spare_blocks: blocks beyond those that the longest call needs.
        instruction_set: of the kernels; empty for the best.
        num_starts: so many engines, one after the other, serve all calls; they hand on prefixes on disk.
        step_times: seed of the time that steps seem to take, which adaptive speculation goes by.
    """

    flags: dict[str, Any] = {}
    num_spare_blocks: int = 200
    instruction_set: str = ""
    num_starts: int = 1
    step_times: int = 0


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request and its fate. Steps are counted from its arrival.

    Attributes:
        gap: steps after the arrival before it, or after the end of the call that it follows.
        stem: which of a few texts its prompt begins with.
        num_common: leading tokens that it takes from there.
        num_own: tokens of its own behind them.
        period: after so many tokens its own repeat themselves; 0 never.
        follows: the call so many places before it, whose prompt and answer, or a part of them, come before all that;
            0 if there is none.
        sampling: fields of SamplingParams.
        num_prior: output tokens that it brings along, as after a failure elsewhere.
        boundaries: positions in the prompt that are named as likely to be shared, as shares of its length.
        preempt_after: it loses its place then, if it has one.
        abort_after: nobody wants it any more.
        spoil_after: what is cached for its first choice is no number any more, if that has a token to compute next.
    """

    gap: int = 0
    stem: int = 0
    num_common: int = 0
    num_own: int = 1
    period: int = 0
    follows: int = 0
    sampling: dict[str, Any] = {}
    num_prior: int = 0
    priority: int = 0
    boundaries: list[float] = []
    preempt_after: list[int] = []
    abort_after: int | None = None
    spoil_after: int | None = None

    def followed(self, index: int) -> int | None:
        """Number of the call that it follows, given its own; None if there is none."""
        return index - self.follows if 0 < self.follows <= index else None


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls, each of which gets the same answer in every one of the ways as alone."""

    weights: Weights
    calls: list[Call]
    ways: list[Way]

    def write(self, path: Path) -> None:
        """As JSON without what is as usual."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self._terse()), indent=1))

    @staticmethod
    def read(path: Path) -> Scenario:
        """What `write` wrote."""
        return msgspec.json.decode(path.read_bytes(), type=Scenario)

    def _terse(self) -> dict[str, Any]:
        return {
            "weights": _terse(self.weights),
            "calls": [_terse(call) for call in self.calls],
            "ways": [_terse(way) for way in self.ways],
        }


def _terse(value: msgspec.Struct) -> dict[str, Any]:
    """The fields that are not as usual."""
    found = {}
    for field in msgspec.structs.fields(value):
        one, usual = getattr(value, field.name), field.default
        if usual is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            usual = field.default_factory()
        if one != usual:
            found[field.name] = one
    return found
