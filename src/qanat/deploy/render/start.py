"""Scripts that start and stop an engine or a proxy: in a container of the image, or as a process from source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import first_node, has_model_path, server_port
from qanat.deploy.render.addresses import family, in_url, local_address
from qanat.deploy.render.engine import engine_flags, is_disaggregated, stated_host, variables_used
from qanat.deploy.render.env_file import draft_path, threshold
from qanat.deploy.render.model import Files, RenderedFile, RenderOptions, Variable, Word
from qanat.deploy.render.names import (
    LABEL_DEPLOYMENT,
    LABEL_FOLDER,
    LABEL_NODE,
    LABEL_SETTINGS,
    LOGS_AT,
    MOUNTED_AT,
    SERVER_READY_PATH,
    container_name,
    deployment_name,
)
from qanat.deploy.render.serve import known_paths
from qanat.deploy.render.shell import (
    array,
    assignments,
    body,
    command,
    find_folder,
    quote,
    script,
    source_environment,
    word,
)
from qanat.deploy.rendered.env_values import (
    CACHE_DIR,
    DRAFT_PATH,
    LOG_DIR,
    MODEL_PATH,
    READY_TIMEOUT,
    address_variable,
    interface_variable,
)

NO_WAIT = "With --no-wait it does not wait until it answers."
CACHE_AT = "/root/.cache"


@dataclass(frozen=True)
class Runnable:
    """Something that runs in the background on a node: an engine, or the proxy.

    Attributes:
        name: of the node, or "proxy".
        folder: of its scripts, inside the deployment's.
        depth: folders between its scripts and the deployment's.
        what: for comments.
        needed: variables of env.sh that must not be empty.
        ready_url: a word of bash; two single quotes where it answers no requests.
        family: of addresses.
        settings_files: what decides how it runs, besides its start script and env.sh; inside the deployment's folder.
        other_variables: of env.sh that change nothing in how it runs.
        order: a sentence on what is started before; empty if nothing has to be.
    """

    name: str
    folder: str
    depth: int
    what: str
    needed: tuple[str, ...]
    ready_url: str
    family: str
    settings_files: tuple[str, ...]
    other_variables: tuple[str, ...]
    order: str = ""


@dataclass(frozen=True)
class HostFiles:
    """What a container gets of the host.

    Attributes:
        required: paths, or variables of env.sh that hold one, which must be there.
        optional: paths that are mounted where they are there.
        own: variables of env.sh that hold folders, which are made.
    """

    required: tuple[Word, ...] = ()
    optional: tuple[str, ...] = ()
    own: tuple[str, ...] = (LOG_DIR,)


def engine_runnable(plan: Plan, node: Node) -> Runnable:
    """The engine of a node."""
    port = server_port(plan, node)
    url = f'"http://{_host(plan, node)}:{port}{SERVER_READY_PATH}"' if port is not None else quote("")
    return Runnable(
        name=node.name,
        folder=f"nodes/{node.name}",
        depth=2,
        what=f"the engine of node {node.name}",
        needed=tuple(variables_used(plan, node)),
        ready_url=url,
        family=family(plan),
        settings_files=(f"nodes/{node.name}/serve.sh",),
        other_variables=other_variables(plan, (*variables_used(plan, node), address_variable(node))),
        order=f"Start {first_node(plan, node).name} first. " if node.rank > 0 else "",
    )


def other_variables(plan: Plan, used: Sequence[str]) -> tuple[str, ...]:
    """Variables of env.sh that change nothing in how something runs that reads those in `used`."""
    places = [name for node in plan.nodes for name in (address_variable(node), interface_variable(node))]
    return (READY_TIMEOUT, *(name for name in places if name not in used))


def _host(plan: Plan, node: Node) -> str:
    """Where the engine of a node answers, seen from the node itself; a piece of a word in double quotes."""
    stated = stated_host(plan, node)
    if stated is not None:
        return f"[{stated}]" if ":" in stated else stated
    own = address_variable(node)
    hosts = [flag.words for flag in engine_flags(plan, node) if flag.name == "--host"]
    return in_url(plan, f"${{{own}:-}}" if (Variable(own),) in hosts else local_address(plan))


def chip_of(plan: Plan) -> Chip:
    """The chip of a plan.

    Raises:
        ConfigError: the knowledge base has no such chip.
    """
    for chip in load_knowledge().chips:
        if chip.name == plan.chip:
            return chip
    known = ", ".join(chip.name for chip in load_knowledge().chips)
    raise ConfigError(
        f"the plan is for the chip {plan.chip}, which is not known; there are: {known}.", param="chip"
    )


def host_paths(plan: Plan, node: Node) -> tuple[list[str], list[str]]:
    """Paths of the host that a node's container needs, and those that it is given where they are there."""
    chip = chip_of(plan)
    required = [f"/dev/davinci{number}" for number in node.npus] + list(chip.devices)
    required += known_paths("mount", plan, is_required=True)
    optional = known_paths("mount", plan, is_required=False)
    if is_disaggregated(plan, node):
        required += chip.mounts
    else:
        optional += chip.mounts
    return required, optional


