ln -sfn -- "$run.log" "$log"
say "started"
wait_until_ready
