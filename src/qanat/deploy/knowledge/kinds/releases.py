"""Releases, what their images hold, and the sources that they are built from."""

from __future__ import annotations

from typing import Literal

from qanat.deploy.knowledge.entry import Entry, Lifetime


class Release(Entry, frozen=True, kw_only=True):
    """A release of vllm-ascend (`name` is its version) with what its image ships.

    `python` are the versions of Python it can be installed on, the first that is too new after the comma.
    """

    vllm: str
    date: str
    is_stable: bool = False
    cann: str | None = None
    torch_npu: str | None = None
    mooncake: str | None = None
    python: str | None = None


class KnownPath(Entry, frozen=True, kw_only=True):
    """A path on hosts or in images that scripts use.

    Attributes:
        use: of the host's, what containers mount where it is there; of the image's, a script that sets the
            environment of CANN, an allocator to preload, or the folder of the example proxies. `chip_mount` is one
            that a chip lists itself.
        is_required: whether no engine starts without it.
        is_folder: whether it is a folder, not a file.
        families: of chips that have it; empty for all.
    """

    use: Literal["mount", "chip_mount", "environment_script", "allocator", "examples"]
    families: tuple[str, ...] = ()
    is_required: bool = False
    is_folder: bool = False


class SourceTree(Entry, frozen=True, kw_only=True):
    """A package that is built from source: `name` on the package index, `environment` for its build."""

    url: str
    environment: dict[str, str] = {}


class SourcePackage(Lifetime, frozen=True, kw_only=True):
    """A package that goes with an installation from source, or must not; `name` on the package index.

    Attributes:
        use: `transfer` moves caches between engines, `ray` spreads an engine, `unwanted` is taken away again.
        versions: that fit, as pip writes them (">=2,<3"); empty for the version of the release.
        families: of chips it counts for; empty for all.
    """

    use: Literal["transfer", "ray", "unwanted"]
    versions: str = ""
    families: tuple[str, ...] = ()
