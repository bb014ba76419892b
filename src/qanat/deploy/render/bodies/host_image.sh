if ! docker version >/dev/null 2>&1; then
  fail "docker does not answer: install it, start it, or run this as a user who may use it"
fi
if docker image inspect "$image" >/dev/null 2>&1; then
  say "the image is here already"
else
  say "fetching $image"
  docker pull "$image"
fi
