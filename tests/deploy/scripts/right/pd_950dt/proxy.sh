#!/bin/bash
# The p2p connector speaks with the plain proxy.
unset ftp_proxy
unset https_proxy
unset http_proxy
python3 load_balance_proxy_server_example.py \
  --prefiller-hosts 192.0.2.1 \
  --prefiller-ports 30060 \
  --decoder-hosts 192.0.2.2 \
  --decoder-ports 30050 \
  --host 192.0.2.1 \
  --port 8010
