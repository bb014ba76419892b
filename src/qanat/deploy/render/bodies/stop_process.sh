if [[ ! -r "$pid_file" || -z "$(members)" ]]; then
  rm -f -- "$pid_file"
  say "there is nothing to stop"
  exit 0
fi
# The engine and all it started are one process group, whose number is that of its first process.
read -r group _ <"$pid_file"
kill -TERM -- "-$group"
deadline=$((SECONDS + stop_timeout_s))
while [[ -n "$(members)" ]]; do
  if ((SECONDS >= deadline)); then
    say "it did not end within $stop_timeout_s s and is killed"
    kill -KILL -- "-$group" 2>/dev/null || true
    break
  fi
  sleep 1
done
rm -f -- "$pid_file"
say "stopped process $group and what it started"
