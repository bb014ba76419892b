"""HTTPS over real handshakes: certificates that are replaced, and clients that need one."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import httpx
import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import ConfigError
from qanat.server.http import send_json
from qanat.server.tls import CHECK_INTERVAL_S, Tls
from tests.server.test_run import arguments, model  # noqa: F401
from tests.support.server_process import ServerProcess

WAIT_S = 60.0
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl program")
pytestmark = needs_openssl


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.cert = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", self._key, "-out", self.cert, "-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def sign(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for a server or client on the loopback interface."""
        cert, key, wish, more = (self._folder / f"{name}.{end}" for end in ("crt", "key", "csr", "ext"))
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", wish)
        more.write_text(
            "subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        openssl(
            *("x509", "-req", "-in", wish, "-CA", self.cert, "-CAkey", self._key, "-CAcreateserial"),
            *("-days", "2", "-extfile", more, "-out", cert),
        )
        return cert, key


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "first")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "second")


class Files:
    """Certificate, key and authorities as a server finds them."""

    def __init__(self, folder: Path, pair: tuple[Path, Path]) -> None:
        self.cert, self.key, self.authorities = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.replace(*pair)

    def replace(self, cert: Path, key: Path) -> None:
        shutil.copy(cert, self.cert)
        shutil.copy(key, self.key)


@contextlib.contextmanager
def https(tls: Tls) -> Iterator[str]:
    """uvicorn as `run` sets it up, with an application that says hello; yields the URL."""

    async def hello(scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, {"scheme": scope["scheme"]})

    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    started: Future[uvicorn.Server] = Future()

    async def main() -> None:
        config = uvicorn.Config(
            hello,
            lifespan="off",
            log_level="critical",
            ssl_context_factory=lambda *_: tls.context,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started:
            await asyncio.sleep(0.001)
        started.set_result(server)
        await task

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    server = started.result(WAIT_S)
    try:
        yield f"https://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()


def trusting(authority: Authority, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.cert))
    if client is not None:
        context.load_cert_chain(*client)
    return context


def name_shown(url: str, context: ssl.SSLContext) -> str:
    """The common name of the certificate that a new connection is shown."""
    host, port = url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as plain:
        with context.wrap_socket(plain, server_hostname=host) as connection:
            subject = dict(pair[0] for pair in connection.getpeercert()["subject"])  # type: ignore[index]
            return str(subject["commonName"])


def is_let_in(url: str, context: ssl.SSLContext) -> bool:
    try:
        return httpx.get(url, verify=context, timeout=WAIT_S).status_code == 200
    except httpx.TransportError:
        return False


def test_answers_come_over_https_only(authority: Authority, tmp_path: Path) -> None:
    files = Files(tmp_path, authority.sign("one"))
    with https(Tls(str(files.cert), str(files.key))) as url:
        assert httpx.get(url, verify=trusting(authority), timeout=WAIT_S).json() == {"scheme": "https"}
        assert not is_let_in(url, ssl.create_default_context())
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http"), timeout=WAIT_S)


def test_new_connections_see_a_new_certificate(authority: Authority, tmp_path: Path) -> None:
    files = Files(tmp_path, authority.sign("one"))
    tls = Tls(str(files.cert), str(files.key))
    with https(tls) as url:
        context = trusting(authority)
        with httpx.Client(verify=context, timeout=WAIT_S) as kept:
            assert kept.get(url).status_code == 200
            assert name_shown(url, context) == "one"
            assert not tls.refresh()
            files.replace(*authority.sign("two"))
            assert name_shown(url, context) == "one"
            assert tls.refresh()
            assert name_shown(url, context) == "two"
            assert kept.get(url).status_code == 200


def test_half_a_change_and_bad_files_leave_the_old_pair_in_use(authority: Authority, tmp_path: Path) -> None:
    files = Files(tmp_path, authority.sign("one"))
    tls = Tls(str(files.cert), str(files.key))
    new_cert, new_key = authority.sign("three")
    with https(tls) as url:
        context = trusting(authority)
        shutil.copy(new_cert, files.cert)
        assert not tls.refresh() and name_shown(url, context) == "one"
        files.key.write_text("")
        assert not tls.refresh() and name_shown(url, context) == "one"
        files.key.unlink()
        assert not tls.refresh() and name_shown(url, context) == "one"
        shutil.copy(new_key, files.key)
        assert tls.refresh() and name_shown(url, context) == "three"


