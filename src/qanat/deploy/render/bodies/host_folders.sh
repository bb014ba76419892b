for path in "${required_folders[@]}"; do
  if [[ ! -d "$path" ]]; then
    fail "the folder $path with weights is not on this host; correct it in $DEPLOYMENT_DIR/env.sh, or download them"
  fi
done
