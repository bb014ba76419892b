if [[ ! "$num_prompts_per_client" =~ ^[1-9][0-9]*$ ]]; then
  printf 'PROMPTS_PER_CLIENT must be a whole number above 0, not %s.\n' "$num_prompts_per_client" >&2
  exit 2
fi
if ! command -v vllm >/dev/null 2>&1 && ! docker container inspect "$container" >/dev/null 2>&1; then
  printf 'Neither vllm nor the container %s is here: run this on the first node, or inside its container.\n' \
    "$container" >&2
  exit 2
fi

# with_environment COMMAND...: runs it with what the scripts of CANN set; they read variables that may be unset.
with_environment() {
  local file
  set +eu
  for file in "${environment_scripts[@]}"; do
    if [[ -r "$file" ]]; then
      # shellcheck source=/dev/null
      source "$file"
    fi
  done
  exec "$@"
}

# in_image COMMAND...: runs where vllm is installed.
in_image() {
  local program
  if command -v vllm >/dev/null 2>&1; then
    (with_environment "$@")
  else
    program="$(declare -p environment_scripts); $(declare -f with_environment); with_environment \"\$@\""
    docker exec --interactive "$container" bash -c "$program" bash "$@"
  fi
}

mkdir -p -- "$results_dir"
work_dir="$(in_image mktemp -d </dev/null)"
readonly work_dir
trap 'in_image rm -rf -- "$work_dir" </dev/null' EXIT

# bench NAME CONCURRENCY PROMPTS: runs one step and leaves its result in NAME.json.
bench() {
  local name="$1" concurrency="$2" num_prompts="$3"
  in_image vllm bench serve \
    --base-url "$url" \
    --endpoint /v1/completions \
    --model "$tokenizer" \
    --served-model-name "$served_model_name" \
    --tokenizer "$tokenizer" \
    --dataset-name random \
    --random-input-len "$input_tokens" \
    --random-output-len "$output_tokens" \
    --ignore-eos \
    --seed 0 \
    --temperature 0 \
    --max-concurrency "$concurrency" \
    --num-prompts "$num_prompts" \
    --percentile-metrics ttft,tpot,itl,e2el \
    --metric-percentiles 50,90,99 \
    --save-result \
    --result-dir "$work_dir" \
    --result-filename "$name.json" </dev/null
  in_image cat "$work_dir/$name.json" </dev/null >"$results_dir/$name.json"
}

# summary FILE CONCURRENCY PUBLISHED: one line of the table; PUBLISHED is a list of numbers or empty.
summary() {
  in_image python3 -c "$summary_program" "$2" "$3" <"$1"
}

printf 'Warming up.\n'
bench warmup "${concurrencies[0]}" "$((2 * concurrencies[0]))"
for index in "${!concurrencies[@]}"; do
  concurrency="${concurrencies[$index]}"
  printf '\n%s tokens in, %s out, %s at once\n' "$input_tokens" "$output_tokens" "$concurrency"
  bench "at-$concurrency" "$concurrency" "$((num_prompts_per_client * concurrency))"
done

printf '\n%11s %10s %9s %9s %7s  %s\n' concurrency tokens/s 'TTFT ms' 'TPOT ms' failed published
for index in "${!concurrencies[@]}"; do
  concurrency="${concurrencies[$index]}"
  summary "$results_dir/at-$concurrency.json" "$concurrency" "${published_values[$index]}"
done
printf '\nPublished figures that are nearest (AISBench on real text; speculation accepts less of random tokens):\n'
printf '  %s\n' "${published_texts[@]}"
printf 'Results: %s\n' "$results_dir"
