"""serve.sh: the engine's environment and its `vllm serve`."""

from __future__ import annotations

from qanat.deploy.knowledge.kinds.releases import KnownPath
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import first_node, group_of, has_model_path
from qanat.deploy.render.addresses import family
from qanat.deploy.render.engine import (
    engine_environment,
    engine_flags,
    is_disaggregated,
    json_text,
    uses_ray,
    variables_used,
)
from qanat.deploy.render.model import RenderedFile, RenderOptions, Variable, Word
from qanat.deploy.render.shell import (
    array,
    assignments,
    body,
    command,
    quote,
    script,
    source_environment,
    word,
)
from qanat.deploy.rendered.env_values import INSTALL_DIR, MODEL_PATH, address_variable

PRELOADED = "LD_PRELOAD"
PATH_LISTS = ("LD_LIBRARY_PATH", PRELOADED, "PATH", "PYTHONPATH")
"""Variables that hold several paths: a value goes before what the image has, not in its place."""
WEB_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY")
ACTIVATE = f'# shellcheck source=/dev/null\nsource "${INSTALL_DIR}/venv/bin/activate"'
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


def known_paths(use: str, plan: Plan, *, is_required: bool | None = None) -> list[str]:
    """Paths of the knowledge base for a use, that a plan's chip has; all, or those that are required or not."""
    families = {chip.family for chip in load_knowledge().chips if chip.name == plan.chip}
    entries = load_knowledge().tables["known_paths"].entries.values()
    paths = [entry for entry in entries if isinstance(entry, KnownPath)]
    return [
        path.name
        for path in paths
        if path.use == use
        and (not path.families or families & {*path.families})
        and is_required in (None, path.is_required)
    ]


def serve_script(plan: Plan, node: Node, options: RenderOptions) -> RenderedFile:
    """The script that runs inside a node's container, or in its virtual environment, and becomes the engine."""
    where = "inside the container" if options.install == "image" else "on the node"
    title = (
        f"The engine of node {node.name}: {plan.model} ({plan.weights}) on {plan.chip}, run {where}.\n"
        f"Image: {plan.image}"
    )
    environment = engine_environment(plan, node)
    allocators: list[Word] = list(known_paths("allocator", plan))
    preloaded = environment.get(PRELOADED)
    if isinstance(preloaded, str) and "jemalloc" in preloaded:
        # What is preloaded and is not there is only told, at every start of every process.
        allocators = list(dict.fromkeys([*preloaded.split(":"), *allocators]))
        del environment[PRELOADED]
    parts = [
        source_environment(2),
        assignments({"node": node.name, "family": family(plan)}),
        array("needed_variables", _needed(plan, node, options)),
        array("environment_scripts", list(known_paths("environment_script", plan))),
        array("allocators", allocators),
        body("say.sh"),
        body("serve.sh"),
        body("needed.sh"),
        body("family.sh"),
        ACTIVATE if options.install == "source" else "",
        body("ascend.sh"),
        body("allocator.sh"),
        "\n".join(_export(name, value) for name, value in environment.items()),
        f"unset {' '.join(WEB_PROXIES)}" if is_disaggregated(plan, node) else "",
        body("metrics_folder.sh") if METRICS_FOLDER in environment else "",
    ]
    is_spread = uses_ray(plan, node) and len(group_of(plan, node)) > 1
    if is_spread:
        parts += _ray(plan, node)
    if not (is_spread and node.rank > 0):
        parts.append(serve_command(plan, node, options))
    return RenderedFile(script(title, parts), is_executable=True)


def serve_command(plan: Plan, node: Node, options: RenderOptions) -> str:
    """`exec vllm serve` with a flag a line; JSON arguments are set over lines for people.

    Containers see weights of the host where the plan has them, wherever they are; without a container env.sh says.
    """
    model: Word = Variable(MODEL_PATH) if is_model_in_env(plan, options) else plan.model_source
    lines = [f"exec vllm serve {word(model)}"]
    for flag in engine_flags(plan, node):
        words = [word(one) for one in flag.words]
        if flag.json is not None:
            words = [quote(json_text(flag.json, "  ", len(flag.name)))]
        lines.append(" ".join([flag.name, *words]))
    return command(lines)


def is_model_in_env(plan: Plan, options: RenderOptions) -> bool:
    """Whether the engine is given the folder that env.sh names."""
    return options.install == "source" and has_model_path(plan)


def _needed(plan: Plan, node: Node, options: RenderOptions) -> list[Word]:
    names: list[Word] = list(variables_used(plan, node))
    if is_model_in_env(plan, options):
        names.append(MODEL_PATH)
    if uses_ray(plan, node):
        names += [address_variable(first_node(plan, node)), address_variable(node)]
    return list(dict.fromkeys(names))


def _export(name: str, value: Word) -> str:
    if name in PATH_LISTS:
        return f'export {name}={word(value)}"${{{name}:+:${name}}}"'
    return f"export {name}={word(value)}"


def _ray(plan: Plan, node: Node) -> list[str]:
    values: dict[str, Word] = {"own_address": Variable(address_variable(node))}
    if node.rank == 0:
        num_nodes = str(len(group_of(plan, node)))
        return [assignments({**values, "num_nodes": num_nodes}), body("ray_head.sh")]
    values["head_address"] = Variable(address_variable(first_node(plan, node)))
    return [assignments(values), body("ray_worker.sh")]