def engine_container(plan: Plan, node: Node) -> list[str]:
    """The pieces of `docker run` for the engine of a node, behind those that every container has."""
    chip = chip_of(plan)
    required, _ = host_paths(plan, node)
    pieces = ["--pid host"] if chip.needs_host_pids else []
    pieces += [f"--device {quote(path)}" for path in required if path.startswith("/dev/")]
    pieces += [f"--volume {quote(f'{path}:{path}:ro')}" for path in required if not path.startswith("/dev/")]
    if has_model_path(plan):
        pieces.append(f'--volume "${MODEL_PATH}":{quote(f"{plan.model_source}:ro")}')
    draft = draft_path(plan)
    if draft is not None:
        pieces.append(f'--volume "${DRAFT_PATH}":{quote(f"{draft}:ro")}')
    return [*pieces, f'--volume "${CACHE_DIR}:{CACHE_AT}"', '--shm-size "$SHM_SIZE"']


def container_files(
    plan: Plan,
    runnable: Runnable,
    pieces: Sequence[str],
    inner: Sequence[str],
    host: HostFiles,
    start_name: str,
) -> Files:
    """The scripts that start something in a container and stop it.

    Args:
        plan: the plan.
        runnable: what is started.
        pieces: of `docker run`, quoted.
        inner: what runs inside, in quoted pieces.
        host: what it gets of the host.
        start_name: file name of the start script.
    """
    values: dict[str, Word] = {
        "deployment": deployment_name(plan),
        "node": runnable.name,
        "container": container_name(plan, runnable.name),
        "image": plan.image,
    }
    parts = [
        *_head(runnable, values, start_name),
        array("required_paths", list(host.required)),
        array("optional_paths", list(host.optional)),
        array("own_folders", [Variable(name) for name in host.own]),
        body("say.sh"),
        body("arguments.sh"),
        body("needed.sh"),
        body("family.sh"),
        body("wait.sh"),
        body("settings.sh"),
        body("container.sh"),
        _docker_run(plan, runnable, pieces, inner),
        body("started.sh"),
    ]
    stop = [
        find_folder(runnable.depth),
        assignments(
            {"deployment": values["deployment"], "node": runnable.name, "stop_timeout_s": _stop_timeout()}
        ),
        body("say.sh"),
        body("stop_container.sh"),
    ]
    return _start_and_stop(runnable, start_name, " in a container", parts, stop)


