"""Every setting of a router, read from flags and file, checked, and with the secrets that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qanat.core.errors import ConfigError
from qanat.router.breaker import BreakerRules
from qanat.router.endpoint_text import EndpointSpec, read_endpoint, read_endpoint_mapping
from qanat.router.model import Role
from qanat.router.options import RouterOptions


@dataclass(frozen=True)
class RouterConfig:
    """What a router is made of.

    Attributes:
        options: flags as they were given.
        endpoints: those of flags and file; more may come from watched sources and from the admin routes.
        client_keys: that clients must send one of; empty for no check.
        admin_key: of the routes under /router; None closes them.
        engine_key: sent to engines in place of the client's; None leaves that.
        breaker: when an endpoint is left alone for a while.
    """

    options: RouterOptions
    endpoints: tuple[EndpointSpec, ...] = ()
    client_keys: tuple[str, ...] = field(default=(), repr=False)
    admin_key: str | None = field(default=None, repr=False)
    engine_key: str | None = field(default=None, repr=False)
    breaker: BreakerRules = BreakerRules()


def make_config(
    options: RouterOptions,
    words: Sequence[str] = (),
    listed: Sequence[Any] = (),
    secret_of: Callable[[str], str | None] = lambda name: None,
) -> RouterConfig:
    """The settings of these flags.

    Args:
        options: flags as given.
        words: URLs that stand on the command line without a flag.
        listed: endpoints of the settings file, texts or mappings.
        secret_of: the text of a variable, None if it is not set.

    Raises:
        ConfigError: something is wrong or does not fit together; names the flag.
    """
    specs = [read_endpoint(word, "URL") for word in words]
    specs += [read_endpoint(text, "--endpoint") for text in options.endpoint]
    specs += [_listed(one, number) for number, one in enumerate(listed, 1)]
    specs += _side(options.prefiller_hosts, options.prefiller_ports, "prefiller", Role.PREFILL)
    specs += _side(options.decoder_hosts, options.decoder_ports, "decoder", Role.DECODE)
    check_unique(specs)
    has_source = bool(options.endpoints_file or options.endpoints_dns or options.admin_key_env)
    if not specs and not has_source:
        raise ConfigError(
            "no engine is named; name its URL, as in `qanat router http://10.0.0.1:8000`, or give --endpoints-file, "
            "--endpoints-dns, or --admin-key-env to add some later.",
            param="--endpoint",
        )
    if (options.ssl_certfile is None) != (options.ssl_keyfile is None):
        raise ConfigError("--ssl-certfile and --ssl-keyfile belong together.", param="--ssl-certfile")
    keys = _secret(options.api_key_env, "--api-key-env", secret_of)
    return RouterConfig(
        options,
        tuple(specs),
        tuple(key.strip() for key in (keys or "").split(",") if key.strip()),
        _secret(options.admin_key_env, "--admin-key-env", secret_of),
        _secret(options.engine_key_env, "--engine-key-env", secret_of),
    )


def check_unique(specs: Sequence[EndpointSpec]) -> None:
    """Refuses two endpoints of one name, and one engine twice.

    Raises:
        ConfigError: naming both.
    """
    names: dict[str, EndpointSpec] = {}
    places: dict[tuple[str, int, bool, str], EndpointSpec] = {}
    for spec in specs:
        other = names.setdefault(spec.name, spec)
        same = places.setdefault(spec.place, spec)
        if other is not spec or same is not spec:
            what = (
                f"{spec.name} and {same.name}" if same is not spec and same.name != spec.name else spec.name
            )
            raise ConfigError(
                f"the endpoint {what} is named twice; name each engine once.", param="--endpoint"
            )


def _listed(value: Any, number: int) -> EndpointSpec:
    where = f"endpoints, entry {number}:"
    if isinstance(value, str):
        return read_endpoint(value, where)
    if isinstance(value, Mapping):
        return read_endpoint_mapping(value, where)
    raise ConfigError(f"{where} {value!r} is neither a text nor a mapping with a url.", param="endpoints")


def _side(hosts: Sequence[str], ports: Sequence[str], side: str, role: Role) -> list[EndpointSpec]:
    """The endpoints of --prefiller-hosts and so on, where one port holds for all hosts."""
    if not hosts and not ports:
        return []
    if not hosts or not ports:
        raise ConfigError(
            f"--{side}-hosts and --{side}-ports belong together; one is missing.", param=f"--{side}-hosts"
        )
    if len(ports) == 1:
        ports = list(ports) * len(hosts)
    if len(hosts) != len(ports):
        raise ConfigError(
            f"--{side}-hosts names {len(hosts)}, --{side}-ports {len(ports)}; give one port for each host, or one "
            "for all.",
            param=f"--{side}-ports",
        )
    where = f"--{side}-hosts"
    for port in ports:
        if not port.isdecimal() or not 0 < int(port) <= 65_535:
            raise ConfigError(f"--{side}-ports: {port!r} is no port.", param=f"--{side}-ports")
    bracketed = [f"[{host}]" if ":" in host and not host.startswith("[") else host for host in hosts]
    return [
        read_endpoint(f"http://{host}:{port},role={role.value}", where)
        for host, port in zip(bracketed, ports, strict=True)
    ]


def _secret(variable: str | None, flag: str, secret_of: Callable[[str], str | None]) -> str | None:
    if variable is None:
        return None
    text = secret_of(variable)
    if not text or not text.strip(", "):
        raise ConfigError(f"{flag}: the variable {variable} is not set.", param=flag)
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(f"{flag}: {variable} holds characters that no header can carry.", param=flag)
    return text
