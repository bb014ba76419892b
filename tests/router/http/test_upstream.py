from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qanat.router.http.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from qanat.router.http.upstream import Answer, Timeouts, Upstream
from qanat.router.model import Endpoint
from tests.router.http.certificate import contexts, needs_openssl
from tests.router.http.wire import EngineSide, Message, Script, engine, run

pytestmark = pytest.mark.usefixtures("each_loop")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answering(answer: bytes, num_times: int | None = None) -> Script:
    """Every request gets the answer; the connection closes after so many."""

    async def script(side: EngineSide) -> None:
        num_left = -1 if num_times is None else num_times
        while num_left:
            await side.request()
            side.send(answer)
            num_left -= 1

    return script


async def ask(
    upstream: Upstream, endpoint: Endpoint, method: str = "GET", body: bytes = b""
) -> tuple[int, bytes]:
    async with upstream.request(endpoint, method, "/", body=body) as answer:
        return answer.status, await answer.read()


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nLate: x\r\n\r\n"
)


@pytest.mark.parametrize(
    ("method", "answer", "status", "body", "is_kept"),
    [
        ("GET", OK, 200, b"ok", True),
        ("GET", CHUNKED, 200, b"abc", True),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 200, b"", True),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, b"", True),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK, 200, b"ok", True),
        ("GET", b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nbad", 500, b"bad", True),
        ("GET", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
        ("GET", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
        ("GET", OK + OK, 200, b"ok", False),
        ("GET", 2 * b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", False),
        ("HEAD", OK, 200, b"", False),
    ],
)
def test_answers_of_every_form(method: str, answer: bytes, status: int, body: bytes, is_kept: bool) -> None:
    async def test() -> None:
        upstream = Upstream()
        async with engine(answering(answer)) as (scripted, endpoint):
            for _ in range(3):
                assert await ask(upstream, endpoint, method) == (status, body)
            assert scripted.num_connections == (1 if is_kept else 3)
            upstream.close()

    run(test())


def test_an_answer_that_ends_with_its_connection() -> None:
    async def test() -> None:
        upstream = Upstream()
        async with engine(answering(b"HTTP/1.1 200 OK\r\n\r\nall there is", 1)) as (_, endpoint):
            assert await ask(upstream, endpoint) == (200, b"all there is")
            assert upstream.num_connections(endpoint) <= 1

    run(test())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.integers(1, len(CHUNKED) - 1), unique=True, max_size=20))
def test_any_cut_of_an_answer_gives_the_same_body(places: list[int]) -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        edges = [0, *sorted(places), len(CHUNKED)]
        for begin, end in zip(edges, edges[1:], strict=False):
            side.send(CHUNKED[begin:end])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await side.client_left()

    async def test() -> None:
        upstream = Upstream()
        async with engine(script) as (_, endpoint):
            assert await ask(upstream, endpoint) == (200, b"abc")
            upstream.close()

    run(test())


def test_what_an_engine_is_sent() -> None:
    async def test() -> None:
        seen: list[Message] = []

        async def script(side: EngineSide) -> None:
            seen.append(await side.request())
            side.send(
                b"HTTP/1.1 200 OK\r\nKeep-Alive: 5\r\nConnection: x-hop\r\nX-Hop: 1\r\nX-End: 2\r\n"
                b"Set-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n"
            )

        headers = [
            (b"host", b"router"),
            (b"connection", b"keep-alive, X-Private"),
            (b"x-private", b"1"),
            (b"te", b"trailers"),
            (b"expect", b"100-continue"),
            (b"transfer-encoding", b"chunked"),
            (b"authorization", b"Bearer k"),
            (b"x-many", b"1"),
            (b"x-many", b"2"),
        ]
        async with engine(script) as (_, endpoint):
            endpoint.base_path = "/base"
            upstream = Upstream()
            async with upstream.request(endpoint, "POST", "/v1/x?y=%20z", headers, b"body") as answer:
                assert answer.headers == [
                    (b"x-end", b"2"),
                    (b"set-cookie", b"a"),
                    (b"set-cookie", b"b"),
                    (b"content-length", b"0"),
                ]
            assert seen[0].first == "POST /base/v1/x?y=%20z HTTP/1.1"
            assert seen[0].headers == {
                "host": endpoint.address,
                "authorization": "Bearer k",
                "x-many": "2",
                "content-length": "4",
            }
            assert seen[0].body == b"body"

    run(test())


