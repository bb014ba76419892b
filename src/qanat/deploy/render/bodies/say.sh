say() {
  printf '%s: %s\n' "$node" "$*"
}

fail() {
  printf '%s: %s\n' "$node" "$*" >&2
  exit 1
}
