"""Which steps run as graphs, and of which sizes: what --enforce-eager and --compilation-config mean here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qanat.config.engine_config import EngineConfig
from qanat.config.known_flags import check_json_keys, did_you_mean
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

FLAG = "--compilation-config"
MODE_KEY, SIZES_KEY, MAX_KEY = "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"
SIZES_FLAG = "--cudagraph-capture-sizes"
FULL, PIECEWISE, EAGER = "full", "piecewise", "eager"

MODES: Mapping[str, tuple[str, str]] = {
    "NONE": (EAGER, EAGER),
    "PIECEWISE": (PIECEWISE, PIECEWISE),
    "FULL": (FULL, FULL),
    "FULL_DECODE_ONLY": (FULL, EAGER),
    "FULL_AND_PIECEWISE": (FULL, PIECEWISE),
}
"""vLLM's names: how steps of decoding rows alone run, and how others do."""

DEFAULT_MODE = "FULL_DECODE_ONLY"
MAX_DEFAULT_SIZE = 512
MAX_SIZES = 512

_USED_KEYS = (MODE_KEY, SIZES_KEY, MAX_KEY)
_WITHOUT_EFFECT = "this platform's graphs are recordings of native ops: there is nothing else to set"


@dataclass(frozen=True)
class GraphSettings:
    """How steps run.

    Attributes:
        mode: one of MODES.
        sizes: numbers of tokens that graphs are captured for, ascending; empty without graphs.
    """

    mode: str = "NONE"
    sizes: tuple[int, ...] = ()

    @property
    def decode_kind(self) -> str:
        """How steps run in which every row computes one token: "full", "piecewise" or "eager"."""
        return MODES[self.mode][0]

    @property
    def mixed_kind(self) -> str:
        """How all other steps run."""
        return MODES[self.mode][1]

    def as_flag(self) -> dict[str, object]:
        """The value of --compilation-config that says the mode."""
        return {MODE_KEY: self.mode}

    @property
    def max_size(self) -> int:
        """Most tokens of a step that runs as a graph; 0 without graphs."""
        return self.sizes[-1] if self.sizes else 0


@dataclass(frozen=True)
class GraphWishes:
    """What was asked for, checked.

    Attributes:
        is_eager: --enforce-eager.
        mode: one of MODES; None leaves it open.
        sizes: ascending, each once; None for the ladder.
        max_size: the ladder's end; None for vLLM's.
    """

    is_eager: bool = False
    mode: str | None = None
    sizes: tuple[int, ...] | None = None
    max_size: int | None = None


def read_graph_wishes(wishes: EngineConfig, said: list[Decision]) -> GraphWishes:
    """Reads the flags; keys of --compilation-config go before flags of the same meaning.

    Args:
        wishes: what was asked for.
        said: takes decisions.

    Raises:
        ConfigError: a value that means nothing, with what to write instead.
    """
    given = dict(wishes.compilation_config or {})
    sizes, max_size = wishes.cudagraph_capture_sizes, wishes.max_cudagraph_capture_size
    misnamed = check_json_keys("compilation-config", given)
    said.extend(misnamed)
    ignored = {decision.field for decision in misnamed}
    for key in given:
        if key not in _USED_KEYS and f"{FLAG}.{key}" not in ignored:
            said.append(Decision(f"{FLAG}.{key}", given[key], "no effect", _WITHOUT_EFFECT))
    mode = _mode(given.get(MODE_KEY))
    most = max_size if given.get(MAX_KEY) is None else _size(given[MAX_KEY], MAX_KEY)
    listed = _sizes(sizes if given.get(SIZES_KEY) is None else given[SIZES_KEY])
    if most is not None and listed is not None and most != listed[-1]:
        raise ConfigError(
            f"{MAX_KEY} is {most}, but the largest of {SIZES_KEY} is {listed[-1]}: give one of the two, or equal ones.",
            param=FLAG,
        )
    return GraphWishes(wishes.enforce_eager, mode, listed, most)


