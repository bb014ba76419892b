"""What a person does with a deployment, with the commands: the README's steps."""

from __future__ import annotations

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.markdown_text import code, commands, escaped
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.places import first_engine, has_model_path, server_port
from qanat.deploy.render.addresses import in_url
from qanat.deploy.render.checks import published_throughputs
from qanat.deploy.render.env_file import env_settings, threshold
from qanat.deploy.render.kubernetes import base_name, client_port, groups, is_rendered
from qanat.deploy.render.load_steps import benchmark_of
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.render.names import PROXY_NAME, container_name
from qanat.deploy.render.proxy import is_router
from qanat.deploy.render.readme_texts import Texts
from qanat.deploy.render.runnable import CACHE_AT
from qanat.deploy.render.shell import quote
from qanat.deploy.render.start import start_name
from qanat.deploy.rendered.env_values import MODEL_PATH, address_variable

INDENT = "   "


def steps(plan: Plan, options: RenderOptions, text: Texts) -> list[str]:
    """From an empty machine to a verified service, numbered; the list is one paragraph."""
    names = [node.name for node in plan.nodes]
    found: list[tuple[str, list[str]]] = [(_env_step(plan, options, text), [])]
    if len(names) > 1:
        found.append((text("step_copy"), _copies(plan)))
    if has_model_path(plan):
        found.append(_weights_step(plan, options, text))
    fetches = text("fetches_image" if options.install == "image" else "fetches_nothing")
    found.append((text("step_host", fetches=fetches), [f"sudo bash nodes/{name}/host.sh" for name in names]))
    if options.install == "source":
        found.append((text("step_source"), ["bash install/source.sh"]))
    first = len(found) + 1
    found.append((text("step_preflight"), [f"qanat deploy preflight . --node {name}" for name in names]))
    found.append((text("step_start"), [f"bash nodes/{name}/{start_name(options)}" for name in names]))
    if plan.proxy is not None:
        found.append((text("step_proxy", node=code(plan.proxy.node)), ["bash proxy/proxy.sh"]))
    found.append((text("step_verify"), ["bash checks/verify.sh"]))
    items = []
    for number, (words, lines) in enumerate(found, 1):
        block = f"\n\n{commands(lines, INDENT)}" if lines else ""
        items.append(f"{f'{number}.':<3}{words}{block}" if number < 10 else f"{number}. {words}{block}")
    up = [f"qanat deploy up . --node {name} --detach" for name in names]
    return ["\n\n".join(items), text("steps_up", first=first, last=len(found)), commands(up)]


def _env_step(plan: Plan, options: RenderOptions, text: Texts) -> str:
    empty = [code(one.name) for one in env_settings(plan, options) if not one.value]
    names = text("open_variables", names=text("comma").join(empty)) if empty else ""
    return text("step_env", open_variables=names)


def _copies(plan: Plan) -> list[str]:
    target = '"$(dirname "$PWD")"'
    addresses = [in_url(plan, f"${address_variable(node)}") for node in plan.nodes[1:]]
    return [f'(source env.sh; scp -r "$PWD" "{address}":{target})' for address in addresses]


def _weights_step(plan: Plan, options: RenderOptions, text: Texts) -> tuple[str, list[str]]:
    download = f"modelscope download --model {quote(plan.repository)} --local_dir"
    if options.install == "source":
        return text("step_weights", path=code(plan.model_source)), [f"{download} {quote(plan.model_source)}"]
    return text("step_weights", path=code(MODEL_PATH)), [f'(source env.sh; {download} "${MODEL_PATH}")']


