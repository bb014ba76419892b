from __future__ import annotations

from qanat.deploy.sources.documents import read_document

COMPOSE = """services:
  vllm:
    image: quay.io/ascend/vllm-ascend:v0.18.0rc1-a3
    privileged: true
    network_mode: host
    environment:
      - HCCL_BUFFSIZE=1024
      - "VLLM_VERSION=0.11.0"
    devices: ["/dev/davinci0", /dev/hisi_hdc]
    volumes:
      - /a:/b
    command: >
      vllm serve /m --max-model-len 5
      --additional-config '{"enable_flashcomm1": true}'
  other:
    image: vllm-ascend:v0.18.0
    environment: {A: 1}
    entrypoint: ["bash", "-c"]
    command: ["vllm serve /n --port 9"]
"""


def test_services_of_compose() -> None:
    document = read_document("anything", COMPOSE)
    assert document.kind == "compose"
    first, second = document.launches
    assert {name: one.value.text for name, one in first.env.items()} == {
        "HCCL_BUFFSIZE": "1024", "VLLM_VERSION": "0.11.0",
    }  # fmt: skip
    assert (first.env["VLLM_VERSION"].place.line, first.env["VLLM_VERSION"].value.place.column) == (8, 23)
    config = first.json("--additional-config")
    assert config is not None and config.value == {"enable_flashcomm1": True}
    assert (
        config.members["enable_flashcomm1"].place.line,
        config.members["enable_flashcomm1"].place.column,
    ) == (14, 50)
    container = first.container
    assert container is not None and container.is_privileged and container.settings["network"].text == "host"
    assert [device.text for device in container.devices] == ["/dev/davinci0", "/dev/hisi_hdc"]
    assert [mount.text for mount in container.mounts] == ["/a:/b"]
    assert (second.words[0].text, second.env["A"].value.text) == ("/n", "1")
    port = second.flag("--port")
    assert port is not None and port.place.line == 19


LEADER_WORKER_SET = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  leaderWorkerTemplate:
    leaderTemplate:
      spec:
        containers:
        - name: leader
          image: vllm-ascend:v0.18.0
          env:
          - name: A
            value: "1"
          - name: IP
            valueFrom: {fieldRef: {fieldPath: status.podIP}}
          command: ["/bin/sh", "-c"]
          args:
          - |
            export B=2
            vllm serve /m \\
              --speculative-config '{"method": "mtp"}'
    workerTemplate:
      spec:
        containers:
        - image: vllm-ascend:v0.18.0
          command: [vllm, serve, /m, --headless]
---
apiVersion: v1
kind: Service
"""


def test_containers_of_kubernetes_wherever_they_stand() -> None:
    document = read_document("deploy.yaml", LEADER_WORKER_SET)
    assert document.kind == "kubernetes"
    leader, worker = document.launches
    assert {name: one.value.text for name, one in leader.env.items()} == {"A": "1", "IP": "", "B": "2"}
    assert not leader.env["IP"].value.is_known
    method = leader.json("--speculative-config")
    assert method is not None and method.members["method"].place.line == 20
    assert (leader.role, worker.role) == ("single", "worker")


def test_names_of_services_and_what_a_pod_sets_for_its_containers() -> None:
    text = "apiVersion: v1\nkind: Pod\nspec:\n  enableServiceLinks: false\n  containers:\n"
    text += "  - image: a/vllm-ascend:v0.18.0\n    command: [vllm, serve, m]\n---\n"
    text += "apiVersion: v1\nkind: Service\nmetadata:\n  name: vllm\n"
    document = read_document("a.yaml", text)
    assert [(one.text, one.place.line) for one in document.services] == [("vllm", 12)]
    (container,) = document.containers
    assert container.settings["enableServiceLinks"].text == "false"


def test_a_settings_file_stands_for_flags() -> None:
    text = "model: /m\nmax_model_len: 4096\nenable-prefix-caching: false\ntrust-remote-code: true\n"
    text += "served-model-name: [a, b]\nadditional-config:\n  deep: {x: [1, y]}\n"
    (launch,) = read_document("serve.yaml", text).launches
    assert [(flag.name, [value.text for value in flag.values], flag.place.line) for flag in launch.flags] == [
        ("--model", ["/m"], 1), ("--max-model-len", ["4096"], 2), ("--no-enable-prefix-caching", [], 3),
        ("--trust-remote-code", [], 4), ("--served-model-name", ["a", "b"], 5),
        ("--additional-config", ['{"deep": {"x": [1, "y"]}}'], 6),
    ]  # fmt: skip


SERVER_TEXTS = """name: a test
env_common: &common
  HCCL_BUFFSIZE: 1024
deployment:
  - envs:
      <<: *common
      A: b
    server_cmd: >
      vllm serve /m
      --port $SERVER_PORT
      --kv-transfer-config '{"kv_role": "kv_producer"}'
  - server_cmd: |
      vllm serve /n
      --headless
"""


def test_servers_in_texts_of_any_yaml_with_the_variables_beside_them() -> None:
    document = read_document("case.yaml", SERVER_TEXTS)
    first, second = document.launches
    assert (first.role, second.role, document.kind) == ("prefill", "worker", "yaml")
    assert {name: one.value.text for name, one in first.env.items()} == {"HCCL_BUFFSIZE": "1024", "A": "b"}
    assert [(flag.name, flag.place.line) for flag in second.flags] == [("--headless", 14)]
    role = first.json("--kv-transfer-config")
    assert role is not None and role.members["kv_role"].place.line == 11
    assert document.notes == ()


def test_wrong_and_foreign_yaml_is_told_or_left() -> None:
    wrong = read_document("a.yaml", "services: {a: [\n")
    assert [note.kind for note in wrong.notes] == ["unreadable"] and wrong.launches == ()
    foreign = read_document("a.yaml", "colours: [red]\n")
    assert foreign.notes == () and foreign.launches == ()
