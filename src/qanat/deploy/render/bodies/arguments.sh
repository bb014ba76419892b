is_waiting=yes
for argument in "$@"; do
  case "$argument" in
    --no-wait) is_waiting=no ;;
    *) fail "$argument is no argument of this script; it takes --no-wait" ;;
  esac
done
