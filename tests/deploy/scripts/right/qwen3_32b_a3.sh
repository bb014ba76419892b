#!/bin/bash
# Qwen3-32B on one A3 node, draft model of the EAGLE3 kind. Image: quay.io/ascend/vllm-ascend:v0.18.0-a3
set -euo pipefail

export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export HCCL_OP_EXPANSION_MODE="AIV"
export OMP_NUM_THREADS=1
export TASK_QUEUE_ENABLE=1

vllm serve /data/models/Qwen3-32B \
  --served-model-name qwen3 \
  --dtype bfloat16 \
  --max-model-len 23000 \
  --max-num-seqs 32 \
  --max-num-batched-tokens 16384 \
  --tensor-parallel-size 8 \
  --enable-auto-tool-choice \
  --tool-call-parser hermes \
  --gpu-memory-utilization 0.90 \
  --enable-prefix-caching \
  --host 0.0.0.0 \
  --port 8261 \
  --block-size 128 \
  --distributed-executor-backend mp \
  --speculative-config '{"method": "eagle3", "model": "/data/models/Qwen3-32B-eagle3", "draft_tensor_parallel_size": 1, "num_speculative_tokens": 3}' \
  --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [4, 8, 16, 32, 64, 96, 128]}' \
  --additional-config '{"enable_cpu_binding": true}'
