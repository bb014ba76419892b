"""Waits until the server that scripts/serve started is ready, then prints ways to ask it something.

how_to_ask.py SERVER_PROCESS_ID [arguments of `qanat serve`]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.request

POLL_INTERVAL_S = 1.0  # each try leaves a line in the access log
NO_KEY = "none"
KEY_PLACE = "YOUR_KEY"

EXAMPLES = """
The server is ready. Ask it, from another terminal:

  curl {url}/v1/chat/completions -H 'Content-Type: application/json'{curl_key} -d \\
    '{{"model": "{model}", "messages": [{{"role": "user", "content": "What is 17 + 25?"}}]}}'

or from Python (pip install openai):

  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{key}")
  messages = [{{"role": "user", "content": "What is 17 + 25?"}}]
  reply = client.chat.completions.create(model="{model}", messages=messages)
  print(reply.choices[0].message.content)

Press Ctrl-C to stop the server.
"""


def is_alive(process_id: int) -> bool:
    """Whether the process still runs."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def get(url: str, key: str) -> bytes | None:
    """Body of a GET that was answered with 200, else None."""
    try:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=5) as reply:
            return bytes(reply.read())
    except OSError:
        return None


def parse(arguments: list[str]) -> argparse.Namespace:
    """The few flags of `qanat serve` that say where and how to reach it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--host", default=os.environ.get("QANAT_HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(os.environ.get("QANAT_PORT", "8000")))
    parser.add_argument("--uds", default=os.environ.get("QANAT_UDS"))
    parser.add_argument("--api-key", nargs="+", default=[os.environ.get("QANAT_API_KEY", NO_KEY)])
    return parser.parse_known_args(arguments)[0]


def main(arguments: list[str]) -> int:
    """Waits for the server, prints the examples."""
    process_id = int(arguments[0])
    options = parse(arguments[1:])
    if options.uds or not options.port:  # the server's own line tells its address
        return 0
    host = "127.0.0.1" if options.host == "0.0.0.0" else options.host
    url, key = f"http://{host}:{options.port}", options.api_key[0]
    while get(f"{url}/ready", key) is None:
        if not is_alive(process_id):
            return 1
        time.sleep(POLL_INTERVAL_S)
    models = json.loads(get(f"{url}/v1/models", key) or b'{"data": [{"id": "the name in /v1/models"}]}')
    curl_key = "" if key == NO_KEY else f" -H 'Authorization: Bearer {KEY_PLACE}'"
    shown_key = NO_KEY if key == NO_KEY else KEY_PLACE  # a key is a secret: it does not go to the terminal
    print(
        EXAMPLES.format(url=url, key=shown_key, curl_key=curl_key, model=models["data"][0]["id"]), flush=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
