containers="$(docker container ls --all --quiet \
  --filter "label=io.qanat.deployment=$deployment" --filter "label=io.qanat.node=$node")"
if [[ -z "$containers" ]]; then
  say "there is nothing to stop"
  exit 0
fi
while IFS= read -r container; do
  docker container stop -t "$stop_timeout_s" "$container" >/dev/null
  docker container rm "$container" >/dev/null
  say "stopped and removed $container"
done <<<"$containers"
