from __future__ import annotations

import pytest

from qanat.deploy.sources.documents import read_document
from qanat.deploy.sources.json_text import JsonFault, JsonNode
from qanat.deploy.sources.launch import Document, Launch

HEAD = "#!/bin/bash\n"


def script(*lines: str) -> Document:
    """A script whose first given line is line 2."""
    return read_document("run.sh", HEAD + "\n".join(lines) + "\n")


def only_launch(*lines: str) -> Launch:
    (launch,) = script(*lines).launches
    return launch


def flags(launch: Launch) -> dict[str, list[str]]:
    return {flag.name: [value.text for value in flag.values] for flag in launch.flags}


def test_flags_continue_over_lines_with_their_places() -> None:
    launch = only_launch(
        r"vllm serve /m \ ".rstrip(), r"  --max_model_len 4096 \ ".rstrip(), "  --port=8000 -tp 8"
    )
    assert [word.text for word in launch.words] == ["/m"]
    assert flags(launch) == {"--max-model-len": ["4096"], "--port": ["8000"], "-tp": ["8"]}
    length = launch.flag("--max-model-len")
    assert length and length.value
    assert (length.written, length.place.line, length.place.column) == ("--max_model_len", 3, 3)
    assert (length.value.place.line, length.value.place.column, length.value.place.end_column) == (3, 19, 23)
    port = launch.flag("--port")
    assert port and port.value and port.has_equals
    assert (port.value.place.line, port.value.place.column) == (4, 10)


def test_variables_are_filled_in_and_the_unknown_stay_as_written() -> None:
    launch = only_launch(
        "MODEL=/data/m",
        'PORT="80${N}"',
        'vllm serve "$MODEL" --port $PORT --seed ${SEED:-7} --host $(hostname -I)',
    )
    assert [word.text for word in launch.words] == ["/data/m"]
    assert flags(launch) == {"--port": ["80${N}"], "--seed": ["7"], "--host": ["$(hostname -I)"]}
    port = launch.flag("--port")
    host = launch.flag("--host")
    assert port and port.value and host and host.value
    assert port.value.unknown == ("N",) and not port.value.is_known
    assert host.value.unknown == ("$(hostname -I)",)


def test_arrays_and_unquoted_variables_become_many_words() -> None:
    launch = only_launch(
        "ARGS=(--port 8000 --served-model-name 'a b')", "ARGS+=(--seed 1)", 'MORE="--headless  --nnodes 2"',
        'vllm serve m "${ARGS[@]}" $MORE "$MORE"',
    )  # fmt: skip
    assert flags(launch)["--served-model-name"] == ["a b"]
    assert flags(launch)["--seed"] == ["1"]
    assert flags(launch)["--nnodes"] == ["2", "--headless  --nnodes 2"]


def test_json_from_a_variable_is_placed_in_its_assignment() -> None:
    launch = only_launch("CONFIG='{\"method\": \"mtp\",", '  "num_speculative_tokens": 3}\'', "vllm serve m \\",
                         '  --speculative-config "$CONFIG"')  # fmt: skip
    node = launch.json("--speculative-config")
    assert node is not None and node.value == {"method": "mtp", "num_speculative_tokens": 3}
    tokens = node.get("num_speculative_tokens")
    assert tokens and tokens.key_place
    assert (tokens.place.line, tokens.place.column) == (3, 29)
    assert (tokens.key_place.line, tokens.key_place.column) == (3, 3)


def test_json_with_escaped_quotes_and_variables_nobody_sets() -> None:
    launch = only_launch(r'vllm serve m --kv-transfer-config "{\"kv_port\": \"$KV\", \"n\": $N}"')
    node = launch.json("--kv-transfer-config")
    assert node is not None and node.members["kv_port"].value == "$KV"
    assert repr(node.members["n"].value) == "UNKNOWN"


def test_faulty_json_is_a_fault_with_its_place() -> None:
    launch = only_launch(
        "vllm serve m --additional-config '{\"a\": True}' --compilation-config '{\"a\": 1,}'"
    )
    first, second = (flag.json for flag in launch.flags)
    assert isinstance(first, JsonFault) and first.message == "True is written true in JSON"
    assert (first.place.line, first.place.column) == (2, 41)
    assert isinstance(second, JsonFault) and second.message == "a comma before }"


def test_members_that_a_guide_leaves_out_are_no_fault() -> None:
    launch = only_launch("vllm serve m --additional-config '{\"a\": 1, ...}' --kv-transfer-config '{...}'")
    assert [flag.json.value for flag in launch.flags if isinstance(flag.json, JsonNode)] == [{"a": 1}, {}]