def measure(plan: Plan, text: Texts) -> list[str]:
    """How to verify, benchmark and evaluate, and what others have published."""
    benchmark = benchmark_of(plan, load_knowledge())
    speed = text(
        "measure_benchmark",
        input_tokens=benchmark.input_tokens,
        output_tokens=benchmark.output_tokens,
        concurrencies=text("comma").join(str(step.concurrency) for step in benchmark.steps),
        node=code(first_engine(plan).name),
    )
    figures = published_throughputs(benchmark)
    published = [text("published_none")]
    if figures:
        published = [text("published"), "\n".join(f"- {escaped(one)}" for one in figures)]
    return [
        text("measure_verify"),
        commands(["bash checks/verify.sh"]),
        speed,
        commands(["bash checks/benchmark.sh"]),
        *published,
        text("measure_accuracy"),
        commands(["bash checks/accuracy.sh lm_eval", "bash checks/accuracy.sh aisbench"]),
    ]


def stop(plan: Plan, text: Texts) -> list[str]:
    """How to stop everything, what clients see first."""
    lines = ["bash proxy/stop.sh"] if plan.proxy is not None else []
    return [text("stop"), commands([*lines, *(f"bash nodes/{node.name}/stop.sh" for node in plan.nodes)])]


def other_ways(plan: Plan, options: RenderOptions, text: Texts) -> list[str]:
    """Compose and Kubernetes; nothing where there are no containers."""
    if options.install == "source":
        return []
    names = [node.name for node in plan.nodes]
    if plan.proxy is not None and not is_router(plan.proxy):
        names.append(PROXY_NAME)
    opening = '(cd -P . && export DEPLOYMENT_DIR="$PWD" && set -a && source env.sh && docker compose --file'
    found = [
        text("other_compose"),
        commands([f"{opening} compose/{name}.yaml up --detach)" for name in names]),
    ]
    if not is_rendered(plan, options):
        return [*found, text("other_kubernetes_not")]
    weights = text("weights_downloaded", path=code(CACHE_AT))
    if has_model_path(plan):
        weights = text("weights_on_hosts", path=code(plan.model_source))
    has_groups = any(len(group) > 1 for group in groups(plan))
    address = code(f"http://{base_name(plan)}:{client_port(plan)}/v1")
    lws = text("with_lws") if has_groups else ""
    return [
        *found,
        text("other_kubernetes", lws=lws, weights=weights, address=address),
        commands(_kubernetes_commands(plan)),
    ]


def _kubernetes_commands(plan: Plan) -> list[str]:
    wait = f"--timeout={threshold('ready-timeout')}s"
    lines = ["kubectl apply --filename kubernetes/"]
    for group in groups(plan):
        name = f"{base_name(plan)}-{group[0].role}-{group[0].instance}"
        if len(group) > 1:
            lines.append(f"kubectl wait leaderworkerset/{name} --for=condition=Available {wait}")
        else:
            lines.append(f"kubectl rollout status statefulset/{name} {wait}")
    if plan.proxy is not None:
        lines.append(f"kubectl rollout status deployment/{base_name(plan)}-{PROXY_NAME} {wait}")
    return lines


def trouble(plan: Plan, options: RenderOptions, text: Texts) -> list[str]:
    """What to ask when it does not start, or is slow."""
    logs = " ".join(f"logs/{node.name}.log" for node in plan.nodes)
    engine = first_engine(plan)
    lines = [f"qanat deploy diagnose {logs}"]
    if options.install == "image":
        lines.append(f"qanat deploy diagnose --docker {container_name(plan, engine.name)}")
    result = f"results/benchmark/at-{benchmark_of(plan, load_knowledge()).steps[-1].concurrency}.json"
    url = f'"http://{in_url(plan, f"${address_variable(engine)}")}:{server_port(plan, engine)}"'
    slow = f"(source env.sh; qanat deploy diagnose --metrics {url} --plan plan.yaml --bench {result})"
    return [
        text("fail_diagnose"),
        commands(lines),
        text("fail_metrics"),
        commands([slow]),
    ]


def change(text: Texts) -> list[str]:
    """How to have it otherwise."""
    lines = [
        "qanat deploy plan --wish wish.yaml --output new-plan.yaml",
        "qanat deploy render new-plan.yaml .",
    ]
    return [text("change"), commands(lines)]
