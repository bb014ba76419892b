# What decides how it runs, but for comments of env.sh and what it says of other nodes.
own_settings() {
  local IFS='|'
  local others="${other_variables[*]}"
  grep -Ev "^[[:space:]]*(#|\$)|^(export[[:space:]]+)?($others)=" -- "$DEPLOYMENT_DIR/env.sh" || true
  cat -- "${settings_files[@]}"
}

# settings_digest: where it differs, the running one is not the one that is asked for.
settings_digest() {
  local digest
  digest="$(own_settings | sha256sum)"
  printf '%s' "${digest%% *}"
}