def test_a_backslash_inside_json_is_named() -> None:
    flag = only_launch('vllm serve m --additional-config \'{"a": 1, \\', '  "b": 2}\'').flags[0]
    assert isinstance(flag.json, JsonFault) and flag.json.message.startswith(
        "a backslash inside quotes stays"
    )


def test_dotted_keys_belong_to_the_json_of_their_flag() -> None:
    launch = only_launch(
        "vllm serve m --additional-config '{\"a\": 1}' --additional-config.b.c true -cc.mode 3"
    )
    node = launch.json("--additional-config")
    assert node is not None and node.value == {"a": 1, "b": {"c": True}}
    mode = launch.json("-cc", "--compilation-config")
    assert mode is not None and mode.value == {"mode": 3}


def test_the_last_of_repeated_keys_counts_and_the_repetition_is_told() -> None:
    flag = only_launch('vllm serve m --additional-config \'{"a": 1, "a": 2}\'').flag("--additional-config")
    assert flag and isinstance(flag.json, JsonNode)
    assert flag.json.value == {"a": 2} and flag.json.repeated == ("a",)


def test_only_what_is_exported_is_in_force() -> None:
    document = script(
        "nic=eth0", "export IFNAME=$nic A=1 A=2", "B=1", "export B", "export GONE=1", "unset GONE",
        "C=3 D=4 nohup env E=5 numactl -C 0-7 vllm serve m > log 2>&1 &",
    )  # fmt: skip
    (launch,) = document.launches
    assert {name: one.value.text for name, one in launch.env.items()} == {
        "IFNAME": "eth0", "A": "2", "B": "1", "C": "3", "D": "4", "E": "5",
    }  # fmt: skip
    assert [one.value.text for one in document.assignments if one.name == "A"] == ["1", "2"]
    assert launch.env["IFNAME"].place.line == 3 and launch.env["IFNAME"].origin == "export"


def test_a_container_carries_its_variables_into_the_script_inside() -> None:
    document = script(
        "MODEL=/m", "export OUTER=1",
        "docker run -itd --privileged --net=host -e HCCL_BUFFSIZE=1024 --env OUTER -v /a:/b --device /dev/davinci0 \\",
        "  --shm-size 1g quay.io/ascend/vllm-ascend:v0.18.0rc1-a3 \\",
        '  bash -c "export X=2; vllm serve $MODEL --additional-config \'{\\"k\\": 1}\'"',
    )  # fmt: skip
    (launch,) = document.launches
    (container,) = document.containers
    assert launch.container == container and launch.image is not None
    assert launch.image.text == "quay.io/ascend/vllm-ascend:v0.18.0rc1-a3"
    assert {name: one.value.text for name, one in launch.env.items()} == {
        "HCCL_BUFFSIZE": "1024", "OUTER": "1", "X": "2",
    }  # fmt: skip
    assert [mount.text for mount in container.mounts] == ["/a:/b"]
    assert [device.text for device in container.devices] == ["/dev/davinci0"]
    assert container.is_privileged and container.settings["network"].text == "host"
    node = launch.json("--additional-config")
    assert node is not None and document.text[node.members["k"].place.start :][:3] == "1}'"


def test_scripts_inside_here_documents_and_ssh_are_read() -> None:
    document = script(
        "export OUTER=1", "cat > run_p.sh <<'EOF'", "export A=$B", "vllm serve p --port 1", "EOF",
        "ssh node1 'cd /x && vllm serve w --headless'", "if true; then vllm serve c; fi",
        "for i in 0 1; do vllm serve e --port 800$i; done",
    )  # fmt: skip
    launches = document.launches
    assert [(launch.words[0].text, launch.role) for launch in launches] == [
        ("p", "single"), ("w", "worker"), ("c", "single"), ("e", "single"),
    ]  # fmt: skip
    assert launches[0].place.line == 5 and set(launches[0].env) == {"A"}
    port = launches[3].flag("--port")
    assert port and port.value and port.value.unknown == ("i",)


