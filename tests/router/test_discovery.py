"""Endpoints that come and go with a file, a name, and the wishes of administrators."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from qanat.core.errors import ConfigError
from qanat.router.discovery import FLAGS, DnsSource, FileSource, Membership, read_endpoints_file
from qanat.router.endpoint_text import EndpointSpec, read_endpoint
from qanat.router.model import EndpointState, Role
from qanat.router.policies import LeastTokens
from qanat.router.pool import Pool
from tests.router.making import call


def specs(*texts: str) -> list[EndpointSpec]:
    return [read_endpoint(text, "x") for text in texts]


def members() -> tuple[Pool, Membership]:
    pool = Pool(LeastTokens())
    return pool, Membership(pool)


def names(pool: Pool) -> list[str]:
    return sorted(each.name for each in pool.members)


def test_the_pool_follows_a_source() -> None:
    pool, membership = members()
    membership.set("s", specs("a:1", "b:1"))
    kept = pool.get("b:1")
    membership.set("s", specs("b:1", "c:1"))
    assert names(pool) == ["b:1", "c:1"] and pool.get("b:1") is kept


def test_one_that_two_sources_wish_stays_until_neither_does() -> None:
    pool, membership = members()
    membership.set("s", specs("a:1"))
    membership.set("t", specs("a:1"))
    membership.set("s", [])
    assert names(pool) == ["a:1"]
    membership.set("t", [])
    assert names(pool) == []


def test_one_that_is_wished_again_while_it_drains_is_back_with_its_figures() -> None:
    pool, membership = members()
    membership.set("s", specs("a:1"))
    one = pool.get("a:1")
    with pool.lease(one, call({})):
        membership.set("s", [])
        assert one.state is EndpointState.DRAINING
        membership.set("s", specs("a:1"))
        assert one.state is EndpointState.READY
    assert names(pool) == ["a:1"]


def test_role_and_weight_change_in_place() -> None:
    pool, membership = members()
    membership.set("s", specs("a:1,role=prefill"))
    one = pool.get("a:1")
    membership.set("s", specs("a:1,role=decode,weight=3"))
    assert pool.get("a:1") is one and (one.role, one.weight) == (Role.DECODE, 3.0)
    assert pool.choose(call({}), Role.DECODE).endpoint is one


def test_what_an_admin_removes_stays_away_until_it_is_added_again() -> None:
    pool, membership = members()
    membership.set("s", specs("a:1", "b:1"))
    membership.remove(pool.get("a:1"))
    membership.set("s", specs("a:1", "b:1", "c:1"))
    assert names(pool) == ["b:1", "c:1"]
    assert membership.add(specs("a:1")[0])
    assert names(pool) == ["a:1", "b:1", "c:1"]


def test_what_the_source_gave_up_meanwhile_may_come_back_by_it() -> None:
    pool, membership = members()
    membership.set("s", specs("a:1"))
    membership.remove(pool.get("a:1"))
    membership.set("s", [])
    membership.set("s", specs("a:1"))
    assert names(pool) == ["a:1"]


def test_an_admin_changes_what_flags_say() -> None:
    pool, membership = members()
    membership.set(FLAGS, specs("a:1"))
    assert not membership.add(specs("a:1,weight=4")[0])
    assert pool.get("a:1").weight == 4


def test_two_of_one_name_get_other_names() -> None:
    pool, membership = members()
    membership.set("s", specs("a:1,name=x"))
    membership.set("t", specs("b:1,name=x"))
    assert names(pool) == ["b:1", "x"]


@pytest.mark.parametrize(
    "text",
    [
        "a:1,role=prefill\n\n# a comment\nhttp://b:2  # another\n",
        "- a:1,role=prefill\n- http://b:2\n",
        "- {url: a:1, role: prefill}\n- b:2\n",
        "endpoints:\n  - url: http://a:1\n    role: prefill\n  - b:2\n",
        '["a:1,role=prefill", {"url": "b:2"}]',
    ],
)
def test_a_file_may_be_lines_or_yaml(text: str) -> None:
    assert read_endpoints_file("f", text) == specs("a:1,role=prefill", "b:2")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a:1\nb:x\n", "f, line 2: b:x"),
        ("- [1]\n", "f, entry 1:"),
        ("- {role: prefill}\n", "it has no text `url`"),
        ("endpoints: 3\n", "must be a list"),
        ("- a: [\n", "no valid YAML"),
    ],
)
def test_a_wrong_entry_is_named(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        read_endpoints_file("f", text)


def test_a_file_is_followed_by_its_content(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "engines"
    path.write_text("a:1\n")
    pool, membership = members()
    source = FileSource(str(path), membership)
    source.read()

    def look() -> list[str]:
        asyncio.run(source.look())
        return names(pool)

    assert names(pool) == ["a:1"]
    path.write_text("a:1\nb:1\n")
    assert look() == ["a:1", "b:1"]
    path.write_text("a:1\nb:nonsense\n")
    assert look() == look() == ["a:1", "b:1"]
    path.unlink()
    assert look() == ["a:1", "b:1"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]  # each trouble once
    other = tmp_path / "new"
    other.write_text("c:1\n")
    other.rename(path)
    assert look() == ["c:1"]
    path.write_text("")
    assert look() == []


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    _, membership = members()
    with pytest.raises(ConfigError, match="--endpoints-file .*No such file"):
        FileSource(str(tmp_path / "none"), membership).read()


def test_a_name_is_looked_up_again_and_its_addresses_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, membership = members()
    source = DnsSource("engines.example:8000,role=decode", membership)
    answers: list[list[str] | OSError] = [
        ["10.0.0.1", "10.0.0.2"],
        ["10.0.0.2", "10.0.0.3", "fd00::1"],
        socket.gaierror("no such name"),
        ["10.0.0.9"],
    ]
    seen = []

    async def looks() -> None:
        async def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
            answer = answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            assert (host, port) == ("engines.example", 8000)
            return [(0, 0, 0, "", (address, port)) for address in answer]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
        while answers:
            await source.look()
            seen.append(names(pool))

    asyncio.run(looks())
    second = ["10.0.0.2:8000", "10.0.0.3:8000", "[fd00::1]:8000"]
    assert seen == [["10.0.0.1:8000", "10.0.0.2:8000"], second, second, ["10.0.0.9:8000"]]
    assert all(each.role is Role.DECODE for each in pool.members)


def test_a_real_look_up() -> None:
    pool, membership = members()
    asyncio.run(DnsSource("localhost:8000", membership).look())
    assert "127.0.0.1:8000" in names(pool) or "[::1]:8000" in names(pool)


def test_https_by_dns_is_refused() -> None:
    _, membership = members()
    with pytest.raises(ConfigError, match="certificates name hosts"):
        DnsSource("https://engines.example:8000", membership)
