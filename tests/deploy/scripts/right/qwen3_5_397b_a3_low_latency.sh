#!/bin/bash
# Qwen3.5-397B-A17B in W8A8 on one A3 node, low latency. Image: quay.io/ascend/vllm-ascend:v0.23.0-a3
set -euo pipefail

export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
export HCCL_OP_EXPANSION_MODE="AIV"
export HCCL_BUFFSIZE=1024
export OMP_NUM_THREADS=1

echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor
sysctl -w vm.swappiness=0
sysctl -w kernel.numa_balancing=0

vllm serve /data/models/Qwen3.5-397B-A17B-w8a8-mtp \
  --served-model-name qwen3.5 \
  --host 0.0.0.0 \
  --port 8010 \
  --data-parallel-size 1 \
  --tensor-parallel-size 16 \
  --enable-expert-parallel \
  --max-model-len 5000 \
  --max-num-batched-tokens 16384 \
  --max-num-seqs 32 \
  --gpu-memory-utilization 0.9 \
  --compilation-config '{"cudagraph_capture_sizes": [4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112, 128], "cudagraph_mode": "FULL_DECODE_ONLY"}' \
  --speculative-config '{"method": "qwen3_5_mtp", "num_speculative_tokens": 3, "enforce_eager": true}' \
  --quantization ascend \
  --mm-processor-cache-gb 0 \
  --additional-config '{"enable_cpu_binding": true, "enable_fused_mc2": 1}'
