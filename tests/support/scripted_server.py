"""The real HTTP application over the scripted engine as a process, for tools that want a server to talk to.

python -m tests.support.scripted_server [--admin-api-key KEY] prints its address and serves until it is stopped.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from qanat.config.engine_config import ServerOptions
from tests.support.app_server import serving

SCRIPT = ["Why", " not", "?", "\n", "{", '"a"', ":", "1", "}"]


def main() -> int:
    """Serves until SIGTERM or SIGINT; the exit code is 1 if requests were left behind."""
    parser = argparse.ArgumentParser(description="A server over the scripted engine.")
    parser.add_argument("--admin-api-key", action="append", default=[])
    options = parser.parse_args()
    is_over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_over.set())
    with serving(ServerOptions(admin_api_key=tuple(options.admin_api_key))) as server:
        server.say(SCRIPT)
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        is_over.wait()
        server.wait_until_idle()
    return 0


if __name__ == "__main__":
    sys.exit(main())
