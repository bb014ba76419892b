is_ready() {
  python3 -c "$probe" "$ready_url" >/dev/null 2>&1
}

settings="$(settings_digest)"
log="$LOG_DIR/$node.log"
if is_running; then
  read -r _ _ _ running <"$pid_file"
  if [[ "$running" != "$settings" ]]; then
    fail "it runs with other settings; run stop.sh first"
  fi
  say "it runs already"
  wait_until_ready
  exit 0
fi
if [[ -r "$pid_file" && -n "$(members)" ]]; then
  fail "processes of an engine that ended are still there; run stop.sh first"
fi

refuse_taken_port
mkdir -p -- "$LOG_DIR"
run="$node-$(date +%Y%m%d-%H%M%S)"
rm -f -- "$pid_file.new"
# A session of its own: it outlives this terminal, and stop.sh ends all of its processes by one number.
# shellcheck disable=SC2016 # it is the inner shell that puts values in
setsid --fork bash -c 'printf "%s\n" "$$" >"$1.new" && exec "${@:2}"' start "$pid_file" \
  "${start_command[@]}" >"$LOG_DIR/$run.log" 2>&1 </dev/null
for ((turn = 0; turn < 100; turn++)); do
  if [[ -s "$pid_file.new" ]]; then
    break
  fi
  sleep 0.1
done
if [[ ! -s "$pid_file.new" ]]; then
  fail "it did not start; see $LOG_DIR/$run.log"
fi
pid="$(<"$pid_file.new")"
if ! read_stat "$pid"; then
  tail -n 40 -- "$LOG_DIR/$run.log" >&2 || true
  fail "it ended at once; what it said is above, and in $LOG_DIR/$run.log"
fi
printf '%s %s %s %s\n' "$pid" "${fields[19]}" "$(</proc/sys/kernel/random/boot_id)" "$settings" >"$pid_file"
rm -f -- "$pid_file.new"
