"""Scripts that start and stop an engine or a proxy: in a container of the image, or as a process from source."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import has_model_path
from qanat.deploy.render.env_file import draft_path, threshold
from qanat.deploy.render.model import Files, RenderedFile, RenderOptions, Variable, Word
from qanat.deploy.render.names import (
    LABEL_DEPLOYMENT,
    LABEL_FOLDER,
    LABEL_NODE,
    LABEL_SETTINGS,
    LOGS_AT,
    MOUNTED_AT,
    container_name,
    deployment_name,
)
from qanat.deploy.render.runnable import CACHE_AT, HostFiles, Runnable, chip_of, engine_runnable, host_paths
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
)

NO_WAIT = "With --no-wait it does not wait until it answers."


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
