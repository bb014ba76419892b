"""How many ranks share the model: what was wished, within what this machine and this model allow."""

from __future__ import annotations

from qanat.config.cluster_key import cluster_secret, missing_key_decision
from qanat.config.engine_config import EngineConfig
from qanat.config.machine import MachineInfo
from qanat.config.model_config import ModelConfig
from qanat.config.sharding import FLAG, check_size, possible_sizes
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

BACKEND_FLAG = "--distributed-executor-backend"


def tensor_parallel_size(
    wishes: EngineConfig, model: ModelConfig, machine: MachineInfo, said: list[Decision]
) -> int:
    """The number of ranks.

    More than the machine has cores for, or than the model can be shared by, becomes the largest number that both allow,
    so that command lines written for large machines run; a smaller number that does not divide the model is refused.
    Several hosts must agree on it, so there it is never lowered.

    Raises:
        ConfigError: a size that does not fit the model or the hosts, or one process for several ranks.
    """
    wanted = wishes.tensor_parallel_size
    if wishes.nnodes > 1:
        _check_hosts(wishes, model, machine, said)
        _backend(wishes, wanted, said)
        return wanted
    sizes = possible_sizes(model)
    most = max(size for size in sizes if size <= machine.num_cores) if machine.num_cores else 1
    got = wanted
    if wanted > most:
        got, why = (
            most,
            f"this process may use {machine.num_cores} cores, and more ranks would wait for each other",
        )
        if most == sizes[-1]:
            why = f"this model can be shared by at most {most} ranks"
        said.append(Decision(FLAG, wanted, got, why))
    else:
        check_size(model, wanted)
    _backend(wishes, got, said)
    return got


def _check_hosts(
    wishes: EngineConfig, model: ModelConfig, machine: MachineInfo, said: list[Decision]
) -> None:
    size, count = wishes.tensor_parallel_size, wishes.nnodes
    check_size(model, size)
    if machine.num_cores and size // count > machine.num_cores:
        raise ConfigError(
            f"{FLAG} {size} on {count} hosts is {size // count} ranks here, and this process may use "
            f"{machine.num_cores} cores. Lower it on all hosts, or take more hosts.",
            param=FLAG,
        )
    missing = missing_key_decision(wishes.master_addr)
    if missing is not None and cluster_secret("") is None:
        said.append(missing)


def _backend(wishes: EngineConfig, size: int, said: list[Decision]) -> None:
    wanted = wishes.distributed_executor_backend
    if wanted is None:
        return
    got = "uni" if size == 1 else "mp"
    if wanted == "uni" and size > 1:
        raise ConfigError(
            f"{BACKEND_FLAG} uni is one process, and {FLAG} {size} needs one for each rank: use mp, or leave the flag "
            "out.",
            param=BACKEND_FLAG,
        )
    if wanted != got:
        why = (
            "one rank needs no other process" if size == 1 else "ranks of one host are processes of their own"
        )
        said.append(Decision(BACKEND_FLAG, wanted, got, why))
