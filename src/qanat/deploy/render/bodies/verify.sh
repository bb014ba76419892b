readonly request_timeout_s=300
readonly deadline=$((SECONDS + READY_TIMEOUT_S))

# Requests go straight to the nodes: a web proxy of the environment would not reach them.
ask() {
  curl --noproxy '*' --silent --show-error --max-time "$request_timeout_s" --write-out '\n%{http_code}' "$@" 2>&1
}

# wait_until_ready URL: waits for a 200 there.
wait_until_ready() {
  local answer
  until answer="$(ask --max-time 10 "$1")" && [[ "${answer##*$'\n'}" == 200 ]]; do
    if ((SECONDS >= deadline)); then
      printf '%s is not ready after %s s: %s\n' "$1" "$READY_TIMEOUT_S" "${answer:0:200}" >&2
      exit 3
    fi
    printf 'waiting for %s\n' "$1"
    sleep 5
  done
  printf '%-18s ok\n' ready
}

# check NAME PATTERN [arguments of curl]: the answer is a 200 and holds the pattern.
check() {
  local name="$1" pattern="$2" answer
  shift 2
  if answer="$(ask "$@")" && [[ "${answer##*$'\n'}" == 200 ]] && grep --quiet --fixed-strings -- "$pattern" <<<"$answer"; then
    printf '%-18s ok\n' "$name"
  else
    printf '%-18s failed: %s\n' "$name" "${answer:0:400}"
    num_failed=$((num_failed + 1))
  fi
}

# post NAME PATTERN PATH BODY
post() {
  check "$1" "$2" --no-buffer --header 'Content-Type: application/json' --data-binary "$4" "$url$3"
}

if ! command -v curl >/dev/null 2>&1; then
  printf 'curl is not installed here.\n' >&2
  exit 2
fi
for address in "${ready_urls[@]}"; do
  wait_until_ready "$address"
done
if command -v qanat >/dev/null 2>&1 && qanat deploy verify --help >/dev/null 2>&1; then
  exec qanat deploy verify "$url" --model "$model" --plan "$DEPLOYMENT_DIR"
fi

printf 'qanat is not installed here: the short list of checks, with curl.\n'
num_failed=0
for address in "${models_urls[@]}"; do
  check models "$quoted_model" "$address"
done
post completion '"finish_reason"' /v1/completions "$completion_body"
post chat '"content"' /v1/chat/completions "$chat_body"
post stream 'data: [DONE]' /v1/chat/completions "$stream_body"
if ((num_failed > 0)); then
  printf '%s checks failed.\n' "$num_failed" >&2
  exit 1
fi
printf 'The service answers.\n'
