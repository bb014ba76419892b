"""What this host knows of its own addresses."""

from __future__ import annotations

from qanat.core.addresses import address_towards, interface_of, own_addresses, resolved


def test_this_host_knows_its_addresses() -> None:
    assert own_addresses()["127.0.0.1"] == "lo" == interface_of("127.0.0.1")
    assert interface_of("0.0.0.0") == interface_of("::") == "all"
    assert interface_of("192.0.2.1") == "?"
    assert address_towards("127.0.0.1", 1) == "127.0.0.1"
    assert resolved("localhost") in ("127.0.0.1", "::1")
