for name in "${needed_variables[@]}"; do
  if [[ -z "${!name:-}" ]]; then
    fail "$name is empty; set it in $DEPLOYMENT_DIR/env.sh"
  fi
done
