for library in "${allocators[@]}"; do
  if [[ -r "$library" && "${LD_PRELOAD:-}" != *jemalloc* ]]; then
    export LD_PRELOAD="$library${LD_PRELOAD:+:$LD_PRELOAD}"
  fi
done
