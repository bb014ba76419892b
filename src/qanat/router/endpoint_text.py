"""How an endpoint is written: a URL, with what is known of the engine behind commas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from qanat.core.errors import ConfigError
from qanat.router.model import Endpoint, EngineKind, Role

KEYS = ("role", "weight", "kind", "name", "max_model_len", "models")
EXAMPLE = "http://10.0.0.1:8000,role=prefill,weight=2,kind=vllm"
MAX_WEIGHT = 1000.0
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """An endpoint as it was wished for; see Endpoint for the fields. `name` is the address unless one was given."""

    name: str
    host: str
    port: int
    is_tls: bool = False
    base_path: str = ""
    role: Role = Role.ANY
    kind: EngineKind = EngineKind.UNKNOWN
    weight: float = 1.0
    models: frozenset[str] = frozenset()
    max_model_len: int | None = None

    def make(self) -> Endpoint:
        """A fresh endpoint of it."""
        return Endpoint(
            self.name,
            self.host,
            self.port,
            role=self.role,
            kind=self.kind,
            weight=self.weight,
            is_tls=self.is_tls,
            base_path=self.base_path,
            models=self.models,
            max_model_len=self.max_model_len,
        )

    @property
    def place(self) -> tuple[str, int, bool, str]:
        """What makes it this engine and no other."""
        return self.host, self.port, self.is_tls, self.base_path

    def at(self, host: str) -> EndpointSpec:
        """The same at another address."""
        return replace(self, host=host, name=_address(host, self.port))


def read_endpoint(text: str, where: str) -> EndpointSpec:
    """The endpoint that was written as `URL[,key=value ...]`.

    Args:
        text: the scheme may be left out: HOST:PORT is http.
        where: flag or file and line, for messages.

    Raises:
        ConfigError: it is no such text; says what is wrong and shows how it should look.
    """
    url, *pairs = (part.strip() for part in text.split(","))
    values: dict[str, Any] = {}
    for pair in pairs:
        key, is_pair, value = pair.partition("=")
        if not is_pair:
            raise wrong(where, text, f"{pair!r} is not key=value")
        values[key.strip()] = value.strip()
    return make_endpoint(url, values, where, text)


def read_endpoint_mapping(values: Mapping[str, Any], where: str) -> EndpointSpec:
    """The endpoint of a mapping in YAML or JSON, with `url` and the keys of the text form.

    Raises:
        ConfigError: as `read_endpoint`.
    """
    rest = {str(key): value for key, value in values.items() if key != "url"}
    url = values.get("url")
    if not isinstance(url, str):
        raise wrong(where, str(dict(values)), "it has no text `url`")
    return make_endpoint(url, rest, where, url)


def make_endpoint(url: str, values: Mapping[str, Any], where: str, text: str) -> EndpointSpec:
    """The endpoint of a URL and what is known of it; see `read_endpoint`."""
    host, port, is_tls, base_path = read_url(url, where, text)
    unknown = [key for key in values if key not in KEYS]
    if unknown:
        raise wrong(where, text, f"there is no key {unknown[0]!r}; keys are {', '.join(KEYS)}")
    name = str(values.get("name") or (_address(host, port) + base_path))
    if not (name.isascii() and name.isprintable()) or any(sign in name for sign in ' ,;"'):
        raise wrong(where, text, f"the name {name!r} may have no spaces, commas, semicolons and quotes")
    return EndpointSpec(
        name,
        host,
        port,
        is_tls,
        base_path,
        _role(values.get("role", "any"), where, text),
        _kind(values.get("kind", "unknown"), where, text),
        _weight(values.get("weight", 1.0), where, text),
        _models(values.get("models"), where, text),
        _length(values.get("max_model_len"), where, text),
    )


def read_url(url: str, where: str, text: str) -> tuple[str, int, bool, str]:
    """Host, port, whether it is https, and the path before that of the API, where a /v1 at the end is dropped."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise wrong(where, text, str(error)) from None
    if parts.scheme not in _PORTS:
        raise wrong(where, text, f"the scheme {parts.scheme!r} is neither http nor https")
    if not host or not all(sign.isalnum() or sign in "-._:%" for sign in host):
        raise wrong(where, text, "it names no host")
    if parts.username is not None:
        raise wrong(where, text, "a URL carries no key here; --engine-key-env names a variable with it")
    if parts.query or parts.fragment:
        raise wrong(where, text, "a URL ends with its path here")
    if port == 0:
        raise wrong(where, text, "port 0 is none")
    base_path = parts.path.rstrip("/").removesuffix("/v1")
    return host, port or _PORTS[parts.scheme], parts.scheme == "https", base_path


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _role(value: object, where: str, text: str) -> Role:
    try:
        return Role(str(value))
    except ValueError:
        roles = ", ".join(each.value for each in Role)
        raise wrong(where, text, f"the role {value!r} is none of {roles}") from None


def _kind(value: object, where: str, text: str) -> EngineKind:
    try:
        return EngineKind(str(value))
    except ValueError:
        kinds = ", ".join(each.value for each in EngineKind)
        raise wrong(where, text, f"the kind {value!r} is none of {kinds}") from None


def _weight(value: object, where: str, text: str) -> float:
    try:
        weight = float(str(value))
    except ValueError:
        weight = math.nan
    if not 0 < weight <= MAX_WEIGHT:
        raise wrong(where, text, f"the weight {value!r} is no number above 0 and up to {MAX_WEIGHT:g}")
    return weight


def _models(value: object, where: str, text: str) -> frozenset[str]:
    if value is None:
        return frozenset()
    models = value.split("|") if isinstance(value, str) else value
    if not isinstance(models, list) or not all(isinstance(model, str) and model for model in models):
        raise wrong(where, text, f"models {value!r} are no names with | between them")
    return frozenset(models)


def _length(value: object, where: str, text: str) -> int | None:
    if value is None:
        return None
    if not str(value).isdecimal() or int(str(value)) < 1:
        raise wrong(where, text, f"max_model_len {value!r} is no number of tokens")
    return int(str(value))


def wrong(where: str, text: str, why: str) -> ConfigError:
    """The error of an endpoint that cannot be read."""
    return ConfigError(f"{where} {text}: {why}. Write it like {EXAMPLE}.", param=where)
