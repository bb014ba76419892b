with_lm_eval() {
  if ! command -v lm_eval >/dev/null 2>&1; then
    printf 'lm_eval is not installed here: pip install "lm-eval[api]"\n' >&2
    exit 2
  fi
  mkdir -p -- "$results_dir"
  local arguments="model=$served_model_name,base_url=$url/v1/completions,tokenizer=$tokenizer"
  arguments+=",tokenized_requests=False,num_concurrent=$num_concurrent,max_retries=3,timeout=3600"
  # Without this a tokenizer is looked for on ModelScope where VLLM_USE_MODELSCOPE is set.
  USE_MODELSCOPE_HUB=0 lm_eval \
    --model local-completions \
    --model_args "$arguments" \
    --tasks gsm8k \
    --batch_size 1 \
    --output_path "$results_dir"
}

with_aisbench() {
  if ! command -v ais_bench >/dev/null 2>&1; then
    printf 'ais_bench is not installed here: pip install ais-bench-benchmark\n' >&2
    exit 2
  fi
  mkdir -p -- "$results_dir"
  local host_and_port="${url#*://}"
  host_and_port="${host_and_port%%/*}"
  SERVICE_HOST="${host_and_port%:*}" SERVICE_PORT="${host_and_port##*:}" SERVICE_TOKENIZER="$tokenizer" \
    ais_bench "$DEPLOYMENT_DIR/checks/aisbench_gsm8k.py" --mode all --work-dir "$results_dir"
}

case "$tool" in
  lm_eval) with_lm_eval ;;
  aisbench) with_aisbench ;;
  *)
    printf 'Unknown tool %s: lm_eval or aisbench.\n' "$tool" >&2
    exit 2
    ;;
esac
printf '\nPublished accuracies of this model:\n'
printf '  %s\n' "${published_texts[@]}"
printf 'Results: %s\n' "$results_dir"
