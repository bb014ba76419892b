# settings_digest: of everything that decides how it runs. Where it differs, the running one is not the one that is asked
# for. Comments of env.sh, and what it says of other nodes, do not count.
settings_digest() {
  local digest others
  others="$(
    IFS='|'
    printf '%s' "${other_variables[*]}"
  )"
  digest="$({
    grep -Ev "^[[:space:]]*(#|\$)|^(export[[:space:]]+)?($others)=" -- "$DEPLOYMENT_DIR/env.sh" || true
    cat -- "${settings_files[@]}"
  } | sha256sum)"
  printf '%s' "${digest%% *}"
}
