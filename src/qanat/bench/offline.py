"""What the offline benchmarks share: a loaded model, limits measured before and after, and the facts of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qanat.bench.bounds import limits_json, measured_limits
from qanat.bench.shapes import prepared_model
from qanat.config.engine_config import EngineConfig
from qanat.config.env import Environment
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.entrypoints.llm import LLM
    from qanat.kernels.native.limits import Limits

Say = Callable[[str], None]
Tick = Callable[[], None]


@dataclass(frozen=True)
class Session:
    """A model that is loaded for a benchmark.

    Attributes:
        llm: the model.
        decisions: all that was decided, for the person who measures.
        model_id: as the user named it.
        has_limits: whether the machine's limits are to be measured.
        said: why limits were not measured, each reason once; for the person who measures too.
    """

    llm: LLM
    decisions: Sequence[Decision]
    model_id: str
    has_limits: bool
    said: list[Decision] = field(default_factory=list)

    @property
    def num_ids(self) -> int:
        """Token ids below this one are part of the vocabulary."""
        config = self.llm.config
        return config.num_valid_token_ids or config.model.vocab_size

    def measure_limits(self) -> Limits | None:
        """The machine's limits now; None where they are not wanted or, with the reason in `said`, cannot be had."""
        if not self.has_limits:
            return None
        limits, reasons = self._limits()
        self.said.extend(reason for reason in reasons if reason not in self.said)
        return limits

    def _limits(self) -> tuple[Limits | None, list[Decision]]:
        if self.llm.config.tensor_parallel_size > 1:
            why = "a result of several ranks is not compared with the limit of one process"
            return None, [Decision("limits", None, "not measured", why)]
        return measured_limits()

    def facts(self) -> dict[str, Any]:
        """What a result must be read with: model, kernels, threads, processor."""
        from qanat.config.env import wanted_instruction_set
        from qanat.config.machine import read_machine
        from qanat.kernels.providers import kernels_sentence

        config = self.llm.config
        return {
            "model_id": self.model_id,
            "dtype": config.dtype,
            "quantization": getattr(config, "quantization", ""),
            "load_format": config.load_format,
            "num_threads": config.num_threads,
            "kernels": kernels_sentence(config.model, config.dtype, wanted_instruction_set()),
            "weight_bytes": self.llm.memory_plan.weight_bytes,
            "cpu_model": read_machine().cpu_model,
            "platform": platform.platform(),
        }


@contextlib.contextmanager
def session(wishes: EngineConfig, environment: Environment, *, has_limits: bool) -> Iterator[Session]:
    """Loads the model, and gives it back at the end.

    Prefixes are not reused unless it is asked for: the same prompts come again and again, and a hit is no computation.

    Raises:
        QanatError: the model cannot be started.
    """
    from qanat.entrypoints.llm import LLM

    if wishes.enable_prefix_caching is None:
        wishes = dataclasses.replace(wishes, enable_prefix_caching=False)
    with prepared_model(wishes) as ready, LLM.of(ready, environment) as llm:
        model_id = wishes.served_model_name[0] if wishes.served_model_name else wishes.model
        yield Session(llm, llm.decisions, model_id or "qanat-demo", has_limits)


@contextlib.contextmanager
def profiled(llm: LLM, wishes: EngineConfig, *, is_wanted: bool) -> Iterator[None]:
    """Records what runs inside, where it is wanted.

    Raises:
        ConfigError: nothing says where the profile is to be written.
    """
    if not is_wanted:
        yield
        return
    if wishes.profiler_config is None:
        raise ConfigError(
            '--profile needs a folder: --profiler-config \'{"profiler": "torch", "torch_profiler_dir": '
            '"./profiles"}\'.',
            param="--profile",
        )
    llm.start_profile()
    try:
        yield
    finally:
        llm.stop_profile()


def joined(before: Limits | None, after: Limits | None) -> Limits | None:
    """Both measurements as one; None where there is none."""
    return before.joined(after) if before is not None and after is not None else before or after


def with_limits(result: dict[str, Any], limits: Limits | None) -> dict[str, Any]:
    """The result with the limits under their own key, where they were measured."""
    return {**result, "limits": limits_json(limits)} if limits is not None else result
