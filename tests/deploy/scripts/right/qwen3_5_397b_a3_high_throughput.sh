#!/bin/bash
# Qwen3.5-397B-A17B in W8A8 on one A3 node, high throughput. Image: quay.io/ascend/vllm-ascend:v0.23.0-a3
set -euo pipefail

MODEL=/data/models/Qwen3.5-397B-A17B-w8a8-mtp
GRAPHS='{"cudagraph_capture_sizes": [16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512], "cudagraph_mode": "FULL_DECODE_ONLY"}'
FLAGS=(
  --tensor-parallel-size 16
  --enable-expert-parallel
  --max-model-len 5000
  --max-num-batched-tokens 16384
  --max-num-seqs 128
  --gpu-memory-utilization 0.9
  --quantization ascend
  --speculative-config '{"method": "qwen3_5_mtp", "num_speculative_tokens": 3, "enforce_eager": true}'
  --additional-config '{"enable_cpu_binding": true, "enable_flashcomm1": true, "enable_fused_mc2": 1}'
)

export HCCL_OP_EXPANSION_MODE=AIV HCCL_BUFFSIZE=1024 OMP_NUM_THREADS=1

exec vllm serve "$MODEL" --served-model-name qwen3.5 --host 0.0.0.0 --port 8010 \
  --compilation-config "$GRAPHS" "${FLAGS[@]}"
