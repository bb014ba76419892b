"""install/source.sh: the vllm and the vllm-ascend that pair, from source, the same on every node."""

from __future__ import annotations

import re

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.kinds.releases import Release, SourcePackage, SourceTree
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.plan.model import Plan
from qanat.deploy.render.engine import is_disaggregated, uses_ray
from qanat.deploy.render.model import RenderedFile, Word
from qanat.deploy.render.serve import known_paths
from qanat.deploy.render.shell import array, assignments, body, quote, script, source_environment


def release_of(plan: Plan) -> Release:
    """The release of a plan.

    Raises:
        ConfigError: the knowledge base has no such release, so it is not known which vLLM it pairs with.
    """
    for release in load_knowledge().releases:
        if release.name == plan.release:
            return release
    known = ", ".join(release.name for release in load_knowledge().releases)
    raise ConfigError(
        f"it is not known which vLLM pairs with vllm-ascend {plan.release}; releases that are: {known}."
    )


def python_range(release: Release) -> tuple[str, str]:
    """The oldest Python that a release runs on, and the first that is too new ("3.10", "3.12").

    Where a release's own is not known, that of the newest release before it counts.
    """
    version = must_parse(release.name)
    earlier = [one for one in load_knowledge().releases if one.python and must_parse(one.name) <= version]
    newest = max(earlier, key=lambda one: must_parse(one.name))
    match = re.fullmatch(r">=([\d.]+),<([\d.]+)", newest.python or "")
    assert match is not None
    return match.group(1), match.group(2)


def _packages(plan: Plan, release: Release) -> list[str]:
    """Calls that add what the deployment needs besides both, and take away what its chip cannot use.

    Raises:
        ConfigError: the release needs a package that the package index does not have.
    """
    families = {chip.family for chip in load_knowledge().chips if chip.name == plan.chip}
    uses = {"unwanted"}
    uses |= {"transfer"} if any(is_disaggregated(plan, node) for node in plan.nodes) else set()
    uses |= {"ray"} if any(uses_ray(plan, node) for node in plan.nodes) else set()
    calls = []
    for package in load_knowledge().tables["source_packages"].entries.values():
        assert isinstance(package, SourcePackage)
        if package.use not in uses or (package.families and not families & {*package.families}):
            continue
        if package.use == "unwanted":
            calls.append(f"take_away {package.name}")
        else:
            versions = package.versions or f"=={_transfer_version(package, release)}"
            calls.append(f"add {quote(package.name + versions)}")
    return calls


def _transfer_version(package: SourcePackage, release: Release) -> str:
    """The Mooncake of a release; where its own is not known, that of the newest release before it counts."""
    version = must_parse(release.name)
    earlier = [one for one in load_knowledge().releases if one.mooncake and must_parse(one.name) <= version]
    mooncake = max(earlier, key=lambda one: must_parse(one.name)).mooncake
    assert mooncake is not None
    if package.since is not None and version < must_parse(package.since):
        raise ConfigError(
            f"vllm-ascend {release.name} moves caches with Mooncake {mooncake}, which no package for NPUs holds: "
            f"take --install image, or an --image of {package.since} or newer.",
            param="--install",
        )
    return mooncake


def source_files(plan: Plan) -> dict[str, RenderedFile]:
    """The script that installs both from source, at the tags that pair."""
    release = release_of(plan)
    oldest, too_new = python_range(release)
    versions = {"vllm": release.vllm, "vllm-ascend": release.name}
    calls = []
    for tree in load_knowledge().tables["source_trees"].entries.values():
        assert isinstance(tree, SourceTree)
        version = versions[tree.name]
        settings = [quote(f"{name}={value}") for name, value in tree.environment.items()]
        calls.append(" ".join(["install", tree.name, version, quote(tree.url), *settings]))
    calls += _packages(plan, release)
    values: dict[str, Word] = {"node": "install", "oldest_python": oldest, "too_new_python": too_new}
    title = (
        f"Installs vllm {release.vllm} and vllm-ascend {release.name} from source. Run it once on every node, where\n"
        f"CANN {release.cann or 'of the release'} is installed; what is installed already stays as it is."
    )
    parts = [
        source_environment(1),
        assignments(values),
        array("environment_scripts", list(known_paths("environment_script", plan))),
        body("say.sh"),
        body("ascend.sh"),
        body("source.sh"),
        "\n".join(calls),
        'say "everything is installed in $INSTALL_DIR/venv"',
    ]
    return {"install/source.sh": RenderedFile(script(title, parts), is_executable=True)}
