readonly count_nodes='import sys, ray
ray.init(address="auto", log_to_driver=False)
sys.exit(sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]))'

ray start --head --node-ip-address "$own_address" --port "$RAY_PORT" --disable-usage-stats
deadline=$((SECONDS + READY_TIMEOUT_S))
until python3 -c "$count_nodes" "$num_nodes"; do
  if ((SECONDS >= deadline)); then
    fail "after $READY_TIMEOUT_S s there are fewer than $num_nodes nodes in the Ray cluster; start the others too"
  fi
  say "waiting until $num_nodes nodes are in the Ray cluster"
  sleep 5
done
