"""`qanat deploy render`: a plan as a folder of scripts, manifests and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from qanat.cli.command import Command
from qanat.cli.deploy_actions.plan import WishFlags, read_wish
from qanat.cli.reading import read_action, say, say_json
from qanat.cli.terminal import tell
from qanat.config.flag_names import flag_of
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.plan.model import Plan
    from qanat.deploy.render.write import Change

ENV_NAME = "env.sh"


@dataclass(frozen=True, kw_only=True)
class RenderFlags(WishFlags):
    """Render."""

    language: Literal["en", "zh"] = option(Kind.TEXT, "en", "Language of the README.", choices=("en", "zh"))
    install: Literal["image", "source"] = option(
        Kind.TEXT,
        "image",
        "Whether engines run in the image of the release, or from source at the tags that pair.",
        choices=("image", "source"),
    )
    router_image: str = option(
        Kind.TEXT,
        "",
        "An image with Qanat, for Kubernetes to run the router of --proxy qanat in. Default: no manifests for such "
        "a plan.",
    )
    dry_run: bool = option(Kind.SWITCH, False, "Tell what would be written, and write nothing.")
    overwrite: bool = option(
        Kind.SWITCH,
        False,
        "Also replace files that were edited since they were rendered, or that others made.",
    )
    json: bool = option(Kind.SWITCH, False, "Write JSON: what became of each file.")


COMMAND = Command(
    name="deploy render",
    summary="Write scripts, manifests and a README that run a plan.",
    description=(
        "Takes the plan that `qanat deploy plan --output` wrote, or makes one of the same flags, and writes a folder\n"
        "that runs it: env.sh, the one file to edit, for each node scripts that prepare the machine, start the\n"
        "container and stop it, the proxy of disaggregated serving, checks, manifests, and a README that says what\n"
        "to do in which order.\n"
        "The folder is written as a whole or not at all. What is right already is not touched, files of others stay,\n"
        "and so do edits of env.sh; nothing outside of the folder is written."
    ),
    examples=(
        "qanat deploy render plan.yaml deployment/",
        "qanat deploy render deployment/ --model Qwen3.5-35B-A3B --hardware atlas-800-a3 --concurrency 64",
        "qanat deploy render plan.yaml deployment/ --language zh --install source",
    ),
    groups=(WishFlags,),
    own=RenderFlags,
    word="PLAN FOLDER",
    word_help="The plan, unless flags say what is asked for, and the folder to write.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat deploy render`; returns the exit code.

    Raises:
        ConfigError: no plan or no folder, a plan that cannot be read or rendered, an impossible wish, or a folder
            that cannot be written.
    """
    flags, words = read_action(COMMAND, RenderFlags, arguments)
    plan, folder = _plan_and_folder(flags, words)
    from qanat.deploy.render.folder import render
    from qanat.deploy.render.model import RenderOptions
    from qanat.deploy.render.write import write_folder

    _check_router_image(flags, plan)
    options = RenderOptions(language=flags.language, install=flags.install, router_image=flags.router_image)
    files = render(plan, options)
    changes = write_folder(folder, files, is_overwriting=flags.overwrite, is_dry_run=flags.dry_run)
    if flags.json:
        report = {
            "folder": str(folder),
            "is_dry_run": flags.dry_run,
            "files": [asdict(one) for one in changes],
        }
        say_json(report)
    else:
        _tell_changes(folder, changes, flags.dry_run)
    empty = _empty_variables(folder, files[ENV_NAME].text)
    if empty:
        tell(f"set in {folder / ENV_NAME} what the plan does not say: {', '.join(empty)}")
    for warning in plan.warnings:
        tell(f"note: {warning}")
    return 0


def _check_router_image(flags: RenderFlags, plan: Plan) -> None:
    from qanat.deploy.render.proxy import is_router

    if flags.router_image and (plan.proxy is None or not is_router(plan.proxy) or flags.install == "source"):
        raise ConfigError(
            "--router-image is for manifests of a plan with `qanat router`: give it with a disaggregated plan, "
            "--proxy qanat and --install image.",
            param="--router-image",
        )


def _plan_and_folder(flags: RenderFlags, words: Sequence[str]) -> tuple[Plan, Path]:
    """The plan of the file or of the flags, and the folder to write."""
    wished = [one.name for one in fields(WishFlags) if getattr(flags, one.name) is not None]
    if len(words) not in (1, 2):
        raise ConfigError(
            "name a plan and the folder to write, e.g. qanat deploy render plan.yaml deployment/; "
            "qanat deploy plan ... --output plan.yaml makes a plan."
        )
    if len(words) == 2:
        if wished:
            flag = flag_of(wished[0])
            raise ConfigError(
                f"{flag} is part of the plan {words[0]} already; give a plan or flags.", param=flag
            )
        from qanat.deploy.plan.files import read_plan_file

        return read_plan_file(Path(words[0])), Path(words[1])
    if not wished:
        raise ConfigError(
            f"{words[0]} alone is not enough: name a plan and the folder to write, or the folder with --model and "
            "--hardware."
        )
    wish = read_wish(flags)
    from qanat.deploy.plan.planner import plan

    return plan(wish), Path(words[0])


def _tell_changes(folder: Path, changes: Sequence[Change], is_dry_run: bool) -> None:
    shown = [one for one in changes if one.state != "unchanged" or one.note]
    for one in shown:
        say(f"{one.state:8} {one.path}{f'  ({one.note})' if one.note else ''}")
    counts = {
        state: sum(one.state == state for one in changes) for state in dict.fromkeys(c.state for c in changes)
    }
    told = ", ".join(f"{number} {state}" for state, number in counts.items())
    say(f"{folder}: {told}{'; nothing was written (--dry-run)' if is_dry_run else ''}")


def _empty_variables(folder: Path, rendered: str) -> list[str]:
    """Variables that a person still has to fill in, in the file as it is now."""
    from qanat.deploy.rendered.env_values import read_values

    try:
        text = (folder / ENV_NAME).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = rendered
    return [name for name, value in read_values(text).items() if not value]
