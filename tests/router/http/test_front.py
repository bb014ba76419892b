from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from qanat.router.http.exchange import Downstream, respond
from qanat.router.http.front import Front
from qanat.router.http.limits import FrontLimits
from qanat.router.model import Call
from tests.router.http.certificate import contexts, needs_openssl
from tests.router.http.wire import connected, run, serving

pytestmark = pytest.mark.usefixtures("each_loop")


async def echo(call: Call, downstream: Downstream) -> None:
    respond(downstream, 200, f"{call.method} {call.target} ".encode() + call.body)


def test_answers_of_pipelined_requests_come_in_order_on_one_connection() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            if call.target == "/first":
                await gate.wait()
            await echo(call, downstream)

        async with serving(handler) as (front, port), connected(port) as client:
            client.ask("GET", "/first")
            client.ask("POST", "/second", b"body")
            client.ask("GET", "/third")
            while front.num_running == 0:
                await asyncio.sleep(0)
            gate.set()
            assert [(await client.answer()).body for _ in range(3)] == [
                b"GET /first ",
                b"POST /second body",
                b"GET /third ",
            ]

    run(test())


def test_more_requests_than_are_read_ahead_are_all_answered() -> None:
    async def test() -> None:
        async with serving(echo, FrontLimits(max_pipelined=2)) as (_, port), connected(port) as client:
            for number in range(50):
                client.ask("GET", f"/{number}")
                await asyncio.sleep(0)
            for number in range(50):
                assert (await client.answer()).body == f"GET /{number} ".encode()

    run(test())


