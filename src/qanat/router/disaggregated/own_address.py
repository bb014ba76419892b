"""This machine's address as decode engines see it: that of the way to them."""

from __future__ import annotations

import asyncio
import socket

from qanat.router.http.errors import UpstreamUnreachable
from qanat.router.model import Endpoint


class OwnAddress:
    """Looked up once for each endpoint; who asks meanwhile waits for the same look-up, and nobody else waits.

    Args:
        port: that the router listens on.
        is_tls: it speaks https.
    """

    def __init__(self, port: int, *, is_tls: bool) -> None:
        self._port = port
        self._scheme = "https" if is_tls else "http"
        self._looking: dict[Endpoint, asyncio.Task[str]] = {}

    async def url(self, endpoint: Endpoint) -> str:
        """The router's URL for an endpoint, without a path.

        Raises:
            UpstreamUnreachable: there is no way to it.
        """
        task = self._looking.get(endpoint)
        if task is None:
            task = self._looking[endpoint] = asyncio.create_task(self._look(endpoint))
        try:
            # One who leaves does not end what others wait for.
            return await asyncio.shield(task)
        except UpstreamUnreachable:
            self.forget(endpoint)
            raise

    def forget(self, endpoint: Endpoint) -> None:
        """The endpoint is gone, or to be looked up again."""
        self._looking.pop(endpoint, None)

    async def _look(self, endpoint: Endpoint) -> str:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                endpoint.host, endpoint.port, type=socket.SOCK_DGRAM
            )
            family, _, _, _, address = found[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # of a datagram socket: nothing is sent
                host = str(probe.getsockname()[0])
        except OSError as error:
            message = f"endpoint {endpoint.name}: no way to {endpoint.host}: {error.strerror or error}"
            raise UpstreamUnreachable(message, endpoint.name, is_sent=False) from None
        return (
            f"{self._scheme}://[{host}]:{self._port}"
            if ":" in host
            else f"{self._scheme}://{host}:{self._port}"
        )
