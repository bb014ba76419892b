#!/bin/bash
# Decode node of a pair on two A3 nodes. Image: quay.io/ascend/vllm-ascend:v0.23.0-a3
set -euo pipefail
unset ftp_proxy
unset https_proxy
unset http_proxy

nic_name="eth0"
local_ip="192.0.2.2"

export VLLM_ENGINE_READY_TIMEOUT_S=3600
export HCCL_IF_IP=$local_ip
export GLOO_SOCKET_IFNAME=$nic_name
export TP_SOCKET_IFNAME=$nic_name
export HCCL_SOCKET_IFNAME=$nic_name
export HCCL_BUFFSIZE=1536
export LD_LIBRARY_PATH=/usr/local/Ascend/ascend-toolkit/latest/python/site-packages:${LD_LIBRARY_PATH:-}
export HCCL_OP_EXPANSION_MODE="AIV"
export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15

vllm serve Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp \
  --host ${local_ip} \
  --port 30050 \
  --no-enable-prefix-caching \
  --enable-expert-parallel \
  --data-parallel-size 1 \
  --data-parallel-size-local 1 \
  --api-server-count 1 \
  --data-parallel-address ${local_ip} \
  --data-parallel-rpc-port 6884 \
  --tensor-parallel-size 16 \
  --seed 1024 \
  --distributed-executor-backend mp \
  --served-model-name qwen3.5 \
  --max-num-seqs 32 \
  --max-model-len 16384 \
  --max-num-batched-tokens 128 \
  --quantization ascend \
  --no-disable-hybrid-kv-cache-manager \
  --gpu-memory-utilization 0.9 \
  --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY"}' \
  --speculative-config '{"method": "qwen3_5_mtp", "num_speculative_tokens": 3}' \
  --additional-config '{"recompute_scheduler_enable": true, "enable_cpu_binding": true}' \
  --kv-transfer-config \
  '{"kv_connector": "MooncakeLayerwiseConnector",
    "kv_role": "kv_consumer",
    "kv_port": "36200",
    "kv_connector_extra_config": {
      "prefill": {"dp_size": 1, "tp_size": 16},
      "decode": {"dp_size": 1, "tp_size": 16}
    }
  }'