def test_a_body_in_chunks_is_put_together_and_its_trailers_are_dropped() -> None:
    async def test() -> None:
        calls: list[Call] = []

        async def handler(call: Call, downstream: Downstream) -> None:
            calls.append(call)
            await echo(call, downstream)

        async with serving(handler) as (_, port), connected(port) as client:
            client.send(b"POST /a?b=c HTTP/1.1\r\nHost: h\r\nX-Y: Z\r\nTransfer-Encoding: chunked\r\n\r\n")
            client.send(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Late: 1\r\n\r\n")
            assert (await client.answer()).body == b"POST /a?b=c abcde"
            assert calls[0].path == "/a"
            assert calls[0].client_host == "127.0.0.1"
            assert calls[0].headers == [(b"host", b"h"), (b"x-y", b"Z"), (b"transfer-encoding", b"chunked")]

    run(test())


def test_a_declared_body_over_the_limit_is_refused_before_it_is_read() -> None:
    async def test() -> None:
        async with serving(echo, FrontLimits(max_body_bytes=10)) as (_, port), connected(port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (413, "close")
            assert b"10 bytes" in answer.body
            assert await client.is_closed()

    run(test())


def test_a_client_that_goes_on_sending_too_much_still_reads_the_refusal() -> None:
    def send_much_then_read(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n")
            for _ in range(30):
                client.sendall(bytes(1_000_000))
            return client.recv(65536)

    async def test() -> None:
        async with serving(echo, FrontLimits(max_body_bytes=10, linger_s=30.0)) as (_, port):
            assert (await asyncio.to_thread(send_much_then_read, port)).startswith(b"HTTP/1.1 413 ")

    run(test())


def test_a_body_in_chunks_is_refused_when_it_grows_over_the_limit() -> None:
    async def test() -> None:
        async with serving(echo, FrontLimits(max_body_bytes=10)) as (_, port), connected(port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")
            client.send(b"6\r\nabcdef\r\n")
            assert (await client.answer()).status == 413

    run(test())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417),
        (b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: 12345\r\n" * 100 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 2000, 431),
        (b"GET /" + b"a" * 2000, 431),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(request_bytes: bytes, status: int) -> None:
    async def test() -> None:
        async with serving(echo, FrontLimits(max_head_bytes=1000)) as (_, port), connected(port) as client:
            client.send(request_bytes)
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (status, "close")
            assert b'"error"' in answer.body
            assert await client.is_closed()

    run(test())


def test_a_malformed_request_behind_a_running_one_is_refused_in_its_turn() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            await gate.wait()
            await echo(call, downstream)

        async with serving(handler) as (front, port), connected(port) as client:
            client.ask("GET", "/good")
            client.send(b"nonsense\r\n\r\n")
            while front.num_running == 0:
                await asyncio.sleep(0)
            gate.set()
            assert (await client.answer()).body == b"GET /good "
            assert (await client.answer()).status == 400
            assert await client.is_closed()

    run(test())


def test_a_client_that_waits_for_the_word_to_send_its_body_gets_it() -> None:
    async def test() -> None:
        async with serving(echo) as (_, port), connected(port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            assert (await client.answer(has_body=False)).status == 100
            client.send(b"ab")
            assert (await client.answer()).body == b"POST / ab"

    run(test())


def test_the_word_to_send_a_body_waits_for_the_answer_before_it() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            await gate.wait()
            await echo(call, downstream)

        async with serving(handler) as (front, port), connected(port) as client:
            client.ask("GET", "/before")
            client.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            while front.num_running == 0:
                await asyncio.sleep(0)
            gate.set()
            assert (await client.answer()).body == b"GET /before "
            assert (await client.answer(has_body=False)).status == 100
            client.send(b"ab")
            assert (await client.answer()).body == b"POST / ab"

    run(test())


def test_no_word_to_send_a_body_that_is_refused_anyway() -> None:
    async def test() -> None:
        async with serving(echo, FrontLimits(max_body_bytes=1)) as (_, port), connected(port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            assert (await client.answer()).status == 413

    run(test())


def test_head_and_options_reach_the_handler_and_head_has_no_body() -> None:
    async def test() -> None:
        async def streamed(call: Call, downstream: Downstream) -> None:
            if call.target == "/empty":
                downstream.start(204, [])
            else:
                downstream.start(200, [(b"x-method", call.method.encode())])
                downstream.write(b"body")
            downstream.end()

        async with serving(streamed) as (_, port), connected(port) as client:
            client.ask("HEAD", "/")
            assert (await client.answer(has_body=False)).headers["x-method"] == "HEAD"
            client.ask("GET", "/empty")
            answer = await client.answer(has_body=False)
            assert (answer.status, answer.headers) == (204, {})
            client.ask("OPTIONS", "*")
            answer = await client.answer()
            assert (answer.headers["x-method"], answer.body) == ("OPTIONS", b"body")

    run(test())


def test_a_wish_to_upgrade_is_declined_and_body_and_connection_are_served() -> None:
    async def test() -> None:
        async with serving(echo) as (_, port), connected(port) as client:
            wish = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA")
            client.ask("POST", "/body", b"abcde", *wish)
            assert (await client.answer()).body == b"POST /body abcde"
            client.ask("GET", "/none", b"", *wish)
            client.ask("POST", "/after", b"x")
            assert (await client.answer()).body == b"GET /none "
            assert (await client.answer()).body == b"POST /after x"

    run(test())


def test_a_target_written_with_a_host_is_taken_as_its_path() -> None:
    async def test() -> None:
        async with serving(echo) as (_, port), connected(port) as client:
            client.ask("GET", "http://elsewhere/v1/models?x=1")
            assert (await client.answer()).body == b"GET /v1/models?x=1 "

    run(test())


@pytest.mark.parametrize("wish", ["", "Connection: keep-alive\r\n"])
def test_clients_of_http_1_0(wish: str) -> None:
    async def test() -> None:
        async def handler(call: Call, downstream: Downstream) -> None:
            if call.target == "/stream":
                downstream.start(200, [])
                downstream.write(b"no length")
                downstream.end()
            else:
                await echo(call, downstream)

        async with serving(handler) as (_, port), connected(port) as client:
            client.send(f"GET /a HTTP/1.0\r\n{wish}\r\n".encode())
            answer = await client.answer()
            assert answer.headers["connection"] == ("keep-alive" if wish else "close")
            if wish:
                client.send(f"GET /stream HTTP/1.0\r\n{wish}\r\n".encode())
                answer = await client.answer()
                assert (answer.headers, answer.body) == ({"connection": "close"}, b"no length")
            assert await client.is_closed()

    run(test())


def test_a_handler_that_fails_gives_a_500_without_its_secrets() -> None:
    async def test() -> None:
        async def handler(call: Call, downstream: Downstream) -> None:
            raise ValueError("secret")

        async with serving(handler) as (_, port), connected(port) as client:
            client.ask()
            answer = await client.answer()
            assert answer.status == 500
            assert b"router_error" in answer.body and b"secret" not in answer.body
            assert await client.is_closed()

    run(test())


def test_a_handler_that_returns_without_an_answer_gives_a_500() -> None:
    async def test() -> None:
        async def handler(call: Call, downstream: Downstream) -> None:
            return

        async with serving(handler) as (_, port), connected(port) as client:
            client.ask()
            assert (await client.answer()).status == 500

    run(test())


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"10")]])
def test_an_answer_that_breaks_off_cannot_be_taken_for_a_whole_one(
    headers: list[tuple[bytes, bytes]],
) -> None:
    async def test() -> None:
        async def handler(call: Call, downstream: Downstream) -> None:
            downstream.start(200, headers)
            downstream.write(b"abc")
            if call.target == "/fails":
                raise ValueError
            if not headers:
                return
            downstream.end()

        async with serving(handler) as (_, port):
            for target in ("/fails", "/short"):
                async with connected(port) as client:
                    client.ask("GET", target)
                    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                        await client.answer()

    run(test())


@needs_openssl
def test_tls_clients_are_served(tmp_path: Path) -> None:
    server_side, client_side = contexts(tmp_path)

    async def test() -> None:
        front = Front(echo)
        port = await front.listen("127.0.0.1", 0, tls=server_side)
        async with connected(port, ssl=client_side, server_hostname="localhost") as client:
            client.ask("POST", "/", b"x")
            assert (await client.answer()).body == b"POST / x"
        await front.close(0)

    run(test())