def test_clients_need_a_certificate_of_a_known_authority(
    authority: Authority, other_authority: Authority, tmp_path: Path
) -> None:
    files = Files(tmp_path, authority.sign("one"))
    shutil.copy(authority.cert, files.authorities)
    options = ServerOptions(
        ssl_certfile=str(files.cert), ssl_keyfile=str(files.key), ssl_ca_certs=str(files.authorities)
    )
    tls = Tls.of(options)
    assert tls is not None
    known = trusting(authority, authority.sign("client"))
    stranger = trusting(authority, other_authority.sign("stranger"))
    with https(tls) as url:
        assert is_let_in(url, known)
        assert not is_let_in(url, stranger)
        assert not is_let_in(url, trusting(authority))
        shutil.copy(other_authority.cert, files.authorities)
        assert tls.refresh()
        assert is_let_in(url, stranger)
        assert not is_let_in(url, known), "an authority that was taken out is still trusted"


def test_what_is_asked_of_clients_can_be_set(authority: Authority, tmp_path: Path) -> None:
    files = Files(tmp_path, authority.sign("one"))
    options = {"ssl_certfile": str(files.cert), "ssl_keyfile": str(files.key)}
    for check in (0, 1):
        tls = Tls.of(ServerOptions(**options, ssl_ca_certs=str(authority.cert), ssl_cert_reqs=check))
        assert tls is not None
        with https(tls) as url:
            assert is_let_in(url, trusting(authority))


def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    cert, key = map(str, authority.sign("one"))
    _, other_key = map(str, authority.sign("two"))
    locked = tmp_path / "locked.key"
    openssl("rsa", "-aes128", "-passout", "pass:secret", "-in", key, "-out", locked)
    text = tmp_path / "text.crt"
    text.write_text("no certificate")
    cases = [
        ({"ssl_keyfile": key}, "--ssl-keyfile"),
        ({"ssl_ca_certs": cert}, "--ssl-ca-certs"),
        ({"ssl_certfile": cert, "ssl_keyfile": key, "ssl_cert_reqs": 2}, "--ssl-cert-reqs"),
        ({"ssl_certfile": cert}, "--ssl-certfile"),
        ({"ssl_certfile": cert, "ssl_keyfile": other_key}, "--ssl-certfile"),
        ({"ssl_certfile": cert, "ssl_keyfile": str(locked)}, "--ssl-certfile"),
        ({"ssl_certfile": str(text), "ssl_keyfile": key}, "--ssl-certfile"),
        ({"ssl_certfile": str(tmp_path / "none"), "ssl_keyfile": key}, "--ssl-certfile"),
        ({"ssl_certfile": cert, "ssl_keyfile": str(tmp_path / "none")}, "--ssl-keyfile"),
        ({"ssl_certfile": cert, "ssl_keyfile": key, "ssl_ca_certs": str(text)}, "--ssl-ca-certs"),
    ]
    for options, flag in cases:
        with pytest.raises(ConfigError) as caught:
            Tls.of(ServerOptions(**options))  # type: ignore[arg-type]
        assert caught.value.param == flag, options
    assert Tls.of(ServerOptions()) is None


class HttpsProcess(ServerProcess):
    """A server that is asked over HTTPS."""

    @property
    def base_url(self) -> str:
        """Root of the server, without a slash at the end."""
        return f"https://127.0.0.1:{self.port}"


@pytest.mark.slow
def test_the_command_serves_https_and_notices_a_new_certificate(
    model: str,  # noqa: F811
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = Files(tmp_path, authority.sign("one"))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
    flags = ("--ssl-certfile", str(files.cert), "--ssl-keyfile", str(files.key))
    with HttpsProcess(arguments(model, *flags)) as process:
        assert f"at https://127.0.0.1:{process.port}." in process.output
        body = {"prompt": "x", "max_tokens": 3, "ignore_eos": True}
        answer = process.post("/v1/completions", body)
        assert answer.json()["usage"]["completion_tokens"] == 3
        files.replace(*authority.sign("two"))
        deadline_s = time.monotonic() + CHECK_INTERVAL_S + WAIT_S
        while name_shown(process.base_url, trusting(authority)) != "two":
            assert time.monotonic() < deadline_s, process.output
            time.sleep(0.1)
        assert "The TLS files changed; new connections use them." in process.output
