# URLs and what engines listen on are written for one family of addresses.
for name in "${!ADDRESS_@}"; do
  if [[ "$family" == IPv4 && "${!name}" == *:* ]] || [[ "$family" == IPv6 && "${!name}" =~ ^[0-9.]+$ ]]; then
    fail "$name is ${!name}, and these scripts were written for $family: plan with --addresses, and render again"
  fi
done
