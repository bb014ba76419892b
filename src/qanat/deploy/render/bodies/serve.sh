if [[ -n "${LOG_FILE:-}" ]]; then
  exec > >(tee -a -- "$LOG_FILE") 2>&1
fi
