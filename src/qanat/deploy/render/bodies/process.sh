readonly pid_file="$LOG_DIR/$node.pid"
# A variable that the engine and all it starts inherit: it tells them from others that got the same numbers later.
readonly mark="DEPLOYMENT_RUN=$DEPLOYMENT_DIR/$node"

# members: the processes of the group in the pid file that this deployment started; workers may outlive an engine.
members() {
  local group entry fields
  read -r group _ <"$pid_file" || return 0
  for entry in /proc/[0-9]*; do
    { fields="$(<"$entry/stat")"; } 2>/dev/null || continue
    read -r _ _ fields _ <<<"${fields##*) }"
    if [[ "$fields" == "$group" ]] && grep --quiet --null-data --line-regexp --fixed-strings -- "$mark" \
      "$entry/environ" 2>/dev/null; then
      printf '%s\n' "${entry#/proc/}"
    fi
  done
}

# is_running: whether the first process of the group, the engine itself, is there.
is_running() {
  local pid
  if [[ ! -r "$pid_file" ]]; then
    return 1
  fi
  read -r pid _ <"$pid_file" || true
  [[ -n "$pid" ]] && grep --quiet --line-regexp --fixed-strings -- "$pid" <<<"$(members)"
}
