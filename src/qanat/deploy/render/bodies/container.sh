inspect() {
  docker container inspect --format "$1" "$container" 2>/dev/null || true
}

is_running() {
  [[ "$(inspect '{{.State.Running}}')" == true ]]
}

is_ready() {
  docker exec "$container" python3 -c "$probe" "$ready_url" >/dev/null 2>&1
}

if ! command -v docker >/dev/null; then
  for tool in podman nerdctl; do
    if command -v "$tool" >/dev/null; then
      fail "$tool is on this host, but docker is not, which this script calls: install it, or a command docker that hands over to $tool"
    fi
  done
fi
if ! docker version >/dev/null 2>&1; then
  fail "docker does not answer: install it, start it, or run this as a user who may use it"
fi
for path in "${own_folders[@]}" "${required_paths[@]}"; do
  if [[ "$path" != /* ]]; then
    fail "$path is a relative path, which docker takes for the name of a volume; write it from / on in $DEPLOYMENT_DIR/env.sh"
  fi
done
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

settings="$(settings_digest)"
log="$LOG_DIR/$node.log"
if [[ -n "$(inspect '{{.State.Status}}')" ]]; then
  owner="$(inspect '{{index .Config.Labels "io.qanat.deployment"}} {{index .Config.Labels "io.qanat.node"}}')"
  if [[ "$owner" != "$deployment $node" ]]; then
    fail "there is a container $container that is not of this deployment; remove or rename it"
  fi
  if is_running; then
    running="$(inspect '{{.Config.Image}} {{index .Config.Labels "io.qanat.settings"}}')"
    if [[ "$running" != "$image $settings" ]]; then
      folder="$(inspect '{{index .Config.Labels "io.qanat.folder"}}')"
      if [[ -n "$folder" && "$folder" != "$DEPLOYMENT_DIR" && -d "$folder" ]]; then
        fail "it runs from the folder $folder, with another image or other settings; the stop.sh there ends it"
      fi
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
