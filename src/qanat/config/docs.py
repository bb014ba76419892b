"""Writes the reference page of flags and variables from their declarations, and checks that it is current.

python -m qanat.config.docs docs/reference/flags.md
python -m qanat.config.docs --check docs/reference/flags.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from qanat.config.engine_config import GROUPS
from qanat.config.env import known_variables
from qanat.config.flag_names import flag_of
from qanat.config.generated_page import write_or_check
from qanat.config.honour import STAND_INS
from qanat.config.known_flags import KnownFlag, known_flags
from qanat.config.options import Option, options_of
from qanat.config.values import Kind

COMMAND = "python -m qanat.config.docs docs/reference/flags.md"

HEAD = f"""# Flags

<!-- Made by `{COMMAND}`. Change the declarations in src/qanat/config, not this page. -->

`qanat serve`, `qanat plan` and `qanat chat` take the flags below; those of the server only where there is one.

- A flag goes before its variable `QANAT_<FLAG>`, the variable before the file given as `--config` (YAML with flags as
  keys), the file before the default. What is overruled is named at the start.
- `--flag value` and `--flag=value` are the same, and so are `-` and `_` inside a flag. A switch is `--flag` or
  `--no-flag`.
- Where a value is JSON, `--flag.key value` sets one key and `--flag.key+ value` appends to a list.
- Whole numbers take units: `8k` is 8000, `8K` is 8192, and so on with m, g and t. Sizes also take `GiB` and `GB`.
- An abbreviation that fits one flag only is understood, with a warning. An unknown flag is an error that names the
  nearest known one.
- `QANAT_CLUSTER_KEY` holds the secret that the processes of one service on several hosts share; it has no flag, as
  command lines can be read by others. See [several ranks](../parallel.md).
- Python takes the same names with underscores: `EngineConfig(max_num_seqs=8)`, `LLM("./model", max_num_seqs=8)`.
"""

VARIABLES_HEAD = """## Variables of vLLM

Each one that is set is named at the start, with what becomes of it. Variables that begin with `VLLM_` or `QANAT_` and
that nobody knows are named too, with the nearest known one. Those that are honoured:
"""

OTHER_HONOURED = (
    ("VLLM_USE_MODELSCOPE", "hub ids are looked for on ModelScope"),
    ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "`--max-model-len` may exceed the model's window"),
    ("VLLM_CPU_NUM_OF_RESERVED_CPU", "so many cores get no kernel thread by default"),
)
"""Honoured variables that stand for no flag, and what they do."""


def render() -> str:
    """The page."""
    return "\n".join([HEAD, *_own_flags(), *_foreign_flags(), *_variables()])


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with --check compares it; returns the exit code."""
    return write_or_check(arguments, render, COMMAND, __doc__)


def _own_flags() -> Iterator[str]:
    for group in GROUPS:
        options = list(options_of(group))
        yield f"## {options[0].group}\n"
        yield "| flag | default | |"
        yield "| --- | --- | --- |"
        for option in options:
            yield f"| {_spellings(option)} | {_default(option)} | {_cell(option.help)} |"
        yield ""


def _spellings(option: Option) -> str:
    flags = [option.flag, *option.aliases]
    if option.kind is Kind.SWITCH:
        flags.append(f"--no-{option.flag.removeprefix('--')}")
    value = f" {_cell(option.metavar)}" if option.metavar and not option.choices else ""
    choices = ": " + ", ".join(option.choices) if option.choices else ""
    return ", ".join(f"`{flag}`" for flag in flags) + value + choices


def _default(option: Option) -> str:
    if option.default is None or option.default == ():
        return ""
    return f"`{str(option.default).lower() if isinstance(option.default, bool) else option.default}`"


def _foreign_flags() -> Iterator[str]:
    yield "## Flags that only vLLM has\n"
    yield "They are read, checked and named at the start. Those that are refused end the start with the reason.\n"
    groups: dict[tuple[str, str], list[KnownFlag]] = {}
    for known in known_flags().values():
        groups.setdefault((known.outcome or "refused", known.why), []).append(known)
    yield "| outcome | why | flags |"
    yield "| --- | --- | --- |"
    for (outcome, why), flags in sorted(groups.items(), key=lambda item: (item[0][0] != "refused", item[0])):
        names = ", ".join(f"`--{known.name}`" for known in flags)
        yield f"| {outcome} | {_cell(why)} | {names} |"
    yield ""


def _variables() -> Iterator[str]:
    yield VARIABLES_HEAD
    yield "| variable | |"
    yield "| --- | --- |"
    for stand_in in STAND_INS:
        flag = flag_of(stand_in.field)
        yield f"| `{stand_in.variable}` | stands for `{flag}`, which goes before it |"
    for name, what in OTHER_HONOURED:
        yield f"| `{name}` | {what} |"
    yield "\nThose without effect here:\n"
    yield "| outcome | why | variables |"
    yield "| --- | --- | --- |"
    groups: dict[tuple[str, str], list[str]] = {}
    for name, said in known_variables().said.items():
        groups.setdefault(said, []).append(name)
    for (outcome, why), names in groups.items():
        yield f"| {outcome} | {_cell(why)} | {', '.join(f'`{name}`' for name in names)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
