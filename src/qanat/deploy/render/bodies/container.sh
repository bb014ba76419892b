inspect() {
  docker container inspect --format "$1" "$container" 2>/dev/null || true
}

is_running() {
  [[ "$(inspect '{{.State.Running}}')" == true ]]
}

is_ready() {
  docker exec "$container" python3 -c "$probe" "$ready_url" >/dev/null 2>&1
}

if ! docker version >/dev/null 2>&1; then
  fail "docker does not answer: install it, start it, or run this as a user who may use it"
fi
for path in "${required_paths[@]}"; do
  if [[ ! -e "$path" ]]; then
    fail "$path is not on this host; the container needs it"
  fi
done
for path in "$DEPLOYMENT_DIR" "${own_folders[@]}" "${required_paths[@]}"; do
  if [[ "$path" == *:* ]]; then
    fail "$path holds a colon, which docker takes for the end of the path; use another folder"
  fi
done

# Everything that decides how the container runs: where it differs, the running one is not the one that is asked for.
settings="$(cat -- "${settings_files[@]}" | sha256sum)"
settings="${settings%% *}"
log="$LOG_DIR/$node.log"
if [[ -n "$(inspect '{{.State.Status}}')" ]]; then
  owner="$(inspect '{{index .Config.Labels "io.qanat.deployment"}} {{index .Config.Labels "io.qanat.node"}}')"
  if [[ "$owner" != "$deployment $node" ]]; then
    fail "there is a container $container that is not of this deployment; remove or rename it"
  fi
  if is_running; then
    running="$(inspect '{{.Config.Image}} {{index .Config.Labels "io.qanat.settings"}}')"
    if [[ "$running" != "$image $settings" ]]; then
      fail "it runs with another image or other settings; run stop.sh first"
    fi
    say "it runs already"
    wait_until_ready
    exit 0
  fi
  docker container rm "$container" >/dev/null
fi

refuse_taken_port
# docker would make them as root, and in the place of weights that are missing an empty folder.
mkdir -p -- "${own_folders[@]}"
run="$node-$(date +%Y%m%d-%H%M%S)"
mounts=()
for path in "${optional_paths[@]}"; do
  if [[ -e "$path" ]]; then
    mounts+=(--volume "$path:$path:ro")
  else
    say "$path is not on this host and is left out"
  fi
done
