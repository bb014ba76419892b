"""The prefix cache on disk through the front doors: restarts, other kernels, and ends by force in the middle of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from qanat import LLM, SamplingParams
from tests.e2e.test_processes import holds_within
from tests.support.providers import built_kernels  # noqa: F401
from tests.support.server_process import ServerProcess, run_command

PARAMS = SamplingParams(max_tokens=6, temperature=0.7, seed=4, logprobs=1, ignore_eos=True)
PROMPTS = [[(7 * place + family) % 90 + 10 for place in range(700)] for family in range(6)]
WRITER = """
import sys
from qanat import LLM, SamplingParams
prompts = [[(7 * place + family) % 90 + 10 for place in range(700)] for family in range(6)]
model = LLM(sys.argv[1], max_model_len=1024, max_num_seqs=4, num_threads=1, prefix_cache_dir=sys.argv[2])
for prompt in prompts:
    model.generate(prompt, SamplingParams(max_tokens=6, temperature=0.7, seed=4, ignore_eos=True))
print("computed", flush=True)
model.shutdown()
print("written", flush=True)
"""


def answers(model: LLM) -> tuple[list[str], list[int]]:
    """What is said to each prompt, and how much of each was found."""
    results = [model.generate(prompt, PARAMS)[0] for prompt in PROMPTS]
    said = [repr([(one.token_ids, one.logprobs) for one in result.outputs]) for result in results]
    return said, [result.num_cached_tokens for result in results]


def open_model(model: Path, folder: Path | None, **options: object) -> LLM:
    settings: dict[str, object] = {"max_model_len": 1024, "max_num_seqs": 4, "num_threads": 1} | options
    if folder is not None:
        settings["prefix_cache_dir"] = str(folder)
    return LLM(str(model), **settings)


def test_a_restart_goes_on_where_the_last_one_ended(demo_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prefixes"
    with open_model(demo_model, folder) as model:
        cold, found = answers(model)
        assert found == [0] * len(PROMPTS)
    with open_model(demo_model, folder) as model:
        warm, found = answers(model)
        stats = model._engine.stats().prefixes
    assert warm == cold
    assert found == [640] * len(PROMPTS)
    assert stats.num_loaded_entries == stats.num_stored_entries > 0
    with open_model(demo_model, folder, kv_cache_dtype="int8") as model:
        stats = model._engine.stats().prefixes
        assert (stats.num_loaded_entries, stats.num_stored_entries) == (0, 0)
        assert stats.num_dropped_entries > 0


@pytest.mark.slow
@pytest.mark.parametrize("num_files", [0, 2, 6])
def test_an_end_by_force_leaves_what_loads_or_is_dropped(
    demo_model: Path, tmp_path: Path, num_files: int
) -> None:
    """The writer is killed as soon as there are so many whole files and one that is not."""
    folder = tmp_path / "prefixes"
    with open_model(demo_model, None) as model:
        cold, _ = answers(model)
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(demo_model), str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "computed\n"
        deadline_s = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline_s:
            names = os.listdir(folder)
            if sum(name.endswith(".prefix") for name in names) >= num_files and any(
                name.endswith(".new") for name in names
            ):
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        with open_model(demo_model, folder) as model:
            stats = model._engine.stats().prefixes
            assert stats.num_dropped_entries == 0, "what has a name is whole"
            assert stats.num_loaded_entries >= min(num_files, 1)
            assert not [name for name in os.listdir(folder) if name.endswith(".new")]
            warm, found = answers(model)
            assert warm == cold
            assert sum(found) > 0 or not num_files
            model._engine._core._prefixes = (
                None  # this one writes nothing: each round begins where the writer was
            )
        for path in folder.iterdir():
            path.unlink()


def ask(server: ServerProcess, text: str) -> tuple[str, int]:
    body = {"prompt": text, "max_tokens": 8, "temperature": 0}
    answer = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60).raise_for_status().json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def figure(server: ServerProcess, name: str) -> float:
    lines = server.get("/metrics").text.splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"qanat:prefix_cache_{name}")
    )


@pytest.mark.slow
def test_a_server_writes_while_it_is_idle_and_loads_before_it_is_ready(
    demo_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "prefixes"
    arguments = ["--model", str(demo_model), "--max-model-len", "1024", "--prefix-cache-dir", str(folder)]
    texts = [f"{word} and so on, " * 60 for word in ("one", "two", "three")]
    with ServerProcess(arguments) as server:
        cold = []
        for text in texts:
            before = figure(server, "disk_written_total")
            cold.append(ask(server, text))
            # Told when all that was computed has been written.
            assert holds_within(60, lambda: figure(server, "disk_written_total") > before)  # noqa: B023
        assert figure(server, "disk_entries") == figure(server, "disk_written_total")
        assert figure(server, "disk_bytes") > 0
        assert server.process is not None
        os.killpg(
            server.process.pid, signal.SIGKILL
        )  # what was written in an idle moment needs no orderly end
        for pid in server.child_pids() if server.process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
    with ServerProcess(arguments) as server:
        assert figure(server, "disk_loaded_total") > 0
        warm = [ask(server, text) for text in texts]
        assert [text for text, _ in warm] == [text for text, _ in cold]
        assert all(found > 0 for _, found in warm)
        last = "the last words " * 60
        said = ask(server, last)[0]
        assert server.stop() == 0
    with ServerProcess(arguments) as server:
        assert ask(server, last) == (said, pytest.approx(ask(server, last)[1], abs=0))
        assert ask(server, last)[1] > 0


@pytest.mark.slow
def test_each_rank_keeps_its_share(demo_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prefixes"
    with open_model(demo_model, folder, tensor_parallel_size=2) as model:
        cold, _ = answers(model)
    names = [path.name for path in folder.iterdir()]
    assert {name.rpartition("-")[2] for name in names} == {"0of2.prefix", "1of2.prefix"}
    other = next(path for path in sorted(folder.iterdir()) if path.name.endswith("1of2.prefix"))
    other.write_bytes(other.read_bytes()[:-9])
    with open_model(demo_model, folder, tensor_parallel_size=2) as model:
        stats = model._engine.stats().prefixes
        assert stats.num_dropped_entries >= 1, "rank 0 does without what rank 1 cannot read"
        assert stats.num_loaded_entries > 0
        warm, found = answers(model)
    assert warm == cold
    assert sum(found) > 0
    assert other.exists(), "and it is written again"


def test_a_folder_that_others_may_enter_is_refused(demo_model: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    result = run_command(["plan", str(demo_model), "--prefix-cache-dir", str(tmp_path)])
    assert result.returncode == 2
    assert "chmod 700" in result.stderr
    assert "--prefix-cache-dir" in result.stderr
