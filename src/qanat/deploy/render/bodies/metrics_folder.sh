# Counters of an earlier run would be added to those of this one.
mkdir -p -- "$PROMETHEUS_MULTIPROC_DIR"
rm -f -- "$PROMETHEUS_MULTIPROC_DIR"/*.db
