"""The scripts of checks/: does the service answer, how fast, how well.

What is the same for every deployment is a file of `bodies/`; what is this one's goes before it.
"""

from __future__ import annotations

import json

from qanat.deploy.baselines import Setup, layout_text, published_accuracies
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.numbers import Baseline
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.places import decoding_role, first_engine, has_model_path
from qanat.deploy.render import shell
from qanat.deploy.render.load_steps import Benchmark, benchmark_of, capacity
from qanat.deploy.render.model import Files, RenderedFile, RenderOptions, Word
from qanat.deploy.render.names import container_name
from qanat.deploy.render.serve import known_paths
from qanat.deploy.render.service import models_urls, ready_urls, service_url
from qanat.deploy.rendered.env_values import INSTALL_DIR, MODEL_PATH

LONGEST_ANSWER = 10240
"""Tokens of one answer in accuracy tests, as in the published ones with gsm8k; thinking takes most of them."""
VERIFY = """Checks that the service answers as it should: verify.sh [URL]
Exit code 0: it does. 1: a check failed. 2: something is missing here. 3: it is not ready in time.
READY_TIMEOUT_S of env.sh says how long it waits for that."""
BENCHMARK = """Measures tokens per second and latencies at growing load: benchmark.sh [URL]
Runs on the node of the container that is named below, inside of it, or anywhere vllm is installed.
Exit code 0: all steps ran. 1: a step failed. 2: something is missing here.
RESULTS_DIR says where results go, PROMPTS_PER_CLIENT how long a step lasts."""
ACCURACY = """Measures accuracy on gsm8k: accuracy.sh [lm_eval|aisbench] [URL]
lm_eval asks for plain completions, aisbench for chat answers with thinking: their scores differ.
Exit code 2: the tool is not installed here."""


def files(plan: Plan, options: RenderOptions) -> Files:
    """checks/verify.sh, benchmark.sh, accuracy.sh and the settings of AISBench.

    Args:
        plan: the deployment.
        options: with `install` "source" programs are in a virtual environment, not in a container.
    """
    knowledge = load_knowledge()
    return {
        "checks/verify.sh": _script(VERIFY, _verify_head(plan), "verify.sh"),
        "checks/benchmark.sh": _script(BENCHMARK, _benchmark_head(plan, options, knowledge), "benchmark.sh"),
        "checks/accuracy.sh": _script(ACCURACY, _accuracy_head(plan, options, knowledge), "accuracy.sh"),
        "checks/aisbench_gsm8k.py": RenderedFile(_aisbench(plan)),
    }


def _script(title: str, head: list[str], piece: str) -> RenderedFile:
    text = shell.script(title, [shell.source_environment(1), "\n".join(head), shell.body(piece)])
    return RenderedFile(text, is_executable=True)


def _verify_head(plan: Plan) -> list[str]:
    name = plan.served_model_name
    message = {"role": "user", "content": "What is 17 + 25? Answer with the number."}
    chat = {"model": name, "messages": [message], "max_tokens": 64, "temperature": 0}
    bodies = {
        "completion_body": {"model": name, "prompt": "1, 2, 3, 4,", "max_tokens": 8, "temperature": 0},
        "chat_body": chat,
        "stream_body": {**chat, "stream": True},
    }
    return [
        shell.assignments({"model": name, "quoted_model": json.dumps(name, ensure_ascii=False)}),
        shell.assignments({key: json.dumps(body) for key, body in bodies.items()}),
        "if (($# > 0)); then",
        '  url="${1%/}"',
        "  ready_urls=()",
        '  models_urls=("$url/v1/models")',
        "else",
        f'  url="{service_url(plan)}"',
        f"  ready_urls=({_in_double_quotes(ready_urls(plan))})",
        f"  models_urls=({_in_double_quotes(models_urls(plan))})",
        "fi",
        "readonly url ready_urls models_urls",
    ]


