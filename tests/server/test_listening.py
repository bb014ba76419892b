from __future__ import annotations

import socket
from pathlib import Path

import pytest

from qanat.core.errors import ConfigError
from qanat.server.listening import bind_tcp, bind_unix, url_of


def test_port_0_takes_a_free_port() -> None:
    with bind_tcp("127.0.0.1", 0) as sock:
        assert url_of(sock, "127.0.0.1") == f"http://127.0.0.1:{sock.getsockname()[1]}"
        assert url_of(sock, "0.0.0.0").startswith("http://127.0.0.1:")
        assert url_of(sock, "::1").startswith("http://[::1]:")


def test_ops_008_a_taken_port_is_named_with_a_free_one() -> None:
    with bind_tcp("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} of 127.0.0.1 is taken") as caught:
            bind_tcp("127.0.0.1", port)
    free = int(caught.value.message.partition("--port ")[2].split()[0])
    with bind_tcp("127.0.0.1", free):
        pass


def test_a_port_can_be_taken_again_right_after_a_server_ended() -> None:
    with bind_tcp("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        connection, _ = sock.accept()
        connection.close()  # the side that closes first keeps the address for a while
        client.close()
    with bind_tcp("127.0.0.1", port):
        pass


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_ops_008_a_foreign_host_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match="--host"):
        bind_tcp(host, 0)


def test_a_unix_socket_is_taken_over_only_from_the_dead(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with bind_unix(path):
        with pytest.raises(ConfigError, match="--uds"):
            bind_unix(path)
    with bind_unix(path):
        pass
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ConfigError, match="--uds"):
        bind_unix(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "precious"