def test_a_kept_connection_that_the_engine_closed_is_not_used_again() -> None:
    async def test() -> None:
        upstream = Upstream()
        async with engine(answering(OK, 1)) as (scripted, endpoint):
            for number in range(1, 6):
                assert await ask(upstream, endpoint) == (200, b"ok")
                assert scripted.num_connections == number

    run(test())


def test_an_engine_that_dies_before_it_answers_is_not_asked_again() -> None:
    async def test() -> None:
        upstream = Upstream()

        async def script(side: EngineSide) -> None:
            await side.request()

        async with engine(script) as (scripted, endpoint):
            with pytest.raises(UpstreamBroken) as caught:
                await ask(upstream, endpoint, "POST", b"x")
            assert (caught.value.is_sent, caught.value.is_answered) == (True, False)
            assert caught.value.endpoint_name == "engine"
            assert scripted.num_connections == 1

    run(test())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_an_answer_that_breaks_off_is_an_error_after_what_came(answer: bytes) -> None:
    async def test() -> None:
        upstream = Upstream()
        async with engine(answering(answer, 1)) as (_, endpoint):
            pieces: list[bytes] = []
            with pytest.raises(UpstreamBroken) as caught:
                async with upstream.request(endpoint, "GET", "/") as opened:
                    async for piece in opened.body():
                        pieces.append(piece)
            assert caught.value.is_answered
            assert b"".join(pieces) == b"ab"
            pumped: list[bytes] = []
            with pytest.raises(UpstreamBroken):
                async with upstream.request(endpoint, "GET", "/") as opened:
                    await opened.pump(pumped.append)
            assert b"".join(pumped) == b"ab"

    run(test())


@pytest.mark.parametrize(
    "answer",
    [
        b"220 smtp ready\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000,
    ],
)
def test_what_is_no_answer_is_broken(answer: bytes) -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        side.send(answer)
        await side.client_left()

    async def test() -> None:
        async with engine(script) as (_, endpoint):
            with pytest.raises(UpstreamBroken):
                await ask(Upstream(), endpoint)

    run(test())


def test_a_body_over_the_readers_limit_is_broken_and_its_connection_closed() -> None:
    async def test() -> None:
        has_left = asyncio.Event()

        async def script(side: EngineSide) -> None:
            await side.request()
            side.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + bytes(900))
            await side.client_left()
            has_left.set()

        async with engine(script) as (_, endpoint):
            with pytest.raises(UpstreamBroken, match="100 bytes"):
                async with Upstream().request(endpoint, "GET", "/") as answer:
                    await answer.read(max_bytes=100)
            await has_left.wait()

    run(test())


def test_nobody_listens() -> None:
    async def test() -> None:
        async with engine(answering(OK)) as (_, endpoint):
            pass
        with pytest.raises(UpstreamUnreachable, match=str(endpoint.port)) as caught:
            await ask(Upstream(), endpoint)
        assert not caught.value.is_sent
        assert not caught.value.is_local
        with pytest.raises(UpstreamUnreachable):
            await ask(Upstream(), Endpoint("x", "no-such-host.invalid", 1))

    run(test())


def test_an_engine_that_never_begins_and_one_that_falls_silent() -> None:
    async def test() -> None:
        num_left = 0

        async def script(side: EngineSide) -> None:
            nonlocal num_left
            if "/silent" not in (await side.request()).first:
                side.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
            await side.client_left()
            num_left += 1

        async with engine(script) as (_, endpoint):
            with pytest.raises(UpstreamTimeout) as caught:
                timeouts = Timeouts(first_byte_s=0.1)
                async with Upstream().request(endpoint, "GET", "/silent", timeouts=timeouts):
                    pass
            assert (caught.value.phase, caught.value.is_answered) == ("first_byte", False)
            pieces: list[bytes] = []
            with pytest.raises(UpstreamTimeout) as caught:
                timeouts = Timeouts(idle_s=0.1)
                async with Upstream().request(endpoint, "GET", "/half", timeouts=timeouts) as answer:
                    await answer.pump(pieces.append)
            assert (caught.value.phase, caught.value.is_answered, pieces) == ("idle", True, [b"ab"])
            while num_left < 2:
                await asyncio.sleep(0)

    run(test())


