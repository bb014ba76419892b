"""Environment variables: the only file that reads them, and what is said about each one that is set.

Three kinds: `QANAT_<FLAG>`, which stand for flags; variables of vLLM that are honoured (`HONOURED`); and variables that
vLLM, vLLM-Ascend or a library below them would read and that mean nothing here (`data/known_variables.json`).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from qanat.config.engine_config import OPTIONS
from qanat.config.huge_pages import PRELOAD_VARIABLE, allocator_decision
from qanat.config.known_flags import HIDDEN, did_you_mean, known_flags, read_data
from qanat.config.options import VARIABLE_PREFIX
from qanat.core.decision import Decision

_SERVICE_LINK = re.compile(r"QANAT_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
"""Names that Kubernetes gives to the address of a service called "qanat"."""
FILE_VARIABLE = "QANAT_CONFIG"
"""Names the YAML file of settings, as --config does."""
CLUSTER_KEY_VARIABLE = "QANAT_CLUSTER_KEY"
"""Holds the secret of a service on several hosts; see `qanat.config.cluster_key`."""
ISA_VARIABLE = "QANAT_ISA"
"""Forces the native kernels to a lower instruction set than the processor's best, for tests and comparisons."""
CACHE_VARIABLE = "QANAT_CACHE_DIR"
"""Stands for --cache-dir."""
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")
"""A name that is not known may be a secret's, misspelled."""


@dataclass(frozen=True)
class KnownVariables:
    """The table of variables.

    Attributes:
        said: outcome and reason by name, for those without effect.
        dropped: last version that read it, by name.
        honoured: names that are acted upon.
        secret: names whose values are never printed.
    """

    said: Mapping[str, tuple[str, str]]
    dropped: Mapping[str, str]
    honoured: frozenset[str]
    secret: frozenset[str]


@functools.cache
def known_variables() -> KnownVariables:
    """The table."""
    data = read_data("known_variables.json")
    said = {
        name: (group["outcome"], group["why"])
        for key, group in data["groups"].items()
        if key != "honoured"
        for name in group["names"]
    }
    honoured = frozenset(data["groups"]["honoured"]["names"])
    return KnownVariables(said, data["dropped"], honoured, frozenset(data["secret"]))


@dataclass(frozen=True)
class Environment:
    """What the environment wishes.

    Attributes:
        flags: text of `QANAT_<FLAG>` variables, by variable name.
        honoured: text of vLLM's variables that are acted upon, by name; empty ones are left out.
        decisions: on the variables that mean nothing here.
    """

    flags: Mapping[str, str]
    honoured: Mapping[str, str]
    decisions: tuple[Decision, ...]

    def switch(self, name: str) -> bool:
        """True if an honoured variable is set to 1, true, yes or on."""
        return self.honoured.get(name, "").lower() in ("1", "true", "yes", "on")


def read_environment(
    variables: Mapping[str, str] | None = None, own_variables: Collection[str] = ()
) -> Environment:
    """Sorts the variables.

    Args:
        variables: text by name; those of this process unless given.
        own_variables: `QANAT_<FLAG>` of flags that only the present command has.
    """
    variables = os.environ if variables is None else variables
    table = known_variables()
    flag_names = flag_variables().union(own_variables)
    flags, honoured, decisions, links = {}, {}, [], []
    for name, text in sorted(variables.items()):
        if _SERVICE_LINK.fullmatch(name) and (name not in flag_names or _LINK_VALUE.match(text)):
            links.append(name)
        elif name in (CLUSTER_KEY_VARIABLE, ISA_VARIABLE):
            continue
        elif name in flag_names:
            flags[name] = text
        elif name in table.honoured:
            if text:
                honoured[name] = text
        elif name == PRELOAD_VARIABLE and (decision := allocator_decision(text)):
            decisions.append(decision)
        elif name in table.said:
            outcome, why = table.said[name]
            if name in table.dropped:
                why += f"; dropped upstream after {table.dropped[name]}"
            decisions.append(Decision(name, HIDDEN if name in table.secret else text, outcome, why))
        elif name.startswith((VARIABLE_PREFIX, "VLLM_")):
            own = [*flag_names, CLUSTER_KEY_VARIABLE]
            known = own if name.startswith(VARIABLE_PREFIX) else [*table.said, *table.honoured]
            why = f"no such variable is known here{did_you_mean(name, known)}"
            shown = HIDDEN if _SECRET_NAME.search(name) else text
            decisions.append(Decision(name, shown, "ignored", why))
    if links:
        why = (
            "Kubernetes sets them for a service named qanat; enableServiceLinks: false keeps them out, and the port "
            "is set with --port"
        )
        decisions.append(Decision(", ".join(links), None, "ignored", why))
    return Environment(flags, honoured, tuple(decisions))


def secret_of(name: str) -> str | None:
    """The text of a variable that the user named as the holder of a secret; None if it is not set."""
    return os.environ.get(name)


def wanted_instruction_set() -> str:
    """The instruction set that the user forces; empty for the best."""
    return os.environ.get(ISA_VARIABLE, "").strip().lower()


def own_cache_folder() -> Path:
    """Where what can be made again is kept: QANAT_CACHE_DIR, else qanat in XDG_CACHE_HOME or ~/.cache.

    The variable is read here too, as Python programs that pass no flags mean it as well. The path is not absolute
    where this user has no home.
    """
    if own := os.environ.get(CACHE_VARIABLE, ""):
        return Path(own).expanduser().absolute()
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given if os.path.isabs(given) else os.path.expanduser("~/.cache")) / "qanat"


@functools.cache
def flag_variables() -> frozenset[str]:
    """`QANAT_<FLAG>` for every flag, --config and those that only vLLM knows included."""
    own = {option.variable for option in OPTIONS.values()} | {FILE_VARIABLE}
    return frozenset(own | {VARIABLE_PREFIX + name.replace("-", "_").upper() for name in known_flags()})


def process_variables() -> Mapping[str, str]:
    """The variables of this process as they are, for programs that report on a machine."""
    return dict(os.environ)