def test_every_launcher_is_recognised() -> None:
    document = script(
        "python3 -m vllm.entrypoints.openai.api_server --model m", "python -m vllm serve m",
        "sudo -E /opt/bin/vllm serve m", "python load_balance_proxy_server_example.py --port 1",
        "vllm bench serve --model m", "lm_eval --tasks gsm8k", "python benchmarks/benchmark_serving.py --model m",
        "docker exec -it box bash -lc 'vllm serve m'", "vllm --help", "python train.py --model m",
    )  # fmt: skip
    assert [(one.kind, one.place.line) for one in document.launches] == [
        ("serve", 2), ("serve", 3), ("serve", 4), ("proxy", 5), ("bench", 6), ("accuracy", 7), ("bench", 8),
        ("serve", 9),
    ]  # fmt: skip


def test_roles_follow_from_flags() -> None:
    document = script(
        """vllm serve m --kv-transfer-config '{"kv_role": "kv_producer"}'""",
        """vllm serve m --kv-transfer-config '{"kv_role": "kv_consumer"}'""",
        "vllm serve m --data-parallel-size 2 --data-parallel-size-local 1",
        "vllm serve m --data-parallel-size 2 --data-parallel-size-local 1 --data-parallel-start-rank 1",
        "vllm serve m --data-parallel-size 2", "vllm serve m --nnodes 2 --node-rank 1",
    )  # fmt: skip
    assert [one.role for one in document.launches] == [
        "prefill",
        "decode",
        "head",
        "worker",
        "single",
        "worker",
    ]


def test_damage_of_copied_pages_is_put_right_and_noted() -> None:
    document = script(
        "vllm serve m \\  ", "  --port 1", "  --seed 2", "", "vllm serve n \\", "  # why \\", "  --port 3"
    )
    first, second = document.launches
    assert flags(first) == {"--port": ["1"], "--seed": ["2"]}
    assert flags(second) == {"--port": ["3"]}
    assert [(note.kind, note.place.line) for note in document.notes] == [
        ("broken-continuation", 2), ("lost-flags", 4), ("lost-flags", 7),
    ]  # fmt: skip


def test_flags_in_an_array_over_lines_are_not_lost() -> None:
    document = script(
        "FLAGS=(", "  --port 1", "  # why", "  --seed $(date)", ")", 'vllm serve m "${FLAGS[@]}"'
    )
    assert flags(document.launches[0]) == {"--port": ["1"], "--seed": ["$(date)"]}
    assert document.notes == ()


def test_options_of_a_case_are_not_lost_flags() -> None:
    document = script(
        'case "$1" in', "  --model|-m)", '    MODEL="$2"; shift 2 ;;', "  --port=*) PORT=1 ;;", "esac",
        "find . -name x |", "  xargs -n1 rm &&", 'vllm serve "$MODEL"',
    )  # fmt: skip
    assert document.notes == ()
    assert [one.words[0].text for one in document.launches] == ["$2"]


def test_windows_line_ends_are_noted() -> None:
    document = read_document("run.sh", "#!/bin/bash\r\nvllm serve m \\\r\n  --port 1\r\n")
    assert flags(document.launches[0]) == {"--port": ["1"]}
    assert [note.kind for note in document.notes] == ["windows-lines"]


def test_what_is_no_shell_is_told_and_the_rest_is_read() -> None:
    document = script("export A=1", "vllm serve 'never closed", "  --port 1")
    assert "unreadable" in {note.kind for note in document.notes}
    assert document.launches[0].env["A"].value.text == "1"


def test_zero_bytes_are_told() -> None:
    assert [note.kind for note in script("vllm serve m\x00").notes] == ["binary"]


def test_placeholders_of_a_guide_are_values_not_redirections() -> None:
    launch = only_launch("vllm serve m --data-parallel-address <node0_ip> --port 8000")
    address = launch.flag("--data-parallel-address")
    assert address and flags(launch)["--port"] == ["8000"]
    assert " ".join(value.text for value in address.values) == "<node0_ip>"


@pytest.mark.parametrize(
    ("function", "is_run"),
    [
        ('run() {\n  exec "$@"\n}', True),
        ('run() { nohup "$@" & }', True),
        ('function run() {\n  local file\n  (docker exec it "$@")\n}', True),
        ('run() {\n  printf "%s\\n" "$@"\n}', False),
        ('run() {\n  for word in "$@"; do say "$word"; done\n}', False),
        ("run() {\n  true\n}", False),
    ],
)
def test_a_function_that_runs_what_it_is_given(function: str, is_run: bool) -> None:
    document = read_document("start.sh", f"#!/bin/bash\n{function}\nrun vllm serve Qwen/Qwen3-32B --port 1\n")
    assert [launch.program for launch in document.launches] == (["vllm serve"] if is_run else [])
