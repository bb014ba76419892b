"""The scripts of checks/ against a real server, and with stand-ins for tools that are not installed here."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import Presence, must_parse
from qanat.deploy.plan.files import encode_plan
from qanat.deploy.plan.model import Plan
from qanat.deploy.render import checks
from qanat.deploy.render.load_steps import benchmark_of, capacity
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.render.names import container_name
from tests.deploy.plan.example_plans import PLANS, disaggregated, single_node, two_nodes
from tests.support.app_server import AppServer, serving

KNOWLEDGE = load_knowledge()
ADDRESSES = ("SERVER_0", "SERVER_1", "PREFILL_0", "DECODE_0")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{SYSTEM_PATH}")
NASTY = 'a\'b "c" $(touch hit) `d` \\ é'


@dataclass
class Folder:
    """A rendered folder; `run` starts one of its scripts."""

    path: Path

    def run(
        self, script: str, *arguments: str, tools: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script of checks/ with stand-ins first on the path."""
        path = f"{self.path / 'tools'}:{SYSTEM_PATH}" if tools else SYSTEM_PATH
        return subprocess.run(
            ["bash", str(self.path / "checks" / script), *arguments],
            env={"PATH": path, "HOME": str(self.path), "LC_ALL": "C.UTF-8", **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def tool(self, name: str, program: str) -> None:
        """Puts a stand-in on the path, in Python."""
        file = self.path / "tools" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!{sys.executable}\n{program}", encoding="utf-8")
        file.chmod(0o755)


@pytest.fixture(scope="module")
def server() -> Iterator[AppServer]:
    with serving() as running:
        yield running


def folder(path: Path, plan: Plan, options: RenderOptions | None = None, ready_timeout_s: int = 60) -> Folder:
    for name, file in checks.files(plan, options or RenderOptions()).items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text, encoding="utf-8")
        assert file.is_executable is name.endswith(".sh")
    lines = [f"ADDRESS_{name}=127.0.0.1" for name in ADDRESSES]
    lines += ["MODEL_PATH=/data/weights", f"INSTALL_DIR={path}/install", f"READY_TIMEOUT_S={ready_timeout_s}"]
    (path / "env.sh").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Folder(path)


def served_as(plan: Plan, name: str, port: int) -> Plan:
    """The plan with another name in requests, on another port."""
    role = plan.roles[0]
    flags = {**role.flags, "served-model-name": name, "port": port}
    roles = (msgspec.structs.replace(role, flags=flags),)
    return msgspec.structs.replace(plan, served_model_name=name, roles=roles, port=port)


@pytest.mark.parametrize("install", ["image", "source"])
@pytest.mark.parametrize("name", PLANS)
def test_scripts_pass_shellcheck(name: str, install: Any, tmp_path: Path) -> None:
    assert SHELLCHECK is not None
    for number, served in enumerate((PLANS[name]().served_model_name, NASTY)):
        made = tmp_path / str(number)
        plan = msgspec.structs.replace(PLANS[name](), served_model_name=served)
        folder(made, plan, RenderOptions(install=install))
        scripts = sorted(str(file) for file in (made / "checks").glob("*.sh"))
        assert len(scripts) == 3
        # A name that holds an expansion is meant to stay as it is: shellcheck would rather have it expanded.
        level = "warning" if served == NASTY else "style"
        command = [SHELLCHECK, f"--severity={level}", *scripts]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_verify_asks_a_server_and_is_content(tmp_path: Path, server: AppServer) -> None:
    made = folder(tmp_path, served_as(single_node(), "scripted", int(server.url.rsplit(":", 1)[1])))
    done = made.run("verify.sh", tools=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.endswith("ok")]
    assert lines == [[name, "ok"] for name in ("ready", "models", "completion", "chat", "stream")]


def test_verify_takes_another_address(tmp_path: Path, server: AppServer) -> None:
    made = folder(tmp_path, served_as(single_node(), "scripted", 1))
    done = made.run("verify.sh", f"{server.url}/", tools=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_verify_names_the_checks_that_failed(tmp_path: Path, server: AppServer) -> None:
    made = folder(tmp_path, served_as(single_node(), NASTY, int(server.url.rsplit(":", 1)[1])))
    done = made.run("verify.sh", tools=False)
    assert done.returncode == 1
    failed = re.findall(r"^(\w+) +failed: ", done.stdout, re.MULTILINE)
    assert failed == ["models", "completion", "chat", "stream"]
    assert "4 checks failed" in done.stderr
    assert not list(tmp_path.rglob("hit"))


def test_verify_gives_up_on_a_service_that_does_not_come(tmp_path: Path) -> None:
    made = folder(tmp_path, served_as(single_node(), "scripted", 1), ready_timeout_s=0)
    done = made.run("verify.sh", tools=False)
    assert done.returncode == 3
    assert "http://127.0.0.1:1/health is not ready after 0 s" in done.stderr


def test_verify_says_which_address_is_not_set(tmp_path: Path) -> None:
    made = folder(tmp_path, single_node())
    (tmp_path / "env.sh").write_text("ADDRESS_SERVER_0=\nREADY_TIMEOUT_S=0\n", encoding="utf-8")
    done = made.run("verify.sh", tools=False)
    assert done.returncode != 0
    assert "ADDRESS_SERVER_0: is not set in env.sh" in done.stderr


def test_verify_asks_qanat_with_the_plan_where_it_is_installed(tmp_path: Path, server: AppServer) -> None:
    plan = served_as(single_node(), "scripted", int(server.url.rsplit(":", 1)[1]))
    made = folder(tmp_path, plan)
    (tmp_path / "plan.yaml").write_text(encode_plan(plan), encoding="utf-8")
    made.tool("qanat", "import sys\nfrom qanat.cli.main import main\nsys.exit(main(sys.argv[1:]))")
    done = made.run("verify.sh")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "max_model_len is 2048, expected was 133000" in done.stdout
    assert "curl" not in done.stdout


class EmptyAnswers(BaseHTTPRequestHandler):
    """What the example proxies send when the decode engine fails: status 200 and nothing in it."""

    def do_GET(self) -> None:  # noqa: N802
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "qwen3.5"}]}' if self.path == "/v1/models" else b"")

    def do_POST(self) -> None:  # noqa: N802
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_verify_is_not_content_with_an_empty_answer(tmp_path: Path) -> None:
    made = folder(tmp_path, single_node())
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyAnswers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = made.run("verify.sh", f"http://127.0.0.1:{server.server_address[1]}", tools=False)
        server.shutdown()
    assert done.returncode == 1
    assert re.findall(r"^(\w+) +failed: ", done.stdout, re.MULTILINE) == ["completion", "chat", "stream"]


