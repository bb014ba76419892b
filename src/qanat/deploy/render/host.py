"""host.sh: what a machine needs before the engine starts on it."""

from __future__ import annotations

from qanat.deploy.knowledge.kinds.hosts import HostSetting
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import has_model_path
from qanat.deploy.render.env_file import draft_path
from qanat.deploy.render.model import RenderedFile, RenderOptions, Variable, Word
from qanat.deploy.render.shell import array, assignments, body, script, source_environment
from qanat.deploy.rendered.env_values import DRAFT_PATH, MODEL_PATH


def host_script(plan: Plan, node: Node, options: RenderOptions) -> RenderedFile:
    """The script that prepares the machine of a node; what is right already stays as it is."""
    folders: list[Word] = [Variable(MODEL_PATH)] if has_model_path(plan) else []
    draft = draft_path(plan)
    if draft is not None:
        folders.append(Variable(DRAFT_PATH) if options.install == "image" else draft)
    values: dict[str, Word] = {"node": node.name}
    if options.install == "image":
        values["image"] = plan.image
    title = (
        f"Prepares the machine of node {node.name}: run it there, as root, before the engine is started.\n"
        "Exit codes: 0 all is as it should be; 3 it is ready, and some settings could not be made; 1 it is not ready."
    )
    parts = [
        source_environment(2),
        assignments(values),
        array("kernel_settings", _kernel_settings()),
        array("required_folders", folders),
        body("say.sh"),
        body("host.sh"),
        body("host_folders.sh"),
        body("host_image.sh") if options.install == "image" else "",
        body("host_end.sh"),
    ]
    return RenderedFile(script(title, parts), is_executable=True)


def _kernel_settings() -> list[Word]:
    """Name, rule, value and, where newer kernels keep it elsewhere, the file; one text each."""
    found: list[Word] = []
    for entry in load_knowledge().tables["host_settings"].entries.values():
        assert isinstance(entry, HostSetting)
        others = [path for path in entry.paths if not path.startswith("/proc/sys/")]
        found.append(" ".join([entry.name, entry.is_right_if, str(entry.value), *others[:1]]))
    return found
