#!/bin/bash
# Qwen3.5-35B-A3B in W8A8 on 8 NPUs of an A3 node, with FlashComm1.
set -euo pipefail

docker run -d --name qwen35-35b --net=host --shm-size 64g \
  --device /dev/davinci0 --device /dev/davinci1 --device /dev/davinci2 --device /dev/davinci3 \
  --device /dev/davinci4 --device /dev/davinci5 --device /dev/davinci6 --device /dev/davinci7 \
  --device /dev/davinci_manager --device /dev/hisi_hdc --device /dev/devmm_svm \
  -v /usr/local/dcmi:/usr/local/dcmi \
  -v /usr/local/Ascend/driver/tools/hccn_tool:/usr/local/Ascend/driver/tools/hccn_tool \
  -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi \
  -v /usr/local/Ascend/driver/lib64/:/usr/local/Ascend/driver/lib64/ \
  -v /usr/local/Ascend/driver/version.info:/usr/local/Ascend/driver/version.info \
  -v /etc/ascend_install.info:/etc/ascend_install.info \
  -v /etc/hccn.conf:/etc/hccn.conf \
  -v /data/models:/data/models \
  -e ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \
  -e HCCL_OP_EXPANSION_MODE=AIV -e HCCL_BUFFSIZE=1024 -e OMP_NUM_THREADS=1 \
  -e VLLM_ASCEND_ENABLE_FLASHCOMM1=1 \
  quay.io/ascend/vllm-ascend:v0.18.0-a3 \
  vllm serve /data/models/Qwen3.5-35B-A3B-w8a8-mtp \
    --served-model-name qwen3.5 \
    --host 0.0.0.0 \
    --port 8010 \
    --data-parallel-size 1 \
    --tensor-parallel-size 8 \
    --enable-expert-parallel \
    --max-model-len 8192 \
    --max-num-batched-tokens 8192 \
    --max-num-seqs 16 \
    --gpu-memory-utilization 0.9 \
    --compilation-config '{"cudagraph_capture_sizes": [8, 16, 24, 32, 40, 48, 56, 64], "cudagraph_mode": "FULL_DECODE_ONLY"}' \
    --speculative-config '{"method": "qwen3_5_mtp", "num_speculative_tokens": 3, "enforce_eager": true}' \
    --async-scheduling \
    --quantization ascend \
    --mm-processor-cache-gb 0 \
    --additional-config '{"enable_cpu_binding": true, "multistream_overlap_shared_expert": true}'
