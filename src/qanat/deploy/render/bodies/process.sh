if [[ "$LOG_DIR" != /* ]]; then
  fail "LOG_DIR is the relative path $LOG_DIR, another folder for every caller; write it from / on in $DEPLOYMENT_DIR/env.sh"
fi
readonly pid_file="$LOG_DIR/$node.pid"

# read_stat PID: state, parent, group and what follows in /proc, into the array fields; fails if there is no such process.
read_stat() {
  local text
  { text="$(<"/proc/$1/stat")"; } 2>/dev/null || return 1
  read -r -a fields <<<"${text##*) }"
}

# members: the processes of the group that start.sh began; workers may outlive the engine, which was the first of them.
# A number is not given again while a group has it: a group is somebody else's only if its first process began at
# another time, or before the machine did.
members() {
  local group began boot entry fields
  read -r group began boot _ <"$pid_file" || return 0
  if [[ ! "$group" =~ ^[0-9]+$ || "$boot" != "$(</proc/sys/kernel/random/boot_id)" ]]; then
    return 0
  fi
  if read_stat "$group" && [[ "${fields[19]}" != "$began" ]]; then
    return 0
  fi
  for entry in /proc/[0-9]*; do
    if read_stat "${entry#/proc/}" && [[ "${fields[2]}" == "$group" && "${fields[0]}" != [ZX] ]]; then
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
