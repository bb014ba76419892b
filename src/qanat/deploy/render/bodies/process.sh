readonly pid_file="$LOG_DIR/$node.pid"

# When a process began, in clock ticks since the machine started: tells it from a later one with the same number.
began_at() {
  local fields
  { fields="$(<"/proc/$1/stat")"; } 2>/dev/null || return 1
  fields="${fields##*) }"
  cut -d ' ' -f 20 <<<"$fields"
}

# read_process: sets pid to the process this script started, if that is still running.
read_process() {
  local began
  pid=''
  if [[ -r "$pid_file" ]]; then
    read -r pid began _ <"$pid_file" || true
    if [[ ! "$pid" =~ ^[0-9]+$ || "$(began_at "$pid")" != "$began" ]]; then
      pid=''
    fi
  fi
}

is_running() {
  read_process
  [[ -n "$pid" ]]
}