def settle_graphs(
    wishes: GraphWishes, max_decode_rows: int, max_num_batched_tokens: int, why_not: str
) -> tuple[GraphSettings, list[Decision]]:
    """Settles the mode and the sizes.

    Args:
        wishes: what was asked for.
        max_decode_rows: most tokens of a step of decoding requests alone: --max-num-seqs, times 1 + k with k drafts.
        max_num_batched_tokens: most tokens of a step.
        why_not: why no graph can be had on this platform; empty if it can.
    """
    said: list[Decision] = []
    mode = _settled_mode(wishes, why_not, said)
    sizes = wishes.sizes
    if mode == "NONE":
        if sizes is not None:
            said.append(Decision(SIZES_FLAG, sizes, (), "no step runs as a graph"))
        return GraphSettings(), said
    wanted = sizes
    if sizes is None:
        most = min(2 * max_decode_rows, MAX_DEFAULT_SIZE, max_num_batched_tokens)
        sizes = default_sizes(min(wishes.max_size or most, max_num_batched_tokens))
    kept = _usable(sizes, mode, max_decode_rows, max_num_batched_tokens)
    if wanted is None:
        said.append(Decision(SIZES_FLAG, None, kept, "vLLM's ladder, as far as --max-num-seqs can use it"))
    elif kept != wanted:
        why = "no step reaches the others: --max-num-seqs and --max-num-batched-tokens bound them"
        if wanted[-1] > max_num_batched_tokens:
            why = f"{why}; no size is above --max-num-batched-tokens ({max_num_batched_tokens})"
        said.append(Decision(SIZES_FLAG, wanted, kept, why))
    return GraphSettings(mode, kept) if kept else GraphSettings(), said


def default_sizes(max_size: int) -> tuple[int, ...]:
    """VLLM's ladder: 1, 2, 4, then steps of 8 below 256, then steps of 16, up to `max_size`."""
    ladder = [1, 2, 4, *range(8, 256, 8), *range(256, max_size + 1, 16)]
    return tuple(size for size in ladder if size <= max_size)


def _settled_mode(wishes: GraphWishes, why_not: str, said: list[Decision]) -> str:
    if wishes.is_eager:
        if wishes.mode not in (None, "NONE"):
            said.append(Decision(FLAG, wishes.mode, "NONE", "--enforce-eager"))
        return "NONE"
    if why_not and wishes.mode != "NONE":
        said.append(Decision(FLAG, wishes.mode, "NONE", why_not))
        return "NONE"
    if wishes.mode is None:
        why = "native kernels run: steps of decoding rows alone are replayed without Python"
        said.append(Decision(FLAG, None, DEFAULT_MODE, why))
        return DEFAULT_MODE
    return wishes.mode


def _mode(value: object) -> str | None:
    if value is None:
        return None
    name = str(value).upper().rpartition(".")[2]
    if name not in MODES:
        near = did_you_mean(name, MODES) or "."
        known = ", ".join(MODES)
        raise ConfigError(f"{FLAG}: {MODE_KEY} {value!r} is unknown{near} Choose one of {known}.", param=FLAG)
    return name


def _sizes(given: object) -> tuple[int, ...] | None:
    """Ascending, each once."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ConfigError(
            f"{SIZES_KEY}: {given!r} is no list of sizes; write for example [1, 2, 4, 8].", param=FLAG
        )
    if len(given) > MAX_SIZES:
        raise ConfigError(f"{SIZES_KEY}: {len(given)} sizes are too many; at most {MAX_SIZES}.", param=FLAG)
    return tuple(sorted({_size(size, SIZES_KEY) for size in given}))


def _size(value: object, key: str) -> int:
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"{key}: {value!r} is no number of tokens; it is a whole number from 1 on.", param=FLAG
        )
    return value


def _usable(
    sizes: Sequence[int], mode: str, max_decode_rows: int, max_num_batched_tokens: int
) -> tuple[int, ...]:
    """Without those above the first that the largest step fits in, and those that no step may have.

    A step is padded to its size and memory is planned for the largest: one above --max-num-batched-tokens only costs.
    """
    sizes = [size for size in sizes if size <= max_num_batched_tokens]
    most = max_decode_rows if MODES[mode][1] == EAGER else max_num_batched_tokens
    most = min(most, max_num_batched_tokens)
    return tuple(size for i, size in enumerate(sizes) if i == 0 or sizes[i - 1] < most)