def test_verify_waits_for_every_engine_and_the_proxy_of_a_pair() -> None:
    text = checks.files(disaggregated(), RenderOptions())["checks/verify.sh"].text
    ready = next(line for line in text.splitlines() if line.startswith('  ready_urls=("'))
    assert re.findall(r"ADDRESS_(\w+):\?[^}]*}:(\d+)(/\w+)", ready) == [
        ("PREFILL_0", "30060", "/health"),
        ("DECODE_0", "30050", "/health"),
        ("PREFILL_0", "8010", "/healthcheck"),
    ]


VLLM = """
import json, sys
from pathlib import Path
options = {name: value for name, value in zip(sys.argv, sys.argv[1:]) if name.startswith("--")}
folder = Path(options["--result-dir"])
with open(Path.home() / "calls.jsonl", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
concurrency = int(options["--max-concurrency"])
result = {"output_throughput": 100.0 * concurrency, "mean_ttft_ms": 500, "mean_tpot_ms": 20.5, "failed": 0}
(folder / options["--result-filename"]).write_text(json.dumps(result))
"""


def calls(path: Path) -> list[list[str]]:
    return [json.loads(line) for line in (path / "calls.jsonl").read_text(encoding="utf-8").splitlines()]


def test_benchmark_runs_its_steps_and_shows_published_figures(tmp_path: Path) -> None:
    made = folder(tmp_path, single_node())
    made.tool("vllm", VLLM)
    done = made.run("benchmark.sh", PROMPTS_PER_CLIENT="2")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [int(call[call.index("--max-concurrency") + 1]) for call in calls(tmp_path)]
    assert steps == [1, 1, 4, 8, 16, 32]
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +\d+ ", line)]
    assert [row[0] for row in rows] == ["1", "4", "8", "16", "32"]
    assert rows[-1][1:5] == ["3200.0", "500", "20.50", "0"]
    assert " ".join(rows[-1][5:]) == "225 % of 1421.89"
    assert rows[0][5:] == []
    assert "1421.89 tokens/s: w8a8, A3, TP16 DP1, k 3, 3500 in, 1500 out, 32 at once" in done.stdout
    results = sorted(file.name for file in (tmp_path / "results" / "benchmark").iterdir())
    assert results == [*(f"at-{size}.json" for size in (1, 16, 32, 4, 8)), "warmup.json"]


