"""A router put together from its settings: started, listening, drained, closed."""

from __future__ import annotations

import asyncio
import ssl

from qanat.core.errors import ConfigError
from qanat.router.access_file import AccessLog
from qanat.router.admin import Admin
from qanat.router.admission import Admission
from qanat.router.app import App
from qanat.router.config import RouterConfig
from qanat.router.discovery import FILE_INTERVAL_S, FLAGS, DnsSource, FileSource, Membership, repeat
from qanat.router.health import Monitor
from qanat.router.http.front import Front
from qanat.router.http.limits import FrontLimits
from qanat.router.http.upstream import Timeouts, Upstream
from qanat.router.metrics import RouterMetrics
from qanat.router.policies import policy_named
from qanat.router.pool import Pool
from qanat.router.relay import relay_of
from qanat.router.services import Services
from qanat.router.status import add_gauges
from qanat.router.vitals import VitalRules


class Router:
    """Everything of one router. Made and used in a running event loop.

    Args:
        config: every setting.

    Raises:
        ConfigError: a file that the settings name cannot be read.
    """

    def __init__(self, config: RouterConfig) -> None:
        options = config.options
        self.config = config
        self.pool = Pool(policy_named(options.policy), options.max_inflight_per_endpoint, config.breaker)
        self.admission = Admission(self.pool, options.max_queue, options.max_queue_wait_s)
        self.upstream = Upstream(tls=_trusted(options.ca_file))
        self.pool.on_removed(self.upstream.forget)
        self.metrics = RouterMetrics()
        add_gauges(self.metrics, self.pool, self.admission, self.upstream)
        self.services = Services(
            self.pool,
            self.admission,
            self.upstream,
            Timeouts(options.connect_timeout_s, options.first_byte_timeout_s, options.idle_timeout_s),
            self.metrics,
            config,
        )
        self.monitor = Monitor(
            self.pool,
            self.upstream,
            options.health_interval_s,
            options.health_timeout_s,
            VitalRules(stall_s=options.stall_timeout_s),
            config.engine_key,
        )
        self.membership = Membership(self.pool)
        self.access_log = AccessLog(options.access_log)
        relay = relay_of(self.services)
        self.app = App(
            self.services,
            self.monitor,
            Admin(self.pool, self.membership, self.admission),
            relay,
            self.access_log,
            lambda: self.front.is_draining,
        )
        self.app.routes.update(relay.routes)
        self.app.checks.update(relay.checks)
        limits = FrontLimits(max_body_bytes=options.max_body_bytes)
        self.front = Front(self.app, limits, self.app.check_head)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        """Takes the endpoints, looks at them, listens; gives the port.

        Raises:
            ConfigError: a source of endpoints cannot be read, or the address cannot be had.
        """
        options = self.config.options
        self.membership.set(FLAGS, self.config.endpoints)
        looks = []
        if options.endpoints_file:
            file = FileSource(options.endpoints_file, self.membership)
            file.read()
            looks.append((file.look, FILE_INTERVAL_S))
        for text in options.endpoints_dns:
            source = DnsSource(text, self.membership)
            await source.look()
            looks.append((source.look, options.dns_interval_s))
        port = await self.front.listen(
            options.host, options.port, _certificate(options.ssl_certfile, options.ssl_keyfile)
        )
        self.monitor.start()
        self._tasks = [asyncio.create_task(repeat(look, interval_s)) for look, interval_s in looks]
        return port

    async def close(self, limit_s: float | None = None) -> int:
        """Takes nothing new, lets running requests finish within the limit, and ends; gives how many were cut off."""
        num_cut = await self.front.close(self.config.options.drain_timeout_s if limit_s is None else limit_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.monitor.close()
        self.upstream.close()
        self.access_log.close()
        return num_cut


def _trusted(ca_file: str | None) -> ssl.SSLContext | None:
    if ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--ca-file {ca_file}: cannot be read: {error}.", param="--ca-file") from None


def _certificate(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"--ssl-certfile {certificate}, --ssl-keyfile {key}: cannot be read: {error}.",
            param="--ssl-certfile",
        ) from None
    return context
