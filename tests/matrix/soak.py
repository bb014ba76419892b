"""Looks for faults in the lossless matrix for as long as one likes, or shows one again. See `scripts/soak`."""

from __future__ import annotations

import argparse
import resource
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.matrix.models import write_folders
from tests.matrix.scenario import Scenario
from tests.matrix.search import Search, report_of
from tests.matrix.serving import faults_of

NUM_EXAMPLES = 50
"""Examples of one seed; then comes the next one."""


def main() -> int:
    """Runs; the exit code is 1 if there is a fault."""
    parser = argparse.ArgumentParser(
        prog="scripts/soak --matrix", description="Answers in company against answers alone, at random."
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="default: 60")
    parser.add_argument("--seed", type=int, help="of the first examples; default: random")
    parser.add_argument(
        "--examples", type=int, default=NUM_EXAMPLES, help=f"of each seed; default: {NUM_EXAMPLES}"
    )
    parser.add_argument("--out", type=Path, default=Path(), help="folder for a scenario; default: here")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="runs the scenario in this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qanat-matrix-") as name:
        folder = Path(name)
        write_folders(folder)
        if options.replay is not None:
            return _replay(options.replay, folder)
        first = secrets.randbelow(10**6) if options.seed is None else options.seed
        return _search(folder, options.minutes * 60, first, options.examples, options.out)


def _replay(path: Path, folder: Path) -> int:
    faults = faults_of(Scenario.read(path), folder)
    _say("\n".join(faults) if faults else "Every answer is what it is alone.")
    return 1 if faults else 0


def _search(folder: Path, duration_s: float, seed: int, num_examples: int, out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    present = out.absolute() / "scenario-present.json"
    search = Search(folder, present=present)
    start_s = time.monotonic()
    while True:
        finding = search.run(seed, num_examples)
        memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spent_s = time.monotonic() - start_s
        _say(
            f"seed {seed}: {search.num_examples} examples so far in {spent_s:.0f} s, at most {memory_mib:.0f} MiB"
        )
        present.unlink(missing_ok=True)
        if finding is not None:
            _say(report_of(finding, seed, out.absolute() / f"scenario-{seed}.json"))
            return 1
        if spent_s >= duration_s:
            return 0
        seed += 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