@pytest.mark.parametrize("name", PLANS)
def test_benchmark_uses_flags_that_every_release_has(name: str, tmp_path: Path) -> None:
    made = folder(tmp_path, PLANS[name]())
    made.tool("vllm", VLLM)
    assert made.run("benchmark.sh").returncode == 0
    for call in calls(tmp_path):
        assert call[:2] == ["bench", "serve"]
        for flag in (word for word in call if word.startswith("--")):
            for release in KNOWLEDGE.releases:
                presence = KNOWLEDGE.bench_flags.presence(f"serve {flag}", must_parse(release.name))
                assert presence is Presence.PRESENT, (flag, release.name)


def test_benchmark_passes_names_unchanged(tmp_path: Path) -> None:
    made = folder(tmp_path, msgspec.structs.replace(single_node(), served_model_name=NASTY))
    made.tool("vllm", VLLM)
    assert made.run("benchmark.sh").returncode == 0
    call = calls(tmp_path)[0]
    assert call[call.index("--served-model-name") + 1] == NASTY
    assert call[call.index("--tokenizer") + 1] == "/data/models/Qwen3.5-397B-A17B-w8a8-mtp"
    assert not list(tmp_path.rglob("hit"))


def test_benchmark_stops_where_a_step_fails(tmp_path: Path) -> None:
    made = folder(tmp_path, single_node())
    made.tool("vllm", "raise SystemExit(7)")
    done = made.run("benchmark.sh")
    assert done.returncode == 7
    assert "published" not in done.stdout.lower()


@pytest.mark.parametrize("value", ["0", "-1", "many", "1 2"])
def test_benchmark_refuses_a_bad_number_of_prompts(value: str, tmp_path: Path) -> None:
    made = folder(tmp_path, single_node())
    made.tool("vllm", VLLM)
    done = made.run("benchmark.sh", PROMPTS_PER_CLIENT=value)
    assert done.returncode == 2 and "PROMPTS_PER_CLIENT" in done.stderr


def test_benchmark_needs_vllm_or_its_container(tmp_path: Path) -> None:
    made = folder(tmp_path, single_node())
    made.tool("docker", "raise SystemExit(1)")
    done = made.run("benchmark.sh")
    assert done.returncode == 2 and container_name(single_node(), "server-0") in done.stderr


DOCKER = """
import os, sys
words = sys.argv[1:]
if words[0] == "container":
    raise SystemExit(0)
assert words[:2] == ["exec", "--interactive"], words
os.environ["PATH"] = os.environ["HOME"] + "/inside:" + os.environ["PATH"]
os.execvp(words[3], words[3:])
"""


