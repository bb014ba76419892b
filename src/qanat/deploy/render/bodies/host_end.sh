if ((num_failed > 0)); then
  printf '%s: %s settings could not be made; the service runs without them, more slowly.\n' "$node" "$num_failed" >&2
  exit 3
fi
say "the host is prepared"
