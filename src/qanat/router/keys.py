"""Who may ask: the keys of clients and of the admin routes, and the key that engines get."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from qanat.core.errors import AuthenticationError
from qanat.router.calls import KEY_HEADERS, api_key
from qanat.router.config import RouterConfig
from qanat.router.errors import AdminKeyError
from qanat.router.model import Call, Header


class Keys:
    """Compares in constant time; keys never leave it but for the engine's."""

    def __init__(self, config: RouterConfig) -> None:
        self._clients = [key.encode("latin-1") for key in config.client_keys]
        self._admin = config.admin_key.encode("latin-1") if config.admin_key else None
        self._engine: Header | None = None
        if config.engine_key:
            self._engine = (b"authorization", b"Bearer " + config.engine_key.encode("latin-1"))

    def check_client(self, call: Call) -> None:
        """Refuses a call without one of the clients' keys, if there are any.

        Raises:
            AuthenticationError: the key is missing or wrong.
        """
        if not self._clients:
            return
        given = api_key(call).encode("latin-1")
        if not any([hmac.compare_digest(given, key) for key in self._clients]):
            what = "is wrong" if given else "is missing"
            raise AuthenticationError(f"the API key {what}; send it as `Authorization: Bearer KEY`")

    def check_admin(self, call: Call) -> None:
        """Refuses a call without the admin key.

        Raises:
            AdminKeyError: the key is missing or wrong, or the router has none.
        """
        if self._admin is None:
            raise AdminKeyError(
                "the admin routes are closed; start the router with --admin-key-env to open them"
            )
        if not hmac.compare_digest(api_key(call).encode("latin-1"), self._admin):
            raise AdminKeyError(
                "this needs the admin key, as `Authorization: Bearer KEY` (--admin-key-env names its variable)"
            )

    @property
    def passes_on(self) -> bool:
        """Engines get the keys of clients."""
        return self._engine is None and not self._clients

    def for_engine(self, headers: Sequence[Header]) -> Sequence[Header]:
        """The headers with the engines' own key; else with none where keys are checked here, or with the client's."""
        if self.passes_on:
            return headers
        kept = [header for header in headers if header[0] not in KEY_HEADERS]
        if self._engine is not None:
            kept.append(self._engine)
        return kept
