"""README.md: this very deployment in words, in English or Chinese."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.rules.service import HCCL_PORTS
from qanat.deploy.markdown_text import code, escaped, table
from qanat.deploy.plan.model import Memory, Node, Plan, Role
from qanat.deploy.plan.places import entry_node, has_model_path, proxy_node, server_port, service_port
from qanat.deploy.render.addresses import in_url
from qanat.deploy.render.engine import TRANSFER_FLAG, engine_settings
from qanat.deploy.render.kubernetes import groups
from qanat.deploy.render.model import Files, RenderedFile, RenderOptions
from qanat.deploy.render.planner_words import in_language
from qanat.deploy.render.readme_steps import change, measure, other_ways, steps, stop, trouble
from qanat.deploy.render.readme_texts import Texts, texts_of
from qanat.deploy.render.runnable import chip_of
from qanat.deploy.rendered.env_values import MODEL_PATH, address_variable
from qanat.deploy.sizing.memory import GIB
from qanat.deploy.sizing.weights import total_weight_bytes


def files(plan: Plan, options: RenderOptions) -> Files:
    """README.md in the language of the options."""
    text = texts_of(options.language)
    title = text(
        "title",
        served=escaped(plan.served_model_name),
        model=escaped(plan.model),
        weights=escaped(plan.weights),
        chip=escaped(plan.chip),
    )
    sections = {
        "where": list(_where(plan, text)),
        "needs": [_needs(plan, options, text)],
        "warnings": _warnings(plan, options),
        "steps": steps(plan, options, text),
        "measure": measure(plan, text),
        "memory": [part for role in plan.roles for part in _memory(role, options, text)],
        "choices": _choices(plan, options, text),
        "other": other_ways(plan, options, text),
        "stop": stop(plan, text),
        "fail": trouble(plan, options, text),
        "change": change(text),
    }
    parts = [f"# {title}", _intro(plan, text)]
    for name, paragraphs in sections.items():
        if paragraphs:
            parts += [f"## {text(f'heading_{name}')}", *paragraphs]
    return {"README.md": RenderedFile("\n\n".join(parts) + "\n")}


def _warnings(plan: Plan, options: RenderOptions) -> list[str]:
    lines = [f"- {escaped(in_language(one, options.language))}" for one in plan.warnings]
    return ["\n".join(lines)] if lines else []


def _intro(plan: Plan, text: Texts) -> str:
    instances = {role.name: str(role.num_instances) for role in plan.roles}
    topology = text(
        f"topology_{plan.topology.value}",
        num_nodes=len(plan.nodes),
        num_prefill=instances.get("prefill", ""),
        num_decode=instances.get("decode", ""),
    )
    entry = entry_node(plan)
    return text(
        "intro",
        model=escaped(plan.model),
        weights=escaped(plan.weights),
        release=escaped(plan.release),
        topology=topology,
        served=code(plan.served_model_name),
        url=code(f"http://{in_url(plan, entry.address or address_variable(entry))}:{service_port(plan)}/v1"),
    )


def _where(plan: Plan, text: Texts) -> Iterator[str]:
    rows = []
    for node in plan.nodes:
        port = server_port(plan, node)
        runs = text(f"runs_{node.role}", instance=node.instance, rank=node.rank)
        rows.append(
            [
                code(node.name),
                runs,
                _address(node, text),
                _npus(node),
                text("no_port") if port is None else str(port),
            ]
        )
    if plan.proxy is not None:
        node = proxy_node(plan, plan.proxy)
        runs = text("runs_proxy", program=code(plan.proxy.program))
        rows.append([code(node.name), runs, _address(node, text), "", str(plan.proxy.port)])
    yield table(text.head("head_where"), rows)
    ports = _ports_between(plan, text)
    if ports:
        yield text("ports_between", ports=text("comma").join(ports))


def _address(node: Node, text: Texts) -> str:
    return (
        code(node.address) if node.address else text("address_in_env", variable=code(address_variable(node)))
    )


def _npus(node: Node) -> str:
    """The devices, as ranges where they follow each other."""
    parts: list[list[int]] = []
    for number in node.npus:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _ports_between(plan: Plan, text: Texts) -> list[str]:
    """Ports that engines use among each other, of the first node of each instance."""
    found = []
    for group in groups(plan):
        settings = engine_settings(plan, group[0])
        port = settings.get("data-parallel-rpc-port")
        if port is not None and len(group) > 1:
            found.append(text("port_data_parallel", port=port))
        transfer = settings.get(TRANSFER_FLAG)
        base = transfer.get("kv_port") if isinstance(transfer, dict) else None
        if str(base).isdecimal():
            role = plan.role(group[0].role)
            last = int(str(base)) + role.tensor_parallel_size * role.data_parallel_size - 1
            found.append(text("port_transfer", first=base, last=last, role=role.name))
    if len(plan.nodes) > 1:
        found.append(text("port_hccl", first=HCCL_PORTS.start, last=HCCL_PORTS.stop - 1))
    return list(dict.fromkeys(found))


def _needs(plan: Plan, options: RenderOptions, text: Texts) -> str:
    memory_gib = plan.wish.npu_memory_gib or chip_of(plan).memory_gib
    hardware = text(
        "value_hardware",
        num_nodes=len(plan.nodes),
        chip=escaped(plan.chip),
        num_npus=max(len(node.npus) for node in plan.nodes),
        memory_gib=f"{memory_gib:g}",
    )
    driver = (
        text("value_driver", driver=escaped(plan.driver)) if plan.driver else text("value_driver_unknown")
    )
    is_source = options.install == "source"
    cann = text("value_cann_unknown")
    if plan.cann:
        cann = text("value_cann_source" if is_source else "value_cann", cann=escaped(plan.cann))
    rows = [[text("need_hardware"), hardware], [text("need_driver"), driver]]
    if not is_source:
        rows.append([text("need_image"), code(plan.image)])
    rows += [
        [text("need_cann"), cann],
        [text("need_weights"), _weights(plan, options, text)],
        [text("need_tools"), text(f"value_tools_{options.install}")],
    ]
    return table(text.head("head_needs"), rows)


def _weights(plan: Plan, options: RenderOptions, text: Texts) -> str:
    place = text("place_cache")
    if has_model_path(plan):
        path = plan.model_source if options.install == "source" else MODEL_PATH
        place = text("place_path", path=code(path))
    return text("value_weights", repository=code(plan.repository), size=_size(plan), place=place)


def _size(plan: Plan) -> str:
    """Decimal gigabytes of the checkpoint as documents say, else as computed; a question mark for unknown models."""
    knowledge = load_knowledge()
    for weights in knowledge.weights:
        if weights.repository == plan.repository and weights.size_gb is not None:
            return f"{weights.size_gb:.0f}"
    model = next((one for one in knowledge.models if one.name == plan.model), None)
    if model is None:
        return "?"
    try:
        return f"{total_weight_bytes(model, plan.weights, with_vision=model.has_vision) / 1e9:.0f}"
    except ConfigError:
        return "?"


def _memory(role: Role, options: RenderOptions, text: Texts) -> list[str]:
    memory = role.memory
    opening = text(
        "memory_role", role=role.name, total=_gib(memory.total_bytes), budget=_gib(memory.budget_bytes)
    )
    rows = [
        [
            text.get(f"memory_{item.name}", escaped(item.name)),
            _gib(item.size_bytes),
            text("yes" if item.is_in_budget else "no"),
            escaped(in_language(item.how, options.language)),
            text(f"confidence_{item.confidence}"),
        ]
        for item in memory.items
    ]
    return [opening, table(text.head("head_memory"), rows), _pool(memory, text)]


def _pool(memory: Memory, text: Texts) -> str:
    return text(
        "memory_pool",
        pool=_gib(memory.pool_bytes),
        num_blocks=memory.num_blocks,
        block_tokens=memory.block_tokens,
        needed=_gib(memory.needed_pool_bytes),
        longest_context=memory.longest_context,
        most_sequences=memory.most_sequences,
        head_room=_gib(memory.head_room_bytes),
    )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f}"


def _choices(plan: Plan, options: RenderOptions, text: Texts) -> list[str]:
    rows = []
    for choice in plan.choices:
        what = code(choice.what)
        if choice.role is not None and len(plan.roles) > 1:
            what = text("choice_of_role", what=what, role=choice.role)
        confidence = text(f"confidence_{choice.confidence}")
        said = (choice.reason, choice.changes_if, choice.source)
        words = [escaped(in_language(one, options.language)) for one in said]
        rows.append([what, code(choice.value), *words, confidence])
    return [text("choices_note"), table(text.head("head_choices"), rows)] if rows else []
