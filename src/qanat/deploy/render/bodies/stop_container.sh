if ! command -v docker >/dev/null; then
  fail "docker is not on this host, or not in PATH; it ran the container, and only it can stop it"
fi
containers="$(docker container ls --all --quiet \
  --filter "label=io.qanat.deployment=$deployment" --filter "label=io.qanat.node=$node")"
if [[ -z "$containers" ]]; then
  say "there is nothing to stop"
  exit 0
fi
while IFS= read -r container; do
  folder="$(docker container inspect --format '{{index .Config.Labels "io.qanat.folder"}}' "$container")"
  if [[ -n "$folder" && "$folder" != "$DEPLOYMENT_DIR" && -d "$folder" ]]; then
    fail "$container was started from the folder $folder; the stop.sh there ends it"
  fi
  docker container stop -t "$stop_timeout_s" "$container" >/dev/null
  docker container rm "$container" >/dev/null
  say "stopped and removed $container"
done <<<"$containers"
