"""For each rule a text that breaks it, and where it helps the same text as it should be."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """What breaks a rule under an image, and what does not."""

    rule: str
    bad: str
    good: str | None = None
    image: str = "v0.23.0"

    @property
    def bad_text(self) -> str:
        return expand(self.bad)

    @property
    def good_text(self) -> str:
        return expand(self.good or "")


MANIFEST = """apiVersion: v1
kind: Pod
spec:
  containers:
  - image: quay.io/ascend/vllm-ascend:v0.23.0
    command: [vllm, serve, Qwen/Qwen3-32B, -tp, "8"]
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
"""
DENSE = "vllm serve Qwen/Qwen3-32B -tp 8"
MOE = "vllm serve Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp -tp 16 --enable-expert-parallel --no-enable-prefix-caching"
SMALL = "vllm serve Eco-Tech/Qwen3.5-35B-A3B-w8a8-mtp --enable-expert-parallel --no-enable-prefix-caching"
MODULE = "python -m vllm.entrypoints.openai.api_server --model"
FULL = '"cudagraph_mode": "FULL_DECODE_ONLY"'
MTP = '--speculative-config \'{"method": "qwen3_5_mtp", "num_speculative_tokens": 3}\''
RECOMPUTE = ', "kv_load_failure_policy": "recompute"'
LOCAL_RESOURCES = ', "kv_connector_extra_config": {"ascend_local_comm_res_path": "/etc/hixlep"}'
IDENTITY = ', "engine_id": "1"'
SC = "docker run quay.io/ascend/vllm-ascend:v0.23.0-310p vllm serve vllm-ascend/Qwen3-32B-w8a8sc-310-vllm-tp4"
SC_PARTS = {
    "tp": "-tp 4",
    "type": "--dtype float16",
    "loader": "--load-format sharded_state",
    "window": "--max-model-len 16384",
    "graphs": '@C<"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [8, 32]>@',
    "extension": '@A<"ascend_compilation_config": {"enable_npugraph_ex": false}>@',
}
MIXED_IMAGE = "docker run {flags} quay.io/ascend/vllm-ascend:{tag} bash"


START = (
    "docker run -d --name q --device /dev/davinci0 --device /dev/davinci1 {devices} {driver} {weights} {memory} "
    "-p {port}:{port} quay.io/ascend/vllm-ascend:v0.23.0 vllm serve /models/Qwen3-32B -tp 2 --port 8000"
)
START_PARTS = {
    "devices": "--device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc",
    "driver": "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver",
    "weights": "-v /data:/models",
    "memory": "--ipc=host",
    "port": "8000",
}
PROBED = """apiVersion: v1
kind: Pod
spec:
  containers:
  - image: quay.io/ascend/vllm-ascend:v0.23.0
    command: [vllm, serve, Qwen/Qwen3-32B]
    readinessProbe: {{httpGet: {{path: {path}, port: 8000}}}}
