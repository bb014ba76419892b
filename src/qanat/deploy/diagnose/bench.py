"""Results of `vllm bench serve --save-result`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qanat.core.errors import ConfigError
from qanat.deploy.text_files import require_regular

MAX_FIGURE = 1e15
"""Larger figures, infinity among them, are no measurement; negative ones neither."""


@dataclass(frozen=True)
class BenchResult:
    """A result; every figure is None where the file does not have it.

    `values` is the file's JSON.
    """

    values: dict[str, Any]

    def number(self, name: str) -> float | None:
        """A figure by its name in the file."""
        value = self.values.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return float(value) if 0 <= value < MAX_FIGURE else None

    @property
    def model(self) -> str:
        """The model's name; empty if the file has none."""
        return str(self.values.get("model_id") or "")

    @property
    def is_all_at_once(self) -> bool:
        """Whether requests were sent without a pause."""
        return str(self.values.get("request_rate")) == "inf"

    @property
    def concurrency(self) -> float | None:
        """The bound of requests at once, else the most that were seen."""
        return self.number("max_concurrency") or self.number("max_concurrent_requests")

    def per_request(self, name: str) -> float | None:
        """A total over the requests that ended; None where there are none, or no whole one."""
        total, completed = self.number(name), self.number("completed")
        return total / completed if total is not None and completed is not None and completed >= 1 else None

    @property
    def positions(self) -> tuple[float, ...]:
        """Share of drafts kept at each place; empty without speculation."""
        rates = self.values.get("spec_decode_per_position_acceptance_rates")
        is_list = isinstance(rates, list) and all(
            isinstance(one, int | float) and 0 <= one <= 1 for one in rates
        )
        return tuple(float(one) for one in rates) if is_list and rates else ()


def read_bench(path: str) -> BenchResult:
    """Reads a result.

    Raises:
        ConfigError: no such file, or no result of `vllm bench serve`.
    """
    try:
        require_regular(Path(path), "--bench")
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", param="--bench") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON: {error}", param="--bench") from None
    wanted = ("completed", "total_output_tokens", "duration")
    if not isinstance(values, dict) or any(not isinstance(values.get(name), int | float) for name in wanted):
        raise ConfigError(
            f"{path} is no result of `vllm bench serve --save-result`: {', '.join(wanted)} are missing.",
            param="--bench",
        )
    return BenchResult(values)
