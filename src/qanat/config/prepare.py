"""The one road from wishes to a resolved configuration, for the command line and for Python alike."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.config.engine_config import EngineConfig
from qanat.config.env import Environment, read_environment
from qanat.config.honour import honour
from qanat.config.machine import MachineInfo, read_machine
from qanat.config.model_config import ModelConfig
from qanat.config.model_source import locate_model
from qanat.config.quantization import checkpoint_quantization
from qanat.config.resolve import resolve
from qanat.config.resolved import ResolvedConfig
from qanat.config.unbuilt import check_refused
from qanat.core.decision import Decision


@dataclass(frozen=True)
class Prepared:
    """What is known before anything is loaded.

    Attributes:
        wishes: with variables such as VLLM_API_KEY filled in; the server takes its options from here.
        config: the resolved configuration.
        decisions: everything that was derived or came out otherwise, in the order in which it was settled.
        machine: as it was found.
    """

    wishes: EngineConfig
    config: ResolvedConfig
    decisions: tuple[Decision, ...]
    machine: MachineInfo


def prepare(
    wishes: EngineConfig, environment: Environment | None = None, machine: MachineInfo | None = None
) -> Prepared:
    """Reads variables, machine and checkpoint, and settles every setting.

    Args:
        wishes: what was asked for.
        environment: this process's variables unless given.
        machine: this machine unless given.

    Raises:
        ConfigError: a wish that cannot be fulfilled.
        CheckpointError: the model's folder cannot be served.
    """
    environment = environment or read_environment()
    machine = machine or read_machine()
    check_refused(wishes)
    wishes, filled = honour(wishes, environment)
    folder, found = locate_model(wishes, environment)
    model = ModelConfig.from_folder(folder)
    config, decisions = resolve(
        wishes,
        model,
        machine,
        environment,
        model_path=str(folder),
        quantization=checkpoint_quantization(folder, model),
    )
    return Prepared(wishes, config, (*filled, *found, *decisions), machine)
