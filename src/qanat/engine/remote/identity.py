"""Who a process of the service is, and what must be equal everywhere for its answers to be."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import socket
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.config.weight_digest import weight_digest
from qanat.core.comparing import python_version
from qanat.core.printable import quoted


class HostReport(msgspec.Struct, frozen=True):
    """What a process tells of itself before it takes part.

    Attributes:
        host, pid: where and what it is.
        address, interface: over which it talks with the others.
        process_id: of this process and no other, on whatever host.
        replicas: data-parallel ranks that it serves.
        traits: what must be equal everywhere, by name.
    """

    host: str
    pid: int
    address: str
    interface: str
    process_id: str
    replicas: tuple[int, ...]
    traits: dict[str, str]

    @property
    def name(self) -> str:
        """For messages."""
        return f"process {self.pid} on {quoted(self.host)} ({quoted(self.address)}, {quoted(self.interface)})"


_PROCESS_ID = uuid.uuid4().hex


def report_of(replicas: tuple[int, ...], address: str, interface: str, traits: dict[str, str]) -> HostReport:
    """This process's own."""
    return HostReport(socket.gethostname(), os.getpid(), address, interface, _PROCESS_ID, replicas, traits)


def traits_of(config: ResolvedConfig) -> dict[str, str]:
    """What decides about answers; paths, threads and memory are each host's own affair.

    Reads the tokenizer, and of the weights the headers and a little of the rest.

    Raises:
        OSError: a file cannot be read.
    """
    from qanat import __version__

    return {
        "qanat": __version__,
        "torch": _version("torch"),
        "llguidance": _version("llguidance"),
        "python": python_version(),
        "--data-parallel-size": str(config.parallel.data_parallel_size),
        "--tensor-parallel-size": str(config.tensor_parallel_size),
        "config.json": _digest(msgspec.msgpack.encode(config.model)),
        "weights": weight_digest(Path(config.model_path)) if config.load_format != "dummy" else "random",
        "tokenizer.json": _tokenizer_digest(Path(config.model_path) / "tokenizer.json"),
        "--dtype": config.dtype,
        "--seed": str(config.seed),
        "--max-model-len": str(config.scheduler.max_model_len),
        "--scheduling-policy": config.scheduler.policy,
        "--block-size": str(config.cache.block_size),
        "--kv-cache-dtype": config.cache.kv_cache_dtype,
        "--max-logprobs": str(config.max_logprobs),
        "--enable-nan-check": str(config.is_nan_check_enabled).lower(),
        "--structured-outputs-config": _digest(msgspec.msgpack.encode(config.structured)),
    }


def replica_names(replicas: Sequence[int]) -> str:
    """For messages: "replica 3", "replicas 1 and 3", "replicas 1, 2 and 3"."""
    texts = [str(replica) for replica in replicas]
    if len(texts) == 1:
        return f"replica {texts[0]}"
    return f"replicas {', '.join(texts[:-1])} and {texts[-1]}" if texts else "no replica"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _tokenizer_digest(path: Path) -> str:
    return _digest(path.read_bytes()) if path.is_file() else "none"