def _in_double_quotes(urls: list[str]) -> str:
    return " ".join(f'"{url}"' for url in urls)


def _benchmark_head(plan: Plan, options: RenderOptions, knowledge: Knowledge) -> list[str]:
    benchmark = benchmark_of(plan, knowledge)
    shares = [" ".join(f"{one.value:g}" for one in step.comparable) for step in benchmark.steps]
    names: dict[str, Word] = {
        "served_model_name": plan.served_model_name,
        "tokenizer": plan.model_source,
        "container": container_name(plan, first_engine(plan).name),
        "input_tokens": str(benchmark.input_tokens),
        "output_tokens": str(benchmark.output_tokens),
    }
    return [
        f'readonly url="${{1:-{service_url(plan)}}}"',
        shell.assignments(names),
        shell.array("environment_scripts", list(known_paths("environment_script", plan))),
        *_virtual_environment(options),
        'readonly results_dir="${RESULTS_DIR:-$DEPLOYMENT_DIR/results/benchmark}"',
        'readonly num_prompts_per_client="${PROMPTS_PER_CLIENT:-4}"',
        shell.array("concurrencies", [str(step.concurrency) for step in benchmark.steps]),
        "# Figures of the same layout and nearly the same load, one entry a step.",
        shell.array("published_values", shares),
        shell.array("published_texts", published_throughputs(benchmark) or ["none for this model"]),
        shell.assignments({"summary_program": shell.body("benchmark_summary.py.txt")}),
    ]


def _virtual_environment(options: RenderOptions) -> list[str]:
    return [f'export PATH="${INSTALL_DIR}/venv/bin:$PATH"'] if options.install == "source" else []


def published_throughputs(benchmark: Benchmark) -> list[str]:
    """The published figures that are nearest to the steps of a benchmark, in words."""
    found = {one.name: one for step in benchmark.steps for one in step.nearest}
    return [f"{one.value:g} tokens/s: {_described(one)}" for one in found.values()]


def _described(baseline: Baseline) -> str:
    doubt = "" if baseline.confidence in ("source", "documentation") else f"; {baseline.confidence}"
    return f"{layout_text(baseline)} ({baseline.source}{doubt})"


def _accuracy_head(plan: Plan, options: RenderOptions, knowledge: Knowledge) -> list[str]:
    found = published_accuracies(Setup.of(plan), knowledge)
    texts: list[Word] = [f"{one.dataset} {one.value:g}: {_described(one)}" for one in found]
    names: dict[str, Word] = {
        "served_model_name": plan.served_model_name,
        "num_concurrent": str(capacity(plan)),
    }
    tokenizer = [shell.assignments({"tokenizer": plan.model_source})]
    if has_model_path(plan) and options.install == "image":
        tokenizer = [
            "# Containers see the weights under one name, the host under another.",
            f"tokenizer={shell.quote(plan.model_source)}",
            'if [[ ! -e "$tokenizer" ]]; then',
            f'  tokenizer="${MODEL_PATH}"',
            "fi",
            "readonly tokenizer",
        ]
    return [
        'readonly tool="${1:-lm_eval}"',
        f'readonly url="${{2:-{service_url(plan)}}}"',
        shell.assignments(names),
        *tokenizer,
        *_virtual_environment(options),
        'readonly results_dir="${RESULTS_DIR:-$DEPLOYMENT_DIR/results/accuracy}"',
        shell.array("published_texts", texts or ["none"]),
    ]


def _aisbench(plan: Plan) -> str:
    window = decoding_role(plan).flags.get("max-model-len")
    longest = min(LONGEST_ANSWER, window // 2) if isinstance(window, int) else LONGEST_ANSWER
    head, tail = shell.body("aisbench_gsm8k.py.txt").split("# settings\n")
    settings = {"model": plan.served_model_name, "batch_size": capacity(plan), "max_out_len": longest}
    lines = [f"        {name}={value!r},\n" for name, value in settings.items()]
    return head + "".join(lines) + tail