def test_benchmark_reaches_into_the_container(tmp_path: Path) -> None:
    made = folder(tmp_path, two_nodes())
    made.tool("vllm", VLLM)
    os.rename(tmp_path / "tools", tmp_path / "inside")
    made.tool("docker", DOCKER)
    done = made.run("benchmark.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "results" / "benchmark" / "at-32.json").exists()


def test_benchmark_finds_vllm_in_the_virtual_environment(tmp_path: Path) -> None:
    made = folder(tmp_path, single_node(), RenderOptions(install="source"))
    made.tool("vllm", VLLM)
    os.renames(tmp_path / "tools", tmp_path / "install" / "venv" / "bin")
    done = made.run("benchmark.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "results" / "benchmark" / "at-32.json").exists()


def test_accuracy_asks_lm_eval_for_untokenised_requests(tmp_path: Path) -> None:
    made = folder(tmp_path, single_node())
    made.tool(
        "lm_eval",
        VLLM.split("options")[0] + "open(Path.home() / 'calls.jsonl', 'w').write(json.dumps(sys.argv[1:]))",
    )
    done = made.run("accuracy.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    call = calls(tmp_path)[0]
    arguments = dict(pair.split("=") for pair in call[call.index("--model_args") + 1].split(","))
    assert call[call.index("--tasks") + 1] == "gsm8k"
    assert arguments["tokenized_requests"] == "False" and arguments["num_concurrent"] == "32"
    assert arguments["base_url"] == "http://127.0.0.1:8010/v1/completions"
    assert arguments["tokenizer"] == "/data/weights"
    assert "gsm8k 96.74: w8a8, A3" in done.stdout


def test_accuracy_tells_aisbench_where_the_service_is(tmp_path: Path) -> None:
    made = folder(tmp_path, two_nodes())
    names = "('SERVICE_HOST', 'SERVICE_PORT', 'SERVICE_TOKENIZER')"
    made.tool("ais_bench", f"import os, sys\nprint(sys.argv[1], *(os.environ[one] for one in {names}))")
    done = made.run("accuracy.sh", "aisbench", "http://10.0.0.7:9000/")
    assert done.returncode == 0, done.stdout + done.stderr
    settings = tmp_path / "checks" / "aisbench_gsm8k.py"
    assert done.stdout.splitlines()[0] == f"{settings} 10.0.0.7 9000 Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp"


def test_settings_of_aisbench_hold_the_name_as_it_is(tmp_path: Path) -> None:
    name = "é \U0001f600 \"quoted\" 'too' \\"
    folder(tmp_path, msgspec.structs.replace(two_nodes(), served_model_name=name))
    tree = ast.parse((tmp_path / "checks" / "aisbench_gsm8k.py").read_text(encoding="utf-8"))
    (value,) = [one.value for one in ast.walk(tree) if isinstance(one, ast.keyword) and one.arg == "model"]
    assert ast.literal_eval(value) == name


@pytest.mark.parametrize(
    ("arguments", "message"), [((), "lm-eval"), (("aisbench",), "ais-bench"), (("other",), "other")]
)
def test_accuracy_says_what_is_missing(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = folder(tmp_path, single_node()).run("accuracy.sh", *arguments, tools=False)
    assert done.returncode == 2 and message in done.stderr


def test_steps_go_up_to_what_the_service_is_for() -> None:
    for build in PLANS.values():
        plan = build()
        steps = benchmark_of(plan, KNOWLEDGE).steps
        sizes = [step.concurrency for step in steps]
        assert sizes == sorted(set(sizes)) and sizes[-1] == capacity(plan)


def test_many_steps_keep_the_single_request() -> None:
    plan = single_node()
    wish = msgspec.structs.replace(plan.wish, concurrency=1000)
    sizes = [
        step.concurrency for step in benchmark_of(msgspec.structs.replace(plan, wish=wish), KNOWLEDGE).steps
    ]
    assert sizes == [1, 125, 160, 250, 500, 1000]


def test_capacity_without_a_wish_is_that_of_all_ranks() -> None:
    plan = two_nodes()
    plan = msgspec.structs.replace(plan, wish=msgspec.structs.replace(plan.wish, concurrency=None))
    assert capacity(plan) == 32


@pytest.mark.parametrize(("window", "lengths"), [(133000, (3500, 1500)), (4096, (2048, 1024)), (1, (1, 1))])
def test_lengths_fit_the_window(window: int, lengths: tuple[int, int]) -> None:
    plan = single_node()
    role = plan.roles[0]
    roles = (msgspec.structs.replace(role, flags={**role.flags, "max-model-len": window}),)
    benchmark = benchmark_of(msgspec.structs.replace(plan, roles=roles), KNOWLEDGE)
    assert (benchmark.input_tokens, benchmark.output_tokens) == lengths
