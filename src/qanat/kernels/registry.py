"""An op is one contract with several implementations ("providers"), of which one is chosen per process.

The function that `@op` decorates is the reference: plain torch, slow and obvious. Faster providers register
beside it and are compared with it by tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from qanat.core.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")

REFERENCE = "reference"
"""Name of the provider that every op has."""


@dataclass(frozen=True)
class Provider:
    """One implementation of an op.

    Attributes:
        name: as a person forces it and as the op table prints it.
        function: same signature as the op.
        row_invariant: True if a row's result has the same bits whatever rows stand beside it.
        is_usable: asked once, at selection: does this machine have what the provider needs?
    """

    name: str
    function: Callable[..., Any]
    row_invariant: bool
    is_usable: Callable[[], bool]


class Op(Generic[P, R]):
    """A callable contract; calls go to the chosen provider, the reference until `select` says otherwise."""

    def __init__(self, reference: Callable[P, R], row_invariant: bool) -> None:
        """Makes the op whose reference is this function."""
        self.name = reference.__name__
        self.__doc__ = reference.__doc__
        self._providers = {REFERENCE: Provider(REFERENCE, reference, row_invariant, lambda: True)}
        self._chosen = self._providers[REFERENCE]
        self._function: Callable[P, R] = reference

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the chosen provider."""
        return self._function(*args, **kwargs)

    @property
    def reference(self) -> Provider:
        """The provider that every op has."""
        return self._providers[REFERENCE]

    def provider(self, name: str) -> Provider:
        """One of its providers, usable here or not; the reference where there is none of this name."""
        return self._providers.get(name, self.reference)

    @property
    def chosen(self) -> Provider:
        """The provider that calls go to."""
        return self._chosen

    def wrap(self, make: Callable[[Callable[P, R]], Callable[P, R]]) -> None:
        """Puts a function around the chosen provider: what `make` returns for it is called from now on."""
        self._function = make(self._chosen.function)

    def unwrap(self) -> None:
        """Takes it away; calls go straight to the chosen provider again."""
        self._function = self._chosen.function

    def register(
        self,
        name: str,
        function: Callable[P, R],
        *,
        row_invariant: bool,
        is_usable: Callable[[], bool] = lambda: True,
    ) -> None:
        """Adds a provider; of several usable ones the last registered wins.

        Raises:
            ValueError: the op already has a provider of this name.
        """
        if name in self._providers:
            raise ValueError(f"op {self.name} already has a provider {name!r}")
        self._providers[name] = Provider(name, function, row_invariant, is_usable)

    def select(self, name: str | None = None) -> Provider:
        """Chooses the provider for this process, by name or the best usable one.

        Raises:
            ConfigError: a forced provider does not exist or cannot run here.
        """
        if name is None:
            chosen = [provider for provider in self._providers.values() if provider.is_usable()][-1]
        elif name not in self._providers:
            known = ", ".join(self._providers)
            raise ConfigError(f"op {self.name} has no provider {name!r}; choose one of {known}")
        else:
            chosen = self._providers[name]
            if not chosen.is_usable():
                raise ConfigError(f"provider {name!r} of op {self.name} cannot run on this machine")
        self._chosen, self._function = chosen, chosen.function
        return chosen


_OPS: dict[str, Op[..., Any]] = {}


def op(*, row_invariant: bool = False) -> Callable[[Callable[P, R]], Op[P, R]]:
    """Declares an op; the decorated function is its contract and its reference.

    Args:
        row_invariant: whether the reference keeps a row's bits whatever stands beside it.
    """

    def declare(reference: Callable[P, R]) -> Op[P, R]:
        made = Op(reference, row_invariant)
        if made.name in _OPS:
            raise ValueError(f"op {made.name} is declared twice")
        _OPS[made.name] = made
        return made

    return declare


def all_ops() -> Iterable[Op[..., Any]]:
    """Every declared op, in order of declaration."""
    return _OPS.values()


def select_providers(forced: Mapping[str, str] | None = None) -> list[tuple[str, Provider]]:
    """Chooses every op's provider; done once, before the model is built.

    Args:
        forced: op name -> provider name.

    Returns:
        (op name, provider) in order of declaration.

    Raises:
        ConfigError: `forced` names an op or a provider that does not exist or cannot run here.
    """
    forced = forced or {}
    for name in forced:
        if name not in _OPS:
            raise ConfigError(f"there is no op {name!r}; ops are {', '.join(_OPS)}")
    return [(name, declared.select(forced.get(name))) for name, declared in _OPS.items()]


def format_op_table(left_to_reference: Mapping[str, str] | None = None) -> str:
    """The chosen providers as text, one op a line, for the log at start-up.

    Args:
        left_to_reference: op name -> why its chosen provider calls the reference for this model.
    """
    rows = [("op", "provider", "row_invariant")]
    for declared in _OPS.values():
        why = (left_to_reference or {}).get(declared.name)
        provider = declared.chosen if why is None else declared.reference
        name = provider.name if why is None else f"{provider.name} ({why})"
        rows.append((declared.name, name, "yes" if provider.row_invariant else "no"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