def _docker_run(plan: Plan, runnable: Runnable, pieces: Sequence[str], inner: Sequence[str]) -> str:
    lines = [
        "docker run --detach --init",
        f"--name {quote(container_name(plan, runnable.name))}",
        f"--label {quote(f'{LABEL_DEPLOYMENT}={deployment_name(plan)}')}",
        f"--label {quote(f'{LABEL_NODE}={runnable.name}')}",
        f'--label "{LABEL_FOLDER}=$DEPLOYMENT_DIR"',
        f'--label "{LABEL_SETTINGS}=$settings"',
        "--network host",
        *pieces,
        f'--volume "$DEPLOYMENT_DIR:{MOUNTED_AT}:ro"',
        f'--volume "${LOG_DIR}:{LOGS_AT}"',
        '"${mounts[@]}"',
        f'--env "LOG_FILE={LOGS_AT}/$run.log"',
        "--entrypoint /bin/bash",
        '"$image"',
        *inner,
    ]
    return command(lines) + " >/dev/null"


def process_files(runnable: Runnable, start: Sequence[str], start_name: str) -> Files:
    """The scripts that start something as a process of this machine and stop it.

    Args:
        runnable: what is started.
        start: its command, a quoted word each.
        start_name: file name of the start script.
    """
    inner = "\n".join(f"  {piece}" for piece in start)
    parts = [
        *_head(runnable, {"node": runnable.name}, start_name),
        f"readonly -a start_command=(\n{inner}\n)",
        body("say.sh"),
        body("arguments.sh"),
        body("needed.sh"),
        body("family.sh"),
        body("wait.sh"),
        body("settings.sh"),
        body("process.sh"),
        body("start_process.sh"),
        body("started.sh"),
    ]
    stop = [
        source_environment(runnable.depth),
        assignments({"node": runnable.name, "stop_timeout_s": _stop_timeout()}),
        body("say.sh"),
        body("process.sh"),
        body("stop_process.sh"),
    ]
    return _start_and_stop(runnable, start_name, "", parts, stop)


def _start_and_stop(
    runnable: Runnable, start_name: str, where: str, start: Sequence[str], stop: Sequence[str]
) -> Files:
    """The script that starts something and the one that stops it; `where` is for the title."""
    title = f"Starts {runnable.what}{where}, or leaves it if it runs.\n{runnable.order}{NO_WAIT}"
    return {
        f"{runnable.folder}/{start_name}": RenderedFile(script(title, start), is_executable=True),
        f"{runnable.folder}/stop.sh": RenderedFile(
            script(f"Stops {runnable.what}, and nothing else.", stop), is_executable=True
        ),
    }


def _head(runnable: Runnable, values: dict[str, Word], start_name: str) -> list[str]:
    files = [f"{runnable.folder}/{start_name}", *runnable.settings_files]
    inner = "\n".join(f'  "$DEPLOYMENT_DIR"/{quote(file)}' for file in files)
    return [
        source_environment(runnable.depth),
        assignments({**values, "family": runnable.family}),
        f"readonly ready_url={runnable.ready_url}",
        array("needed_variables", list(runnable.needed)),
        f"readonly -a settings_files=(\n{inner}\n)",
        array("other_variables", list(runnable.other_variables)),
    ]


def _stop_timeout() -> str:
    return str(threshold("stop-timeout"))


def start_name(options: RenderOptions) -> str:
    """The name of the script that starts an engine."""
    return "container.sh" if options.install == "image" else "start.sh"


def engine_files(plan: Plan, node: Node, options: RenderOptions) -> Files:
    """The scripts that start and stop the engine of a node."""
    runnable = engine_runnable(plan, node)
    serve = f"{runnable.folder}/serve.sh"
    if options.install == "source":
        return process_files(runnable, ["bash", f'"$DEPLOYMENT_DIR"/{quote(serve)}'], start_name(options))
    required, optional = host_paths(plan, node)
    weights = [MODEL_PATH] if has_model_path(plan) else []
    weights += [DRAFT_PATH] if draft_path(plan) is not None else []
    host = HostFiles(
        required=(*required, *(Variable(name) for name in weights)),
        optional=tuple(optional),
        own=(LOG_DIR, CACHE_DIR),
    )
    inner = [word(f"{MOUNTED_AT}/{serve}")]
    return container_files(plan, runnable, engine_container(plan, node), inner, host, start_name(options))
