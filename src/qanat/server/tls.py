"""TLS: the server's certificate, asked again when its files change, and the certificates of clients."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import ConfigError

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""How often the files are looked at; a new certificate holds for connections made from then on."""

Stamp = tuple[tuple[int, int, int], ...]


class Tls:
    """The TLS side of a server.

    A change makes a whole new context, which is taken only if it is complete: while a certificate and its key are
    being replaced one after the other, the old pair stays in use. Every handshake picks the newest context.

    Args:
        certfile: certificate and its chain, PEM.
        keyfile: private key, PEM, without a passphrase; None if the certificate's file holds it.
        ca_certs: authorities of which one must have signed a client's certificate.
        client_check: whether clients are asked for a certificate, and need one.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(
        self,
        certfile: str,
        keyfile: str | None = None,
        ca_certs: str | None = None,
        client_check: ssl.VerifyMode = ssl.CERT_NONE,
    ) -> None:
        self._certfile = certfile
        self._keyfile = keyfile
        self._ca_certs = ca_certs
        self._client_check = client_check
        self._stamp = self._files_stamp()
        self._newest = self._load()
        self.context = self._load()
        self.context.sni_callback = self._choose

    @classmethod
    def of(cls, options: ServerOptions) -> Tls | None:
        """As the flags say; None without them.

        Raises:
            ConfigError: flags that need --ssl-certfile, or a file that cannot be used.
        """
        if options.ssl_cert_reqs and options.ssl_ca_certs is None:
            raise ConfigError(
                "--ssl-cert-reqs needs --ssl-ca-certs to check against.", param="--ssl-cert-reqs"
            )
        if options.ssl_certfile is not None:
            wanted = options.ssl_cert_reqs
            if wanted is None:
                wanted = ssl.CERT_NONE if options.ssl_ca_certs is None else ssl.CERT_REQUIRED
            return cls(
                options.ssl_certfile, options.ssl_keyfile, options.ssl_ca_certs, ssl.VerifyMode(wanted)
            )
        for flag, value in (("--ssl-keyfile", options.ssl_keyfile), ("--ssl-ca-certs", options.ssl_ca_certs)):
            if value is not None:
                raise ConfigError(f"{flag} needs --ssl-certfile.", param=flag)
        return None

    async def watch(self) -> None:
        """Looks at the files until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            self.refresh()

    def refresh(self) -> bool:
        """Reads the files again if they changed; True if new ones are in use. Bad ones are logged and left aside."""
        try:
            stamp = self._files_stamp()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            self._newest = self._load()
        except ConfigError as error:
            log.error("The TLS files changed and cannot be used; the old ones stay: %s", error.message)
            return False
        log.info("The TLS files changed; new connections use them.")
        return True

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _files_stamp(self) -> Stamp:
        """What tells a changed file: time, size, and which file it is, as links may be switched."""
        stamps = []
        for flag, path in (
            ("--ssl-certfile", self._certfile),
            ("--ssl-keyfile", self._keyfile),
            ("--ssl-ca-certs", self._ca_certs),
        ):
            if path is None:
                continue
            try:
                status = Path(path).stat()
            except OSError as error:
                raise ConfigError(f"{flag} {path} cannot be read: {error.strerror}.", param=flag) from None
            stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(stamps)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 is the oldest version that it takes
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certfile, self._keyfile, password=_no_passphrase)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--ssl-certfile {self._certfile} with --ssl-keyfile {self._keyfile or self._certfile} cannot be "
                f"used ({error}); they must be PEM, belong together, and have no passphrase.",
                param="--ssl-certfile",
            ) from None
        if self._ca_certs is not None:
            try:
                context.load_verify_locations(self._ca_certs)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"--ssl-ca-certs {self._ca_certs} cannot be used ({error}); it must be PEM.",
                    param="--ssl-ca-certs",
                ) from None
            context.verify_mode = self._client_check
            # A resumed session would skip the look at the client's certificate.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")
