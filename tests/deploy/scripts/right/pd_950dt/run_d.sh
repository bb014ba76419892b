#!/bin/bash
# A pair on two 950DT nodes. Image: quay.io/ascend/vllm-ascend:v0.23.0-950dt
unset ftp_proxy https_proxy http_proxy
source ~/.bashrc

nic_name=eth0
local_ip=192.0.2.2

export HCCL_IF_IP=$local_ip
export GLOO_SOCKET_IFNAME=$nic_name
export TP_SOCKET_IFNAME=$nic_name
export HCCL_SOCKET_IFNAME=$nic_name
export VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=30000
export HCCL_CONNECT_TIMEOUT=1800
export HCCL_BUFFSIZE=1200
export OMP_PROC_BIND=false
export OMP_NUM_THREADS=1
export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7

vllm serve Eco-Tech/Qwen3.5-397B-A17B-w4a4-mxfp4 \
  --host "$local_ip" \
  --port 30050 \
  --no-enable-prefix-caching \
  --enable-expert-parallel \
  --data-parallel-size 1 \
  --data-parallel-size-local 1 \
  --data-parallel-address "$local_ip" \
  --data-parallel-rpc-port 6884 \
  --tensor-parallel-size 8 \
  --seed 1024 \
  --distributed-executor-backend mp \
  --served-model-name qwen3.5 \
  --max-model-len 133000 \
  --max-num-seqs 64 \
  --max-num-batched-tokens 256 \
  --gpu-memory-utilization 0.9 \
  --quantization ascend \
  --no-disable-hybrid-kv-cache-manager \
  --speculative-config '{"num_speculative_tokens": 3, "method": "qwen3_5_mtp"}' \
  --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY"}' \
  --additional-config '{"enable_cpu_binding": true, "multistream_overlap_shared_expert": true, "recompute_scheduler_enable": true}' \
  --kv-transfer-config "{\"kv_connector\": \"MooncakeConnectorV1\", \"kv_role\": \"kv_consumer\", \"kv_port\": \"36300\", \"engine_id\": \"3\", \"kv_connector_extra_config\": {\"prefill\": {\"dp_size\": 1, \"tp_size\": 8}, \"decode\": {\"dp_size\": 1, \"tp_size\": 8}, \"ascend_local_comm_res_path\": \"/etc/hixlep\"}}"
