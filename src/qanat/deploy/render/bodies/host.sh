num_failed=0

cannot() {
  printf '%s: cannot %s\n' "$node" "$*" >&2
  num_failed=$((num_failed + 1))
}

# is_right VALUE RULE WANTED
is_right() {
  case "$2" in
    at_most) (($1 <= $3)) ;;
    at_least) (($1 >= $3)) ;;
    *) [[ "$1" == "$3" ]] ;;
  esac
}

# set_kernel NAME RULE WANTED [FILE]: a setting of sysctl, or of the file where newer kernels keep it.
set_kernel() {
  local current
  if current="$(sysctl -n "$1" 2>/dev/null)"; then
    if is_right "$current" "$2" "$3"; then
      say "$1 is $current already"
    elif sysctl -w "$1=$3" >/dev/null 2>&1; then
      say "$1 was $current and is $3 now"
    else
      cannot "set $1, which is $current, to $3: run this script as root on the host itself"
    fi
  elif [[ -n "${4:-}" && -e "$4" ]]; then
    current="$(<"$4")"
    if is_right "$current" "$2" "$3"; then
      say "$4 is $current already"
    elif { printf '%s\n' "$3" >"$4"; } 2>/dev/null; then
      say "$4 was $current and is $3 now"
    else
      cannot "write $3 to $4: run this script as root on the host itself"
    fi
  else
    say "$1 is not among the settings of this kernel that can be seen here; left as it is"
  fi
}

# set_governors FILE...: CPUs at full speed, where their speed can be governed.
set_governors() {
  local file num_set=0 num_kept=0 num_refused=0
  for file in "$@"; do
    if [[ ! -e "$file" ]]; then
      continue
    elif [[ "$(<"$file")" == performance ]]; then
      num_kept=$((num_kept + 1))
    elif { printf 'performance\n' >"$file"; } 2>/dev/null; then
      num_set=$((num_set + 1))
    else
      num_refused=$((num_refused + 1))
    fi
  done
  if ((num_refused > 0)); then
    cannot "set the governor of $num_refused CPUs to performance: run this script as root on the host itself"
  elif ((num_set + num_kept == 0)); then
    say "the speed of the CPUs is not governed here"
  else
    say "governor performance: $num_set CPUs set, $num_kept had it already"
  fi
}

if ! command -v sysctl >/dev/null 2>&1; then
  fail "sysctl is not installed here; install procps"
fi
for setting in "${kernel_settings[@]}"; do
  read -r -a fields <<<"$setting"
  set_kernel "${fields[@]}"
done
set_governors /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor
if command -v systemctl >/dev/null 2>&1 && systemctl is-active --quiet irqbalance 2>/dev/null; then
  say "irqbalance runs and moves interrupts to CPUs of the engine; systemctl stop irqbalance ends it"
fi
