deadline=$((SECONDS + READY_TIMEOUT_S))
until (exec 3<>"/dev/tcp/$head_address/$RAY_PORT") 2>/dev/null; do
  if ((SECONDS >= deadline)); then
    fail "the head of the Ray cluster did not answer at $head_address:$RAY_PORT within $READY_TIMEOUT_S s"
  fi
  say "waiting for the head of the Ray cluster at $head_address:$RAY_PORT"
  sleep 5
done
exec ray start --address "$head_address:$RAY_PORT" --node-ip-address "$own_address" --disable-usage-stats --block
