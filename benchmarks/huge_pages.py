"""What it brings that mapped weights are copied to huge pages: products from the file's pages and from the copy.

    python -m benchmarks.huge_pages FOLDER [--num-threads 1] [--rounds 25]

FOLDER is a checkpoint. One row goes through every large matrix, in turn from either place, within one process: prints
GB/s of both at their best, and the median of the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from qanat.config.model_config import ModelConfig
from qanat.core.cache_folder import CacheFolder
from qanat.kernels import ops
from qanat.kernels.providers import choose_providers
from qanat.models.huge_pages import copy_in_background
from qanat.models.loader import LoadReport, load_model
from qanat.models.packed_cache import WRITER_NAME

LARGE_BYTES = 2 * 2**20
NUM_TRIES = 3


def load_mapped(folder: Path, cache: CacheFolder) -> LoadReport:
    """Loads twice: the first time writes what the second maps."""
    config = ModelConfig.from_folder(folder)
    load_model(folder, config, torch.bfloat16, "cpu", cache=cache)
    for thread in threading.enumerate():
        if thread.name == WRITER_NAME:
            thread.join()
    return load_model(folder, config, torch.bfloat16, "cpu", cache=cache)[1]


def main() -> None:
    """Reads the command line, measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num-threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    choose_providers(options.num_threads)
    with tempfile.TemporaryDirectory(prefix="qanat-huge-pages-") as work:
        kept = load_mapped(options.folder, CacheFolder(Path(work) / "packed")).kept
        assert kept is not None, "the second start maps what the first one has packed"
        weights = [each for each in kept.weights if each.nbytes >= LARGE_BYTES]
        places = {"mapped": [each.address for each in weights]}
        copy_in_background(kept, lambda: "").join()
        places["copy"] = [each.address for each in weights]
        plain = [each for each in weights if not each.header()["is_stack"]]
        rows = {
            each.header()["num_inputs"]: torch.randn(1, each.header()["num_inputs"]).bfloat16()
            for each in plain
        }

        def best_s(place: str) -> float:
            for weight, address in zip(weights, places[place], strict=True):
                weight.move_to(address)
            times = []
            for _ in range(NUM_TRIES + 1):
                begin = time.perf_counter()
                for weight in plain:
                    ops.linear(rows[weight.header()["num_inputs"]], weight)
                times.append(time.perf_counter() - begin)
            return min(times[1:])

        found = [(best_s("mapped"), best_s("copy")) for _ in range(options.rounds)]
        num_bytes = sum(each.nbytes for each in plain)
        mapped, copy = (num_bytes / min(times) / 1e9 for times in zip(*found, strict=True))
        ratio = statistics.median(old / new for old, new in found)
        sys.stdout.write(
            f"mapped {mapped:.2f} GB/s, copy {copy:.2f} GB/s, {ratio:.2f} times as fast (median)\n"
        )


if __name__ == "__main__":
    main()
