# Asks past web proxies, which do not reach the nodes.
readonly probe='import sys, urllib.request as request
request.build_opener(request.ProxyHandler({})).open(sys.argv[1], timeout=5)'

# tell_progress SECONDS: one line that is written over on a terminal, one line a minute elsewhere.
tell_progress() {
  local last
  last="$(tail -n 1 -- "$log" 2>/dev/null | cut -c 1-120)" || true
  if [[ -t 1 ]]; then
    printf '\r\033[K%s: %s s: %s' "$node" "$1" "$last"
  elif (($1 >= next_line_at)); then
    printf '%s: %s s: %s\n' "$node" "$1" "$last"
    next_line_at=$(($1 + 60))
  fi
}

wait_until_ready() {
  if [[ "$is_waiting" == no ]]; then
    say "it starts in the background; its log is $log"
    return
  fi
  if [[ -z "$ready_url" ]]; then
    say "it answers no requests itself: the first node of its group tells when all is ready; its log is $log"
    return
  fi
  local started_at=$SECONDS
  next_line_at=60
  say "waiting for $ready_url, at most $READY_TIMEOUT_S s; its log is $log"
  until is_ready; do
    if ! is_running; then
      tail -n 40 -- "$log" >&2 || true
      fail "it ended before it was ready; what it said last is above, all of it in $log"
    fi
    if ((SECONDS - started_at >= READY_TIMEOUT_S)); then
      fail "not ready after $READY_TIMEOUT_S s; it is still running: see $log, or stop it with stop.sh"
    fi
    tell_progress "$((SECONDS - started_at))"
    sleep 5
  done
  if [[ -t 1 ]]; then
    printf '\n'
  fi
  say "ready at $ready_url"
}

# refuse_taken_port: tells before minutes of loading what the engine would tell after them.
refuse_taken_port() {
  local address="${ready_url#http://}" host
  address="${address%%/*}"
  host="$(printf '%s' "${address%:*}" | tr -d '[]')"
  # shellcheck disable=SC2016 # it is the inner shell that puts values in
  if [[ -n "$ready_url" ]] &&
    timeout 2 bash -c 'exec 3<>"/dev/tcp/$1/$2"' connect "$host" "${address##*:}" 2>/dev/null; then
    fail "another program listens on $address already; stop it, or plan with another port"
  fi
}