def test_silence_is_not_the_end_of_an_answer_that_ends_with_its_connection() -> None:
    async def script(side: EngineSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\n\r\nab")
        await side.client_left()

    async def test() -> None:
        async with engine(script) as (_, endpoint):
            async with Upstream().request(endpoint, "GET", "/", timeouts=Timeouts(idle_s=0.05)) as answer:
                while not answer._connection._is_closed:  # silent for too long, with two bytes unread
                    await asyncio.sleep(0.01)
                pieces: list[bytes] = []
                with pytest.raises(UpstreamTimeout):
                    async for piece in answer.body():
                        pieces.append(piece)
            assert pieces == [b"ab"]

    run(test())


@pytest.mark.parametrize("goes_on", [False, True])
def test_silence_counts_only_while_the_reader_takes_more(goes_on: bool) -> None:
    reads_again = asyncio.Event()

    class Slow:
        """Takes nothing for three times as long as the engine may be silent."""

        def __init__(self, answer: Answer) -> None:
            self.answer = answer

        def set_listener(self, listener: Callable[[bool], None] | None) -> None:
            if listener is not None:
                listener(True)
                self.answer.set_idle_timeout(0.1)
                asyncio.get_running_loop().call_later(0.3, self.read_again, listener)

        def read_again(self, listener: Callable[[bool], None]) -> None:
            if goes_on:
                self.answer.set_idle_timeout(None)
            listener(False)
            reads_again.set()

        def flush(self) -> None:
            pass

    async def script(side: EngineSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        if goes_on:
            await reads_again.wait()
            side.send(b"ab")
        await side.client_left()

    async def test() -> None:
        upstream = Upstream()
        pieces: list[bytes] = []
        async with engine(script) as (_, endpoint):
            async with upstream.request(endpoint, "GET", "/", timeouts=Timeouts(idle_s=None)) as answer:
                with contextlib.nullcontext() if goes_on else pytest.raises(UpstreamTimeout):
                    await answer.pump(pieces.append, Slow(answer))
            assert reads_again.is_set()
            assert pieces == ([b"ab"] if goes_on else [])
            upstream.close()

    run(test())


def test_a_woken_request_that_is_cancelled_passes_its_turn_on() -> None:
    async def test() -> None:
        async with engine(answering(OK)) as (scripted, endpoint):
            upstream = Upstream(max_connections=1)
            async with upstream.request(endpoint, "GET", "/") as answer:
                await answer.read()
                first, second = (asyncio.create_task(ask(upstream, endpoint)) for _ in range(2))
                for _ in range(3):
                    await asyncio.sleep(0)
            first.cancel()  # it was woken just now and has not run since
            assert await second == (200, b"ok")
            assert first.cancelled()
            assert scripted.num_connections == 1
            upstream.close()

    run(test())


def test_a_request_beyond_the_bound_waits_for_a_connection_and_gets_the_one_given_back() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        num_asked = 0

        async def script(side: EngineSide) -> None:
            nonlocal num_asked
            while True:
                await side.request()
                num_asked += 1
                await gate.wait()
                side.send(OK)

        async with engine(script) as (scripted, endpoint):
            upstream = Upstream(max_connections=2)
            tasks = [asyncio.create_task(ask(upstream, endpoint)) for _ in range(7)]
            while num_asked < 2:
                await asyncio.sleep(0)
            with pytest.raises(UpstreamTimeout) as caught:
                async with upstream.request(endpoint, "GET", "/", timeouts=Timeouts(connect_s=0.05)):
                    pass
            assert (caught.value.phase, caught.value.is_sent) == ("connect", False)
            tasks[3].cancel()
            gate.set()
            answers = await asyncio.gather(*tasks[:3], *tasks[4:])
            assert answers == [(200, b"ok")] * 6
            assert (scripted.num_connections, num_asked) == (2, 6)
            upstream.close()

    run(test())


def test_a_cancelled_request_closes_its_connection_so_that_the_engine_sees_it() -> None:
    async def test() -> None:
        has_begun, has_left = asyncio.Event(), asyncio.Event()

        async def script(side: EngineSide) -> None:
            if "/begun" in (await side.request()).first:
                side.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            has_begun.set()
            await side.client_left()
            has_left.set()

        upstream = Upstream()

        async def wait(target: str) -> None:
            async with upstream.request(endpoint, "GET", target) as answer:
                await answer.pump(lambda piece: None)

        async with engine(script) as (_, endpoint):
            for target in ("/silent", "/begun"):
                has_begun.clear()
                has_left.clear()
                task = asyncio.create_task(wait(target))
                await has_begun.wait()
                await asyncio.sleep(0)
                task.cancel()
                await has_left.wait()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert upstream.num_connections(endpoint) == 0

    run(test())


def test_an_answer_left_before_its_end_closes_its_connection() -> None:
    async def test() -> None:
        upstream = Upstream()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n" + bytes(500_000)
        async with engine(answering(answer)) as (scripted, endpoint):
            async with upstream.request(endpoint, "GET", "/") as opened:
                assert opened.status == 200
            assert len((await ask(upstream, endpoint))[1]) == 500_000
            assert scripted.num_connections == 2
            upstream.close()

    run(test())


def test_an_error_of_the_receiver_is_raised_by_the_pump_and_closes_the_connection() -> None:
    async def test() -> None:
        has_left = asyncio.Event()

        async def script(side: EngineSide) -> None:
            await side.request()
            side.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            side.send(b"1\r\na\r\n")
            await side.client_left()
            has_left.set()

        def receive(piece: bytes) -> None:
            raise ValueError(piece)

        async with engine(script) as (_, endpoint):
            with pytest.raises(ValueError, match="a"):
                async with Upstream().request(endpoint, "GET", "/") as answer:
                    await answer.pump(receive)
            await has_left.wait()

    run(test())


def test_unused_connections_close_after_a_while_and_when_their_endpoint_is_forgotten() -> None:
    async def test() -> None:
        num_left = 0

        async def script(side: EngineSide) -> None:
            nonlocal num_left
            await side.request()
            side.send(OK)
            await side.client_left()
            num_left += 1

        async with engine(script) as (_, endpoint):
            short, long = Upstream(keepalive_s=0.05), Upstream()
            await ask(short, endpoint)
            while num_left < 1:
                await asyncio.sleep(0.01)
            assert short.num_connections(endpoint) == 0
            await ask(long, endpoint)
            assert long.num_connections(endpoint) == 1
            long.forget(endpoint)
            while num_left < 2:
                await asyncio.sleep(0)
            assert long.num_connections(endpoint) == 0

    run(test())


def test_a_large_request_arrives_whole() -> None:
    async def test() -> None:
        sizes: list[int] = []

        async def script(side: EngineSide) -> None:
            sizes.append(len((await side.request()).body))
            side.send(OK)

        async with engine(script) as (_, endpoint):
            await ask(Upstream(), endpoint, "POST", bytes(3_000_000))
            assert sizes == [3_000_000]

    run(test())


def test_an_engine_at_an_ipv6_address() -> None:
    async def test() -> None:
        hosts: list[str] = []

        async def script(side: EngineSide) -> None:
            hosts.append((await side.request()).headers["host"])
            side.send(OK)

        try:
            async with engine(script, host="::1") as (_, endpoint):
                assert await ask(Upstream(), endpoint) == (200, b"ok")
                assert hosts == [f"[::1]:{endpoint.port}"]
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")

    run(test())


@needs_openssl
def test_an_engine_behind_tls_is_verified(tmp_path: Path) -> None:
    has_certificate, trusts_it = contexts(tmp_path)

    async def test() -> None:
        async with engine(answering(OK), tls=has_certificate) as (scripted, endpoint):
            upstream = Upstream(tls=trusts_it)
            for _ in range(3):
                assert await ask(upstream, endpoint) == (200, b"ok")
            assert scripted.num_connections == 1
            upstream.close()
            with pytest.raises(UpstreamUnreachable, match="certificate"):
                await ask(Upstream(), endpoint)

    run(test())


def test_the_want_of_open_files_is_not_the_engines_fault() -> None:
    async def test() -> None:
        async with engine(answering(OK)) as (_, endpoint):
            upstream = Upstream()
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            with contextlib.ExitStack() as files:
                free = files.enter_context(open(os.devnull)).fileno()
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
                try:
                    with pytest.raises(UpstreamUnreachable) as caught:
                        await ask(upstream, endpoint)
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, before)
            assert caught.value.is_local
            assert upstream.num_connections(endpoint) == 0
            assert await ask(upstream, endpoint) == (200, b"ok")
            upstream.close()

    run(test())