"""


def expand(text: str) -> str:
    """`@C<keys>@` is a --compilation-config with these keys, `@A<keys>@` an --additional-config."""
    text = re.sub(r"@C<(.*?)>@", r"--compilation-config '{\1}'", text)
    return re.sub(r"@A<(.*?)>@", r"--additional-config '{\1}'", text)


def transfer(role: str, connector: str = "MooncakeConnectorV1", port: int = 36100, extra: str = "") -> str:
    return (
        f"--no-disable-hybrid-kv-cache-manager --kv-transfer-config "
        f'\'{{"kv_connector": "{connector}", "kv_role": "{role}", "kv_port": {port}{extra}}}\''
    )


def sizes(prefill: int, decode: int) -> str:
    return (
        f', "kv_connector_extra_config": {{"prefill": {{"tp_size": {prefill}, "dp_size": 1}}, '
        f'"decode": {{"tp_size": {decode}, "dp_size": 1}}}}'
    )


def node(start: int, extra: str = "", rpc_port: int = 13389) -> str:
    head = "" if start == 0 else f"--headless --data-parallel-start-rank {start}"
    return (
        f"{SMALL} -tp 8 --data-parallel-size 2 --data-parallel-size-local 1 "
        f"--data-parallel-address 10.0.0.1 --data-parallel-rpc-port {rpc_port} {head} {extra}\n"
    )


def pair(producer: str = "", consumer: str = "", connector: str = "MooncakeConnectorV1") -> str:
    return (
        f"{SMALL} -tp 8 --port 8100 {transfer('kv_producer', connector)} {producer}\n"
        f"{SMALL} -tp 8 --port 8200 {transfer('kv_consumer', connector)} {consumer}\n"
    )


def proxy(script: str = "load_balance_proxy_server_example.py", more: str = "") -> str:
    return (
        f"python3 {script} --host 10.0.0.9 --port 8000 --prefiller-hosts 10.0.0.1 --prefiller-ports 8100 "
        f"--decoder-hosts 10.0.0.2 --decoder-ports 8200 {more}\n"
    )


def router(more: str = "") -> str:
    sides = "--prefiller-hosts 10.0.0.1 --prefiller-ports 8100 --decoder-hosts 10.0.0.2 --decoder-ports 8200"
    return f"qanat router --host 10.0.0.9 --port 8000 {sides} {more}\n"


RESOURCES = (
    "docker run -v {mount} quay.io/ascend/vllm-ascend:v0.23.0-950dt bash\n# on Ascend 950DT\n"
    + f"{SMALL} -tp 8 {transfer('kv_consumer', extra=LOCAL_RESOURCES)}".replace("{", "{{").replace("}", "}}")
)

COMMAND_LINE = [
    Example("CLI001", f"{DENSE} –max-model-len 8192", f"{DENSE} --max-model-len 8192"),
    Example("CLI002", f"{DENSE} -max-model-len 8192", f"{DENSE} -dp 1"),
    Example("CLI003", f'{DENSE} @C<"cudagraph_capture_size": [8]>@'),
    Example("CLI004", f'{DENSE} @C<"cudagraph_capture_size": [8]>@', image="v0.11.0"),
    Example(
        "CLI005",
        "vllm bench serve --model a --random-input 200",
        "vllm bench serve --model a --random-input-len 200",
    ),
    Example("CLI006", f"{DENSE} --max_model_len 8192", f"{DENSE} --max-model-len 8192"),
    Example("CLI007", f"{DENSE} --max-num-seqs 8 --max-num-seqs 16", f"{DENSE} --max-num-seqs 16"),
    Example("CLI008", "vllm serve --model Qwen/Qwen3-32B", "vllm serve Qwen/Qwen3-32B"),
    Example("CLI009", f"{DENSE} --swap-space 4", DENSE),
    Example("CLI011", f"{DENSE} --mamba-cache-mode align", DENSE, image="v0.13.0"),
    Example("CLI013", f"{DENSE} --async-scheduling", DENSE),
    Example("CLI014", f"{MOE} --quantization ascend", MOE),
    Example(
        "CLI015",
        "vllm serve vllm-ascend/Qwen3-32B-W8A8",
        "vllm serve vllm-ascend/Qwen3-32B-W8A8 --quantization ascend",
        "v0.13.0",
    ),
    Example("CLI016", f"{DENSE} --quantization ascend", DENSE),
    Example("CLI017", f"{DENSE} --max-model-length 8192", f"{DENSE} --max-model-len 8192"),
    Example("CLI018", f"{DENSE} --max-num-seqs many", f"{DENSE} --max-num-seqs 16"),
    Example(
        "CLI019",
        f"{DENSE} --additional-config '{{enable_cpu_binding: true}}'",
        f'{DENSE} @A<"enable_cpu_binding": true>@',
    ),
    Example(
        "CLI020",
        f'{DENSE} @C<"enable_cpu_binding": true>@',
        f'{DENSE} @A<"enable_cpu_binding": true>@',
    ),
    Example("CLI021", f'{DENSE} @C<"enable_cpu_binding": true>@', image="v0.11.0"),
    Example(
        "CLI022",
        f'{DENSE} @A<"enable_cpu_binding": "True">@',
        f'{DENSE} @A<"enable_cpu_binding": true>@',
    ),
    *(
        Example(rule, START.format(**{**START_PARTS, part: bad}), START.format(**START_PARTS))
        for rule, part, bad in (
            ("HOST018", "devices", "--device /dev/davinci_manager --device /dev/hisi_hdc"),
            ("HOST019", "driver", ""),
            ("HOST020", "weights", "-v /data:/data"),
            ("HOST021", "port", "8001"),
            ("HOST022", "memory", ""),
        )
    ),
    Example("HOST023", PROBED.format(path="/healthz"), PROBED.format(path="/health")),
    Example("CLI029", f"{DENSE} \\\r\n  --port 80\r\n", f"{DENSE} \\\n  --port 80\n"),
    Example("LNT003", f"{DENSE}\n\x00", DENSE),
    Example(
        "CLI027",
        f'{DENSE} @C<"cudagraph_capture_sizes": [0, 8]>@',
        f'{DENSE} @C<"cudagraph_capture_sizes": [4, 8]>@',
    ),
    Example(
        "CLI028",
        "vllm serve /data/Qwen3-32B-W8A8 --quantization awq",
        "vllm serve /data/Qwen3-32B-awq --quantization awq",
    ),
    Example("CLI023", f'{DENSE} @C<"full_cuda_graph": true>@'),
    Example(
        "CLI024",
        "vllm serve Qwen/Qwen3-32B\n  --max-model-len 8192\n",
        "vllm serve Qwen/Qwen3-32B \\\n  --max-model-len 8192\n",
    ),
    Example(
        "CLI025",
        "部署\n\n启动服务：\n\nvllm serve Qwen/Qwen3-32B \\\n--port 8000 由于默认走图模式，可以提升性能\n",
    ),
    Example("ADD001", f'{DENSE} @A<"enable_cpu_bindings": true>@'),
    Example("ADD002", f'{DENSE} @A<"enable_cpu_bindings": true>@', image="v0.30.0rc1"),
    Example("ADD003", f'{DENSE} @A<"torchair_graph_config": {{}}>@'),
    Example("ADD004", f'{DENSE} @A<"weight_prefetch_config": {{}}>@', image="v0.30.0rc1"),
    Example("ADD005", f'{DENSE} @A<"short_request_first_config": {{}}>@', image="v0.26.0rc1"),
    Example(
        "ADD006",
        "Use vllm-ascend v0.18.0rc1 or later.\n\n"
        f'```\ndocker run quay.io/ascend/vllm-ascend:v0.23.0\n{MOE} @A<"enable_flashcomm1": true>@\n```\n',
    ),
    Example("LNT001", "services:\n  a:\n    image: [\n"),
    Example("LNT002", f"{DENSE} # qanat: ignore[CLI999]", f"{DENSE} # qanat: ignore[CLI001]"),
]

ENVIRONMENT = [
    Example(
        "ENV001",
        f"export TASK_QUEUE_ENABLE=2\n{DENSE}",
        f"export TASK_QUEUE_ENABLE=2\n{DENSE} --enforce-eager",
    ),
    Example(
        "ENV002", f"export ASCEND_LAUNCH_BLOCKING=1\n{DENSE}", f"export ASCEND_LAUNCH_BLOCKING=0\n{DENSE}"
    ),
    Example("ENV003", "export VLLM_USE_V1=1", "export VLLM_USE_MODELSCOPE=True"),
    Example("ENV004", "export VLLM_ENGINE_READY_TIMEOUT_S=600", image="v0.13.0"),
    Example("ENV008", "export VLLM_VERSION=0.11.0", image="v0.18.0rc1"),
    Example("ENV026", "export VLLM_VERSION=0.23.0"),
    Example("ENV009", "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True,max_split_size_mb:256"),
    Example("ENV012", f'export VLLM_ASCEND_ENABLE_FLASHCOMM1=1\n{MOE} @A<"enable_flashcomm1": false>@'),
    Example(
        "ENV013",
        f"export OMP_NUM_THREADS=1\nexport OMP_NUM_THREADS=1\n{DENSE}",
        f"export OMP_NUM_THREADS=1\n{DENSE}\nexport OMP_NUM_THREADS=1\n{DENSE}",
    ),
    Example(
        "ENV027",
        f"export OMP_NUM_THREADS=1\nexport OMP_NUM_THREADS=10\n{DENSE}",
        "if [ $A = 1 ]; then\nexport OMP_NUM_THREADS=1\nelse\nexport OMP_NUM_THREADS=10\nfi\n",
    ),
    Example(
        "ENV014",
        "export LD_PRELOAD=/data/libjemalloc.so",
        "export LD_PRELOAD=/usr/lib/aarch64-linux-gnu/libjemalloc.so.2:$LD_PRELOAD",
    ),
    Example(
        "ENV015",
        f"export HCCL_OP_EXPANSION_MODE=AIV HCCL_EXEC_TIMEOUT=1836\n{DENSE}",
        f"export HCCL_EXEC_TIMEOUT=1836\n{DENSE}",
    ),
    Example("ENV016", "export HCCL_CONNECT_TIMEOUT=60", "export HCCL_CONNECT_TIMEOUT=600"),
    Example(
        "ENV017",
        f"export HCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth1\n{DENSE}",
        f"export HCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0\n{DENSE}",
    ),
    Example(
        "ENV018",
        f"export DYNAMIC_EPLB=true\n{MOE}",
        f'export DYNAMIC_EPLB=true\n{MOE} @A<"eplb_config": {{"dynamic_eplb": true}}>@',
    ),
    Example(
        "ENV019",
        f'{MOE} @A<"eplb_config": {{"dynamic_eplb": true}}>@',
        f'export EXPERT_MAP_RECORD=true\n{MOE} @A<"eplb_config": {{"dynamic_eplb": true}}>@',
    ),
    Example(
        "ENV020",
        f"export http_proxy=http://10.9.9.9:3128\n{proxy()}",
        f"export http_proxy=http://10.9.9.9:3128\nunset http_proxy\n{proxy()}",
    ),
    Example("ENV021", "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"),
    Example("ENV023", "export VLLM_ASCEND_ENABLE_FLASHCOM1=1", "export MY_OWN_NAME=1"),
    Example("ENV024", "export HCCL_BUFFSIZE=big", "export HCCL_BUFFSIZE=512"),
    Example(
        "ENV028",
        "export PYTHONPATH=/data/vllm-ascend:$PYTHONPATH",
        "export PYTHONPATH=/vllm-workspace/vllm:$PYTHONPATH",
    ),
    Example("ENV029", "export HCCL_EXEC_TIMEOUT=204", "export HCCL_EXEC_TIMEOUT=1091"),
    Example(
        "ENV030",
        f"export HCCL_INTRA_PCIE_ENABLE=1 HCCL_INTRA_ROCE_ENABLE=1\n{DENSE}",
        f"export HCCL_INTRA_PCIE_ENABLE=1 HCCL_INTRA_ROCE_ENABLE=0\n{DENSE}",
    ),
    Example(
        "ENV031",
        f"export VLLM_ASCEND_ENABLE_FUSED_MC2=1\n{MOE}",
        f'{MOE} @A<"enable_fused_mc2": 1>@',
    ),
    Example("ENV032", "export VLLM_ASCEND_ENABLE_FLASHCOMM=1", image="v0.18.0"),
]

GRAPHS = [
    Example(
        "GRA001",
        f'export VLLM_ASCEND_ENABLE_FLASHCOMM1=1\n{DENSE} @C<"cudagraph_capture_sizes": [1, 4]>@',
        f'{DENSE} @C<"cudagraph_capture_sizes": [1, 4]>@',
    ),
    Example(
        "GRA002",
        f'export VLLM_ASCEND_ENABLE_FLASHCOMM1=1\n{DENSE} @C<"cudagraph_capture_sizes": [4, 8]>@',
        f'export VLLM_ASCEND_ENABLE_FLASHCOMM1=1\n{DENSE} @C<"cudagraph_capture_sizes": [8, 16]>@',
    ),
    Example(
        "GRA003",
        f'{MOE} {MTP} @C<{FULL}, "cudagraph_capture_sizes": [6, 12, 16]>@',
        f'{MOE} {MTP} @C<{FULL}, "cudagraph_capture_sizes": [4, 8, 16]>@',
    ),
    Example("GRA004", f'{MOE} {MTP} @C<{FULL}, "cudagraph_capture_sizes": [1, 2]>@'),
    Example("GRA004", f'{MOE} @C<{FULL}, "cudagraph_capture_sizes": []>@', f"{MOE} @C<{FULL}>@"),
    Example(
        "GRA005",
        f'{DENSE} --max-num-seqs 64 @C<"cudagraph_capture_sizes": [8, 16]>@',
        f'{DENSE} --max-num-seqs 16 @C<"cudagraph_capture_sizes": [8, 16]>@',
    ),
    Example("GRA016", f'{DENSE} @C<"cudagraph_capture_sizes": [8, 16]>@'),
    Example(
        "GRA006",
        f'{DENSE} --max-num-batched-tokens 64 --max-num-seqs 8 @C<"cudagraph_capture_sizes": [8, 128]>@',
    ),
    Example(
        "GRA007",
        f'{DENSE} @C<"cudagraph_capture_sizes": [8, 16], "max_cudagraph_capture_size": 32>@',
        f'{DENSE} @C<"cudagraph_capture_sizes": [8, 16], "max_cudagraph_capture_size": 16>@',
    ),
    Example(
        "GRA008",
        f'{DENSE} @C<"cudagraph_capture_sizes": [1,2,4,8,16,24,32,40,48,56,64]>@',
        f'{DENSE} @C<"cudagraph_capture_sizes": [1,2,4,8,16,24,32,40,48]>@',
        "v0.18.0",
    ),
    Example(
        "GRA009",
        f'# on Ascend 950DT\n{MOE.replace("-tp 16", "-tp 8")} @C<"cudagraph_mode": "PIECEWISE">@',
        f"# on Ascend 950DT\n{MOE.replace('-tp 16', '-tp 8')} @C<{FULL}>@",
    ),
    Example("GRA010", f'{DENSE} @C<"cudagraph_mode": "FULL_AND_PIECEWISE">@', image="v0.18.0"),
    Example(
        "GRA012",
        f"{DENSE} --gpu-memory-utilization 0.96",
        f"{DENSE} --gpu-memory-utilization 0.96 --enforce-eager",
    ),
    Example("GRA013", f"{DENSE} --enforce-eager @C<{FULL}>@", f"{DENSE} --enforce-eager"),
    Example(
        "GRA014",
        f'{DENSE} @C<"pass_config": {{"enable_sp": true}}>@',
        f'{DENSE} @C<"pass_config": {{"enable_sp": false}}>@',
    ),
    Example(
        "GRA015",
        f"export VLLM_ASCEND_ENABLE_FLASHCOMM1=1\n{MOE} {MTP.replace('3}', '2}')} @C<{FULL}>@",
        f"export VLLM_ASCEND_ENABLE_FLASHCOMM1=1\n{MOE} {MTP} @C<{FULL}>@",
    ),
    Example("GRA017", f'{DENSE} @C<"cudagraph_mode": "FULL_DECODE">@', f"{DENSE} @C<{FULL}>@"),
]


def overrides(keys: str) -> str:
    return f"--hf-overrides '{{{keys}}}'"


YARN = '"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 262144'

MODELS = [
    Example(
        "MOD004",
        f"{MOE} --max-model-len 524288 " + overrides(f'"rope_parameters": {{{YARN}}}'),
        f"{MOE} --max-model-len 524288 " + overrides(f'"text_config": {{"rope_parameters": {{{YARN}}}}}'),
    ),
    Example(
        "MOD005",
        f"{DENSE} " + overrides('"rope_parameters": {"type": "yarn", "factor": 4.0}'),
        f"{DENSE} " + overrides('"rope_parameters": {"rope_type": "yarn", "factor": 4.0}'),
    ),
    Example("SPC003", f"{SMALL} -tp 2 {MTP}", f"{SMALL} -tp 2", "v0.17.0rc1"),
    Example(
        "HYB015",
        "vllm serve Qwen/Qwen3.5-27B -tp 4 --enable-prefix-caching",
        "vllm serve Qwen/Qwen3.5-27B -tp 4 --no-enable-prefix-caching",
        "v0.19.1rc1",
    ),
    Example("HYB001", f"{MOE} --block-size 128", f"{DENSE} --block-size 128"),
    Example(
        "HYB002",
        f"{SMALL} -tp 2 --enable-prefix-caching --max-num-batched-tokens 1024",
        f"{SMALL} -tp 4 --enable-prefix-caching --max-num-batched-tokens 1024",
    ),
    Example(
        "HYB016",
        f"{SMALL} -tp 2 --enable-prefix-caching --max-num-batched-tokens 2048 --max-num-seqs 16",
        f"{SMALL} -tp 2 --enable-prefix-caching --max-num-batched-tokens 2112 --max-num-seqs 16 {MTP}",
    ),
    Example(
        "HYB003", f"{SMALL} -tp 2 --enable-prefix-caching --max-num-batched-tokens 8192", f"{SMALL} -tp 2"
    ),
    Example(
        "HYB004",
        f"{SMALL} -tp 2 {transfer('kv_consumer')}",
        f"{SMALL} -tp 2 {transfer('kv_consumer', 'MooncakeLayerwiseConnector')}",
        "v0.18.0",
    ),
    Example(
        "HYB005",
        f"{SMALL} -tp 8 --enable-prefix-caching {transfer('kv_consumer')}",
        f"{SMALL} -tp 8 {transfer('kv_consumer')}",
    ),
    Example("HYB006", pair(MTP, MTP.replace("3}", "1}")), pair(MTP, MTP)),
    Example("HYB007", f"{SMALL} -tp 8 {transfer('kv_consumer', extra=RECOMPUTE)}"),
    Example("HYB008", f"{SMALL} -tp 2 {MTP}", image="v0.13.0"),
    Example("HYB009", f"{SMALL} -tp 6", f"{SMALL} -tp 8"),
    Example("HYB010", MOE, f"{MOE} --language-model-only"),
    Example(
        "HYB013",
        "vllm serve Qwen/Qwen3.5-27B -tp 4",
        "vllm serve Qwen/Qwen3.5-27B -tp 4 --enable-prefix-caching",
    ),
    Example(
        "HYB014",
        f"{SMALL} -tp 8 {transfer('kv_consumer').replace('--no-disable-hybrid-kv-cache-manager', '')}",
        f"{SMALL} -tp 8 {transfer('kv_consumer')}",
    ),
    Example(
        "MOD001",
        "vllm serve Qwen/Qwen3.6-35B-A3B -tp 2",
        "vllm serve Qwen/Qwen3.5-35B-A3B -tp 2",
        "v0.17.0rc1",
    ),
    Example(
        "MOD002",
        f"{DENSE} --max-model-len 131072",
        f"{DENSE} --max-model-len 131072 --hf-overrides '{{\"rope_parameters\": {{}}}}'",
    ),
    Example(
        "MOD003",
        f"{SMALL} -tp 2 --enable-auto-tool-choice --tool-call-parser hermes",
        f"{DENSE} --enable-auto-tool-choice --tool-call-parser hermes",
    ),
    Example(
        "SPC001",
        f'{DENSE} --speculative-config \'{{"method": "eagle3", "model": "a", "num_speculative_tokens": 3, '
        '"draft_tensor_parallel_size": 4}\'',
    ),
    Example(
        "SPC002", f'{DENSE} --speculative-config \'{{"method": "eagle3", "num_speculative_tokens": 3}}\''
    ),
    Example(
        "MOE001",
        f"export VLLM_ASCEND_ENABLE_FLASHCOMM1=1\n{SMALL}",
        f"export VLLM_ASCEND_ENABLE_FLASHCOMM1=0\n{SMALL}",
    ),
    Example(
        "MOE002",
        f'{MOE.replace("--enable-expert-parallel", "")} @A<"enable_flashcomm1": true>@',
        f'{MOE} @A<"enable_flashcomm1": true>@',
    ),
    Example(
        "MOE003",
        f'{MOE} @A<"enable_fused_mc2": 1, "multistream_overlap_shared_expert": true>@',
        f'{MOE} @A<"enable_fused_mc2": 1>@',
    ),
    Example(
        "MOE014",
        f'export VLLM_ASCEND_ENABLE_FUSED_MC2=1\n{MOE} @A<"multistream_overlap_shared_expert": true>@',
        image="v0.18.0",
    ),
    Example("MOE004", f'{MOE} @A<"enable_fused_mc2": 1, "enable_mc2_hierarchy_comm": true>@'),
    Example(
        "MOE005",
        f'# Atlas 800 A2\n{SMALL} -tp 8 @A<"enable_fused_mc2": 1>@',
        f'# Atlas 800 A3\n{SMALL} -tp 8 @A<"enable_fused_mc2": 1>@',
    ),
    Example(
        "MOE006",
        f'{MOE} -dp 4 --data-parallel-size-local 1 @A<"enable_fused_mc2": 1>@',
        f'{MOE} @A<"enable_fused_mc2": 1>@',
    ),
    Example(
        "MOE007",
        f"# A3\nexport HCCL_BUFFSIZE=64\n{SMALL} -tp 2 --max-num-seqs 128",
        f"# A3\nexport HCCL_BUFFSIZE=512\n{SMALL} -tp 2 --max-num-seqs 128",
    ),
    Example("MOE008", f"{DENSE} --enable-expert-parallel", DENSE),
    Example("MOE009", f'{MOE} @A<"enable_fused_mc2": 2>@', image="v0.22.1rc1"),
    Example("MOE010", f'{MOE} @A<"enable_fused_mc2": 2>@', image="v0.26.0rc1"),
    Example("MOE011", f'{MOE} @A<"enable_flashcomm1": true>@', image="v0.30.0rc1"),
    Example("MOE012", f'{MOE} @A<"enable_flashcomm1": true>@', image="v0.18.0"),
    Example(
        "MOE013",
        f"# Atlas 800 A2\nexport VLLM_ASCEND_ENABLE_FLASHCOMM1=1\n"
        f"vllm serve Eco-Tech/Qwen3.6-35B-A3B-w8a8 -tp 2 --enable-expert-parallel {MTP}",
        image="v0.18.0rc1",
    ),
    Example(
        "MOE015",
        f'{DENSE} @A<"multistream_overlap_shared_expert": true>@',
        f'{MOE} @A<"multistream_overlap_shared_expert": true>@',
    ),
    Example("MOE017", f'{MOE} @A<"weight_nz_mode": 2>@', f'{MOE} @A<"weight_nz_mode": 1>@'),
    Example(
        "MOE017",
        f"export VLLM_ASCEND_ENABLE_NZ=2\n{MOE}",
        f"export VLLM_ASCEND_ENABLE_NZ=2\n{DENSE}",
    ),
    Example(
        "MOE016",
        f"export VLLM_ASCEND_ENABLE_DENSE_OPTIMIZE=1\n{MOE}",
        f"export VLLM_ASCEND_ENABLE_DENSE_OPTIMIZE=1\n{DENSE}",
    ),
]

SERVICE = [
    Example(
        "CON001",
        f'{MOE} @A<"mix_placement": true, "enable_shared_expert_dp": true>@',
        f'{MOE} @A<"mix_placement": true>@',
    ),
    Example(
        "MEM003",
        f"{DENSE} --max-model-len 8192 --max-num-batched-tokens 122880",
        f"{DENSE} --max-model-len 8192 --max-num-batched-tokens 16384",
    ),
    Example(
        "MEM005",
        f"{SMALL} -tp 8 {transfer('kv_consumer')} {MTP} --max-num-seqs 64 --max-num-batched-tokens 240",
        f"{SMALL} -tp 8 {transfer('kv_consumer')} {MTP} --max-num-seqs 64 --max-num-batched-tokens 256",
    ),
    Example(
        "MEM006",
        f"{DENSE} --max-num-seqs 64 --max-num-batched-tokens 32",
        f"{DENSE} --max-num-seqs 64 --max-num-batched-tokens 64",
    ),
    Example(
        "MEM007",
        f"{DENSE} --no-enable-chunked-prefill --max-model-len 8192 --max-num-batched-tokens 4096",
        f"{DENSE} --max-model-len 8192 --max-num-batched-tokens 4096",
    ),
    Example(
        "MEM008", f"{DENSE} --allowed-local-media-path /", f"{DENSE} --allowed-local-media-path /data/media"
    ),
    Example(
        "MEM009",
        f"{DENSE} --max-num-seqs 8\nvllm bench serve --model Qwen/Qwen3-32B --max-concurrency 64",
        f"{DENSE} --max-num-seqs 64\nvllm bench serve --model Qwen/Qwen3-32B --max-concurrency 64",
    ),
    Example("MEM010", f"{DENSE} --gpu-memory-utilization 1.2", f"{DENSE} --gpu-memory-utilization 0.9"),
    Example(
        "SRV001",
        f"{DENSE} --served-model-name qwen\nvllm bench serve --model Qwen/Qwen3-32B",
        f"{DENSE} --served-model-name qwen\nvllm bench serve --model Qwen/Qwen3-32B --served-model-name qwen",
    ),
    Example("SRV002", f"{DENSE} --trust-remote-code", DENSE),
    Example(
        "SCH001",
        f"{DENSE} --async-scheduling --distributed-executor-backend ray",
        f"{DENSE} --async-scheduling --distributed-executor-backend mp",
    ),
    Example(
        "SCH002",
        f'{DENSE} --async-scheduling --speculative-config \'{{"method": "ngram", "num_speculative_tokens": 3}}\'',
    ),
    Example(
        "SCH003",
        f"{DENSE} --max-num-seqs 2 --max-model-len 1024 --max-num-batched-tokens 4096",
        f"{DENSE} --max-num-seqs 8 --max-model-len 1024 --max-num-batched-tokens 4096",
    ),
    Example(
        "TOP001",
        f"export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3\n{DENSE}",
        f"export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n{DENSE}",
    ),
    Example(
        "TOP010",
        f"export ASCEND_RT_VISIBLE_DEVICES=0,2,1,3\n{DENSE}",
        f"export ASCEND_RT_VISIBLE_DEVICES=4,5,6,7,8,9,10,11\n{DENSE}",
    ),
    Example("TOP011", node(1).replace("vllm serve", MODULE), node(1)),
    Example("TOP012", node(1, "--data-parallel-hybrid-lb"), node(1)),
    Example("TOP012", node(0, "--data-parallel-hybrid-lb") + node(1), node(0) + node(1)),
    Example("TOP002", "vllm serve Qwen/Qwen3-32B -tp 12", DENSE),
    Example("TOP003", node(0) + node(1, rpc_port=13390), node(0) + node(1)),
    Example("TOP004", node(0) + node(1, "--api-server-count 2"), node(0, "--api-server-count 2") + node(1)),
    Example("TOP005", f"{DENSE} -pcp 2 -dp 2", f"{DENSE} -pcp 2"),
    Example("TOP006", f"{MOE} -pp 2 {MTP}", f"{MOE} -pp 1 {MTP}"),
    Example(
        "TOP007",
        "docker run --device /dev/davinci0 --device /dev/davinci1 "
        "quay.io/ascend/vllm-ascend:v0.23.0 vllm serve Qwen/Qwen3-32B -tp 4",
        "docker run --device /dev/davinci0 --device /dev/davinci1 "
        "quay.io/ascend/vllm-ascend:v0.23.0 vllm serve Qwen/Qwen3-32B -tp 2",
    ),
    Example(
        "TOP008",
        node(0, "--max-num-seqs 16") + node(1, "--max-num-seqs 32"),
        node(0, "--max-num-seqs 16") + node(1, "--max-num-seqs 16"),
    ),
    Example(
        "TOP009",
        f"{SMALL} --headless --data-parallel-size 2 --data-parallel-size-local 0 --data-parallel-start-rank 1",
    ),
    Example(
        "PORT001",
        f"{DENSE} --port 8000 --data-parallel-rpc-port 8000",
        f"{DENSE} --port 8000 --data-parallel-rpc-port 8001",
    ),
    Example("PORT002", f"{DENSE} --port 60001", f"{DENSE} --port 60016"),
    Example(
        "PD001",
        pair(connector="MooncakeLayerwiseConnector") + proxy(),
        pair(connector="MooncakeLayerwiseConnector")
        + proxy("load_balance_proxy_layerwise_server_example.py"),
    ),
    Example("PD002", pair() + proxy("load_balance_proxy_layerwise_server_example.py"), pair() + proxy()),
    Example(
        "PD001",
        pair(connector="MooncakeLayerwiseConnector") + router(),
        pair(connector="MooncakeLayerwiseConnector") + router("--connector push"),
    ),
    Example("PD002", pair() + router("--connector push"), pair() + router("--connector=pull")),
    Example(
        "PD002", pair() + router("--connector=push").replace("qanat", "python3 -m qanat"), pair() + router()
    ),
    Example("PD022", pair() + router().replace("8200", "8201"), pair() + router()),
    Example(
        "PD023",
        router("--prefiller-hosts 10.0.0.1 10.0.0.3 10.0.0.4 --prefiller-ports 8100 8100"),
        router("--prefiller-hosts 10.0.0.1 10.0.0.3 10.0.0.4 --prefiller-ports 8100"),
    ),
    Example("PD025", pair().replace("kv_producer", "kv_consumer") + router(), pair() + router()),
    Example("PD025", pair().replace("kv_consumer", "kv_producer") + proxy(), pair() + proxy()),
    Example("PD026", pair().replace("kv_producer", "kv_consumer"), pair()),
    Example("PD026", pair().replace("kv_consumer", "kv_producer"), pair().replace("kv_consumer", "kv_both")),
    Example("PD003", f"{SMALL} -tp 8 {transfer('kv_consumer', 'MooncakeConnector')}", image="v0.18.0"),
    Example(
        "PD020",
        f"{SMALL} -tp 8 {transfer('kv_consumer', 'MooncakeConnector')}",
        f"{SMALL} -tp 8 {transfer('kv_consumer')}",
    ),
    Example(
        "PD004",
        f"{SMALL} -tp 8 {transfer('kv_producer', port=23010)}",
        f"{SMALL} -tp 8 {transfer('kv_producer', port=36010)}",
    ),
    Example(
        "PD005",
        f"{SMALL} -tp 4 {transfer('kv_producer', extra=sizes(4, 8))}",
        f"{SMALL} -tp 8 {transfer('kv_producer', extra=sizes(8, 4))}",
    ),
    Example(
        "PD006",
        f"{SMALL} -tp 4 {transfer('kv_producer', extra=sizes(8, 8))}",
        f"{SMALL} -tp 8 {transfer('kv_producer', extra=sizes(8, 8))}",
    ),
    Example(
        "PD007",
        f'{SMALL} -tp 8 @A<"recompute_scheduler_enable": true>@',
        f'{SMALL} -tp 8 {transfer("kv_consumer")} @A<"recompute_scheduler_enable": true>@',
    ),
    Example("PD008", f'{SMALL} -tp 8 {transfer("kv_producer")} @A<"recompute_scheduler_enable": true>@'),
    Example(
        "PD009",
        f'{SMALL} -tp 8 {transfer("kv_producer")} @A<"enable_balance_scheduling": true>@',
        f'{SMALL} -tp 8 @A<"enable_balance_scheduling": true>@',
    ),
    Example(
        "PD010",
        f"vllm serve a/Qwen3-32B-w8a8c8 -tp 8 {transfer('kv_consumer')}",
        f"vllm serve a/Qwen3-32B-w8a8c8 -tp 8 {transfer('kv_consumer', 'MooncakeLayerwiseConnector')}",
    ),
    Example(
        "PD013", RESOURCES.format(mount="/data:/data"), RESOURCES.format(mount="/etc/hixlep/:/etc/hixlep/")
    ),
    Example(
        "PD011",
        pair()
        .replace("vllm", "HCCL_EXEC_TIMEOUT=1000 vllm", 1)
        .replace("\nvllm", "\nHCCL_EXEC_TIMEOUT=900 vllm"),
        pair(),
    ),
    Example(
        "PD012",
        f"docker run --device /dev/davinci0 quay.io/ascend/vllm-ascend:v0.23.0-a3 {SMALL} {transfer('kv_consumer')}",
        f"docker run -v /etc/hccn.conf:/etc/hccn.conf --device /dev/davinci0 "
        f"quay.io/ascend/vllm-ascend:v0.23.0-a3 {SMALL} {transfer('kv_consumer')}",
    ),
    Example(
        "PD014",
        proxy("load_balance_proxy_layerwise_server_example.py").replace("10.0.0.9", "0.0.0.0"),
        proxy("load_balance_proxy_layerwise_server_example.py"),
    ),
    Example(
        "PD015",
        f"{SMALL} -tp 8 {transfer('kv_consumer', extra=IDENTITY)}",
        f"{SMALL} -tp 8 {transfer('kv_consumer')}",
    ),
    Example(
        "PD018",
        f"{SMALL} -tp 8 {transfer('kv_consumer')} --enforce-eager",
        f"{SMALL} -tp 8 {transfer('kv_producer')} --enforce-eager",
    ),
    Example(
        "PD019",
        pair("--max-model-len 8192", "--max-model-len 4096"),
        pair("--max-model-len 8192", "--max-model-len 8192"),
    ),
    Example("PD021", pair().replace("35B-A3B", "397B-A17B", 1), pair()),
    Example("PD022", pair() + proxy().replace("8200", "8300"), pair() + proxy()),
    Example("PD023", proxy().replace("10.0.0.1 --pre", "10.0.0.1 10.0.0.3 --pre"), proxy()),
]

HOSTS = [
    Example(
        "TXT005",
        f"# Guide\n\n```\n{DENSE}\n```\n\nIf it hangs, check that --data-parallel-start-rank is 0.\n",
        f"# Guide\n\n```\n{DENSE} -dpr 0\n```\n\nIf it hangs, check that --data-parallel-start-rank is 0.\n",
    ),
    Example(
        "TXT006",
        f"# Guide\n\nNeeds image 0.18.0.rc1.\n\n```\n{DENSE}\n```\n",
        f"# Guide\n\nNeeds image 0.18.0rc1.\n\n```\n{DENSE}\n```\n",
    ),
    Example("HOST001", "sysctl vm.swappiness=0", "sysctl -w vm.swappiness=0"),
    Example("HOST002", "sysctl -w kernel.sched_migration_cost_ns=50000", "sysctl -w vm.swappiness=0"),
    Example("HOST005", "pkill -9 python", 'kill "$(cat server.pid)"'),
    Example(
        "HOST007",
        "A guide. It wants CANN 8.3.RC1 and HDK 25.2.1.\n\n```\n"
        "docker run quay.io/ascend/vllm-ascend:v0.18.0rc1 bash\n```\n",
        "A guide. It wants CANN 8.5.1 and HDK 25.5.1.\n\n```\n"
        "docker run quay.io/ascend/vllm-ascend:v0.18.0rc1 bash\n```\n",
        "",
    ),
    Example(
        "HOST008",
        MIXED_IMAGE.format(flags="--rm -itd", tag="v0.23.0"),
        MIXED_IMAGE.format(flags="--rm -it", tag="v0.23.0"),
    ),
    Example(
        "HOST009",
        MIXED_IMAGE.format(flags="-v /home:/home -v /home:/home", tag="v0.23.0"),
        MIXED_IMAGE.format(flags="-v /home:/home -v /data:/data", tag="v0.23.0"),
    ),
    Example(
        "HOST010",
        MIXED_IMAGE.format(flags="-it", tag="v0.23.0-#TODO"),
        MIXED_IMAGE.format(flags="-it", tag="v0.23.0-950dt"),
    ),
    Example(
        "HOST011",
        "A guide for vllm-ascend 0.18.0rc1.\n\n```\ndocker run quay.io/ascend/vllm-ascend:v0.11.0 bash\n```\n",
        "A guide for vllm-ascend 0.11.0.\n\n```\ndocker run quay.io/ascend/vllm-ascend:v0.11.0 bash\n```\n",
        "",
    ),
    Example(
        "HOST012",
        MIXED_IMAGE.format(flags="--privileged --device /dev/davinci0", tag="v0.23.0"),
        MIXED_IMAGE.format(flags="--privileged", tag="v0.23.0"),
    ),
    Example("HOST013", "cd vllm-ascend/examples/disaggregated_prefill_v1/\nbash proxy.sh"),
    Example(
        "HOST014",
        "source /usr/local/Ascend/ascend-toolkit/8.3.RC2/set_env.sh",
        "source /usr/local/Ascend/ascend-toolkit/set_env.sh",
        "v0.18.0",
    ),
    Example(
        "HOST015",
        f"# On one Atlas 800 A3\ndocker run quay.io/ascend/vllm-ascend:v0.23.0 bash\n{MOE}",
        f"# On one Atlas 800 A3\ndocker run quay.io/ascend/vllm-ascend:v0.23.0-a3 bash\n{MOE}",
    ),
    Example("HOST016", MIXED_IMAGE.format(flags="-v /usr/lib64:/usr/lib64", tag="v0.23.0")),
    Example("HOST017", MANIFEST.format(name="vllm"), MANIFEST.format(name="qwen")),
    Example(
        "TXT001",
        f"| TP | max-num-batched-tokens | prefix caching | DP |\n|---|---|---|---|\n"
        f"| 2 | 1024 | on | 1 |\n\n```\n{SMALL} -tp 2\n```\n",
        f"| TP | max-num-batched-tokens | prefix caching | DP |\n|---|---|---|---|\n"
        f"| 2 | 4096 | on | 1 |\n\n```\n{SMALL} -tp 2\n```\n",
    ),
    Example("TXT002", f"The task_queue has levels.\n\nWe recommend Level 2 for all.\n\n```\n{DENSE}\n```\n"),
    Example(
        "TXT003", f"OOM at start is frequent.\n\nReduce --gpu-memory-utilization then.\n\n```\n{DENSE}\n```\n"
    ),
    Example("TXT004", f"The p2p connector pushes the cache.\n\n```\n{DENSE}\n```\n"),
]

WIDE = '"cudagraph_mode": "FULL_AND_PIECEWISE", "cudagraph_capture_sizes": [1,2,4,8,16,24,32,40,48,56,64]'
BESIDE = {"beside.env": "OMP_NUM_THREADS='1'\n", "plain.env": "OMP_NUM_THREADS=1\n"}
"""Files that examples name."""


def two_servers(first: str, second: str) -> str:
    return f"{first} vllm serve Qwen/Qwen3-32B -tp 4 &\n{second} vllm serve Qwen/Qwen3-8B --port 8001 &\n"


def npus(numbers: str) -> str:
    return f"ASCEND_RT_VISIBLE_DEVICES={numbers}"


METRICS = "PROMETHEUS_MULTIPROC_DIR=/dev/shm/{}"

MEMORY = [
    Example(
        "MEM001",
        "# Atlas 800 A2\nvllm serve Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp -tp 4 --enable-expert-parallel",
        "# Atlas 800 A2\nvllm serve Eco-Tech/Qwen3.5-397B-A17B-w4a8-mtp -tp 8 --enable-expert-parallel",
    ),
    Example(
        "MEM002",
        "# Atlas 800 A2\nvllm serve vllm-ascend/Qwen3-32B-W8A8 -tp 1 --max-model-len 131072 "
        f"--hf-overrides '{{\"rope_parameters\": {{{YARN}}}}}'",
        "# Atlas 800 A2\nvllm serve vllm-ascend/Qwen3-32B-W8A8 -tp 1 --max-model-len 32768",
    ),
    Example(
        "MEM004",
        two_servers(npus("0-3"), npus("3")),
        two_servers(npus("0-3"), npus("4")),
    ),
    Example(
        "PORT003",
        two_servers(npus("0-3"), npus("4")).replace("--port 8001", ""),
        two_servers(npus("0-3"), npus("4")),
    ),
    Example(
        "HYB011",
        f"# Atlas 800 A2\nvllm serve Qwen/Qwen3.5-35B-A3B -tp 2 --max-num-seqs 2048 --max-model-len 8192 @C<{FULL}>@",
        f"# Atlas 800 A2\nvllm serve Qwen/Qwen3.5-35B-A3B -tp 2 --max-num-seqs 64 --max-model-len 8192 @C<{FULL}>@",
    ),
    Example(
        "HYB012",
        f"# Atlas 800 A2\nvllm serve Qwen/Qwen3.5-35B-A3B -tp 2 --max-model-len 8192 "
        f"--gpu-memory-utilization 0.66 --max-num-seqs 512 @C<{FULL}>@",
        f"# Atlas 800 A2\nvllm serve Qwen/Qwen3.5-35B-A3B -tp 2 --max-model-len 8192 "
        f"--max-num-seqs 16 @C<{FULL}>@",
        "v0.18.0",
    ),
    Example(
        "ENV022",
        two_servers(f"{npus('0-3')} {METRICS.format('a')}", f"{npus('4')} {METRICS.format('a')}"),
        two_servers(f"{npus('0-3')} {METRICS.format('a')}", f"{npus('4')} {METRICS.format('b')}"),
    ),
    Example(
        "ENV033",
        f"export {METRICS.format('a')}\n{DENSE}",
        f'export {METRICS.format("a")}\nrm -rf "$PROMETHEUS_MULTIPROC_DIR"\n{DENSE}',
    ),
    Example(
        "PD016",
        f"export VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT=60\n{SMALL} -tp 8 {transfer('kv_producer')}",
        f"export VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT=480\n{SMALL} -tp 8 {transfer('kv_producer')}",
    ),
    Example(
        "GRA011",
        f"# HDK 25.2.1\n{DENSE} @C<{WIDE}>@",
        f"# HDK 25.5.1\n{DENSE} @C<{WIDE}>@",
    ),
    Example(
        "GRA018",
        DENSE,
        f"{DENSE} @C<{FULL}>@",
        "v0.18.0",
    ),
    Example("GRA019", f"{DENSE} @C<{WIDE}>@", f"{DENSE} @C<{FULL}>@"),
    Example(
        "HOST003",
        "docker run -d quay.io/ascend/vllm-ascend:v0.23.0 bash -c 'sysctl -w vm.swappiness=0'",
        "docker run -d --privileged quay.io/ascend/vllm-ascend:v0.23.0 bash -c 'sysctl -w vm.swappiness=0'",
    ),
    Example(
        "HOST004",
        "docker run --platform linux/amd64 quay.io/ascend/vllm-ascend:v0.23.0 "
        f'{DENSE} @A<"enable_cpu_binding": true>@',
        f'docker run --platform linux/arm64 quay.io/ascend/vllm-ascend:v0.23.0 {DENSE} @A<"enable_cpu_binding": true>@',
    ),
    Example(
        "HOST006",
        f"docker run --cpuset-cpus 0-15 quay.io/ascend/vllm-ascend:v0.23.0 {DENSE}",
        f"docker run --cpuset-cpus 0-63 quay.io/ascend/vllm-ascend:v0.23.0 {DENSE}",
    ),
    Example(
        "ENV035",
        f"export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True\n{DENSE} --enable-sleep-mode",
        f"export PYTORCH_NPU_ALLOC_CONF=expandable_segments:False\n{DENSE} --enable-sleep-mode",
    ),
    Example(
        "ENV034",
        "docker run --env-file beside.env quay.io/ascend/vllm-ascend:v0.23.0 bash",
        "docker run --env-file plain.env quay.io/ascend/vllm-ascend:v0.23.0 bash",
    ),
]

NEEDS = "# Guide\n\nQwen3.5-397B-A17B-w4a8: needs {} nodes.\n"
CLAIMS = [
    Example("TXT008", NEEDS.format("2 Atlas 800 A2"), NEEDS.format("1 Atlas 800 A2")),
    Example(
        "TXT009",
        "# Guide\n\n## 3.1 Start\n\nText.\n\n## 3.3 Tuning\n\nText.\n",
        "# Guide\n\n## 3.1 Start\n\nText.\n\n## 3.2 Tuning\n\nText.\n",
    ),
]
REFUSED = [
    Example("CLI026", f"{DENSE} --port 8000 9000", f"{DENSE} --served-model-name a b --port 8000"),
    Example(
        "PD024",
        f'{SMALL} -tp 8 --kv-transfer-config \'{{"kv_connector": "MooncakeConnectorV1", "kv_port": 36100}}\'',
        f"{SMALL} -tp 8 {transfer('kv_producer')}",
    ),
    Example(
        "SRV003",
        f"{DENSE} --enable-auto-tool-choice",
        f"{DENSE} --enable-auto-tool-choice --tool-call-parser hermes",
    ),
]


def compressed(**changed: str) -> str:
    """A server of compressed weights on a 310P as it should be, with some parts changed."""
    return " ".join([SC, *{**SC_PARTS, **changed}.values()])


HYBRID_310P = "docker run quay.io/ascend/vllm-ascend:v0.23.0-310p vllm serve Eco-Tech/Qwen3.6-27B-w8a8 -tp 2"
CHIPS = [
    Example("NPU001", compressed(type=""), compressed()),
    Example("NPU001", compressed(type="--dtype bfloat16"), compressed(type="--dtype half")),
    Example("NPU002", compressed(loader=""), compressed()),
    Example("NPU003", compressed(graphs='@C<"cudagraph_capture_sizes": [1, 8, 32]>@'), compressed()),
    Example("NPU003", compressed(graphs=""), compressed(graphs="--enforce-eager")),
    Example("NPU004", compressed(window=""), compressed()),
    Example("NPU004", compressed(window="--max-model-len 32768"), compressed(window="--max-model-len 20480")),
    Example("NPU005", compressed(tp="-tp 8"), compressed()),
    Example("NPU006", HYBRID_310P, f"{HYBRID_310P} --mamba-ssm-cache-dtype float16"),
    Example("NPU007", compressed(extension=""), compressed()),
    Example(
        "NPU008",
        MIXED_IMAGE.format(flags="-it", tag="v0.23.0-a3") + f"\n{SMALL} -tp 2 --dtype half",
        MIXED_IMAGE.format(flags="-it", tag="v0.23.0-a3") + f"\n{SMALL} -tp 2 --dtype bfloat16",
    ),
]
TOGETHER = ["TXT007"]
"""Rules that take more than one file; they are tested by themselves."""

EXAMPLES = COMMAND_LINE + ENVIRONMENT + GRAPHS + MODELS + SERVICE + HOSTS + MEMORY + CLAIMS + REFUSED + CHIPS
