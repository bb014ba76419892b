# They read variables that may be unset, and end with whatever their last test said.
for file in "${environment_scripts[@]}"; do
  if [[ -r "$file" ]]; then
    set +eu
    # shellcheck source=/dev/null
    source "$file"
    set -eu
  fi
done
