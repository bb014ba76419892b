"""The keys file: what it may say, what is refused with line and key, and that it is read again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import ConfigError
from qanat.server import keys as keys_module
from qanat.server.caller import Caller
from qanat.server.keys import CHECK_INTERVAL_S, Keys
from qanat.server.keys_file import FIELDS, Entries, Rules, read_keys_file
from tests.server.test_run import arguments, model  # noqa: F401
from tests.support.fake_clock import FakeClock
from tests.support.server_process import ServerProcess, run_command

TINY = ("--served-model-name", "tiny")
FULL = """
# the team
keys:
  - name: alice
    key: alice-secret
    max_concurrency: 4
    tokens_per_minute: 60000
    requests_per_minute: 100
    models: [scripted]
  - name: nightly.batch
    sha256: [{digest}, {other}]
    priority: 5
    resume: true
  - {{name: ops, key: ops-secret, admin: yes, max_concurrency: }}
"""


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def write(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "keys.yaml"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def keys_of(path: str, clock: FakeClock | None = None, **options: Any) -> Keys:
    return Keys(ServerOptions(api_keys_file=path, **options), Rules(("scripted",)), clock or FakeClock())


def find(keys: Keys, key: str) -> Caller | None:
    return asyncio.run(keys.find(key))


def test_every_field_reaches_the_caller(tmp_path: Path) -> None:
    keys = keys_of(write(tmp_path, FULL.format(digest=digest("night-1"), other=digest("night-2").upper())))
    alice = Caller(
        "alice",
        is_named=True,
        models=frozenset({"scripted"}),
        max_concurrency=4,
        tokens_per_minute=60_000,
        requests_per_minute=100,
    )
    batch = Caller("nightly.batch", is_named=True, may_resume=True, priority=5)
    assert find(keys, "alice-secret") == alice
    assert find(keys, "night-1") == find(keys, "night-2") == batch
    assert find(keys, "ops-secret") == Caller("ops", is_named=True, is_admin=True, may_resume=True)
    assert find(keys, "alice") is None and find(keys, "") is None and find(keys, digest("night-1")) is None
    assert keys.is_required and keys.has_admins


def test_the_page_about_limits_shows_a_file_that_is_read_and_names_every_field(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    entries = read_keys_file(write(tmp_path, example), Rules())
    assert [caller.name for _, caller in entries] == ["alice", "nightly-batch", "nightly-batch", "operator"]
    assert all(f"`{field}`" in page for field in FIELDS)


def test_json_is_read_too_and_a_key_of_digits_is_a_text(tmp_path: Path) -> None:
    entries = [{"name": "a", "key": "0123"}, {"name": "b", "sha256": digest("b-key"), "tokens_per_minute": 5}]
    keys = keys_of(write(tmp_path, json.dumps({"keys": entries}, indent="\t")))
    assert find(keys, "0123") == Caller("a", is_named=True)
    assert find(keys, "b-key") == Caller("b", is_named=True, tokens_per_minute=5)


def test_a_key_need_not_be_ascii(tmp_path: Path) -> None:
    keys = keys_of(write(tmp_path, "keys: [{name: a, key: ключ}]"), api_key=("clé",))
    for key, name in (("ключ", "a"), ("clé", "api-key-1")):
        caller = find(keys, key.encode().decode("latin-1"))
        assert caller is not None and caller.name == name
    assert find(keys, "ключ") is None  # no header can hold it so


def test_keys_of_flags_work_beside_the_file(tmp_path: Path) -> None:
    keys = keys_of(write(tmp_path, "keys: [{name: a, key: a-key}]"), api_key=("x",), admin_api_key=("y",))
    callers = [find(keys, key) for key in ("a-key", "x", "y")]
    assert [caller and (caller.name, caller.is_admin, caller.may_resume) for caller in callers] == [
        ("a", False, False),
        ("api-key-1", False, False),
        ("admin-key-1", True, True),
    ]
    with pytest.raises(ConfigError, match="the key of a is given by a flag too"):
        keys_of(write(tmp_path, "keys: [{name: a, key: x}]"), api_key=("x",))


def test_an_empty_list_lets_nobody_in(tmp_path: Path) -> None:
    keys = keys_of(write(tmp_path, "keys: []"))
    assert keys.is_required and find(keys, "") is None and not keys.has_admins


def test_everybody_may_resume_where_the_flag_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "keys: [{name: a, key: a-key}]")
    for is_allowed in (False, True):
        keys = keys_of(path, allow_resume=is_allowed, api_key=("x",))
        assert {caller.may_resume for caller in (find(keys, key) for key in ("a-key", "x")) if caller} == {
            is_allowed
        }
        assert keys.anonymous.may_resume is is_allowed


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "must hold `keys`"),
        ("- name: a", 1, "must be a mapping"),
        ("keys: {a: b}", 1, "must hold `keys`"),
        ("keys: []\nkey: x", 2, "no field 'key'"),
        ("keys:\n- just text", 2, "must be a mapping"),
        ("keys:\n- key: s3cret", 2, "needs a name"),
        ("keys:\n- name: a", 2, "needs a key"),
        ("keys:\n- name: a\n  key:", 2, "needs a key"),
        ("keys:\n- name: a\n  key: ''", 3, "key is empty"),
        ("keys:\n- name: a\n  key: ' s3cret'", 3, "blanks"),
        ("keys:\n- name: a\n  key: [s3cret, [x]]", 3, "key must be a text"),
        ("keys:\n- name: a\n  sha256: s3cret", 3, "64 hexadecimal digits"),
        ("keys:\n- name: a b\n  key: s3cret", 2, "name must be"),
        ("keys:\n- name: admin-key-1\n  key: s3cret", 2, "not like api-key-1"),
        ("keys:\n- {name: a, key: s3cret}\n- {name: a, key: t}", 3, "there twice"),
        ("keys:\n- {name: a, key: s3cret}\n- {name: b, key: s3cret}", 3, "another entry"),
        ("keys:\n- name: a\n  key: s3cret\n  max_concurency: 4", 4, "no field 'max_concurency'"),
        ("keys:\n- name: a\n  key: s3cret\n  key: t", 4, "key is there twice"),
        ("keys:\n- name: a\n  key: s3cret\n  max_concurrency: 0", 4, "at least 1"),
        ("keys:\n- name: a\n  key: s3cret\n  tokens_per_minute: 1.5", 4, "a whole number"),
        ("keys:\n- name: a\n  key: s3cret\n  tokens_per_minute: '60'", 4, "a whole number"),
        ("keys:\n- name: a\n  key: s3cret\n  requests_per_minute: 010", 4, "a whole number"),
        ("keys:\n- name: a\n  key: s3cret\n  admin: 1", 4, "true or false"),
        ("keys:\n- name: a\n  key: s3cret\n  priority: 3000000000", 4, "between"),
        ("keys:\n- name: a\n  key: s3cret\n  models: []", 4, "must name a model"),
        ("keys:\n- name: a\n  key: s3cret\n  models: other", 4, "served: scripted"),
        ("keys:\n- name: a\n  key: s3cret\n\x00", None, "neither YAML nor JSON"),
        ("keys:\n- name: a\n  key: 's3cret", 3, "neither YAML nor JSON"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_no_secret(
    tmp_path: Path, text: str, line: int | None, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        keys_of(write(tmp_path, text))
    message = caught.value.message
    assert caught.value.param == "--api-keys-file"
    assert words in message and "s3cret" not in message
    assert line is None or f"keys.yaml line {line}" in message


def test_the_key_is_named_once_it_is_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 2, key bob: max_concurrency must be a whole number"):
        keys_of(write(tmp_path, "keys:\n- {name: bob, key: x, max_concurrency: many}"))


def test_a_priority_needs_the_policy_for_it(tmp_path: Path) -> None:
    path = write(tmp_path, "keys: [{name: a, key: x, priority: 1}]")
    with pytest.raises(ConfigError, match="--scheduling-policy priority"):
        Keys(ServerOptions(api_keys_file=path), Rules(is_priority_policy=False))


@pytest.mark.parametrize("name", ["nothing.yaml", "."])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        keys_of(str(tmp_path / name))


@given(st.text(alphabet="kesnam:y[]{}-,'\"& *!|>#\n 01ab", max_size=80))
def test_no_text_brings_anything_but_keys_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "some-keys.yaml"
    path.write_text(text)
    try:
        entries = read_keys_file(str(path), Rules())
    except ConfigError as error:
        assert str(path) in error.message
    else:
        assert all(caller.is_named and len(known) == 32 for known, caller in entries)


def test_a_changed_file_is_read_again_and_a_broken_one_is_left_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    path = write(tmp_path, "keys: [{name: a, key: a-key}]")
    keys = keys_of(path, clock)
    write(tmp_path, "keys: [{name: b, key: b-key}, {name: c, key: c-key}]")
    assert find(keys, "a-key") is not None  # the last look was just now
    clock.advance(CHECK_INTERVAL_S)
    with caplog.at_level(logging.INFO):
        assert find(keys, "a-key") is None and find(keys, "b-key") is not None
        write(tmp_path, "keys: [{name: b, key: new-key, admin: perhaps}]")
        clock.advance(CHECK_INTERVAL_S)
        assert find(keys, "new-key") is None and find(keys, "b-key") is not None
        Path(path).unlink()
        for _ in range(3):
            clock.advance(CHECK_INTERVAL_S)
            assert find(keys, "b-key") is not None
        write(tmp_path, "keys: [{name: b, key: new-key}]")
        clock.advance(CHECK_INTERVAL_S)
        assert find(keys, "new-key") is not None and find(keys, "b-key") is None
    told = [record.message for record in caplog.records]
    assert len(told) == 4, told  # a file that stays away is told once
    assert "line 1, key b: admin must be true or false" in told[1] and "cannot be read" in told[2]
    assert not any("-key" in text.replace("--api-keys-file", "") for text in told)


def test_a_changed_file_is_read_beside_the_loop_and_judges_all_who_come_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    path = write(tmp_path, "keys: [{name: a, key: a-key}]")
    keys = keys_of(path, clock)
    may_read, readers = threading.Event(), []

    def slowly(path: str, rules: Rules) -> Entries:
        readers.append(threading.get_ident())
        assert may_read.wait(60)
        return read_keys_file(path, rules)

    monkeypatch.setattr(keys_module, "read_keys_file", slowly)

    async def ask() -> list[Caller | None]:
        write(tmp_path, "keys: [{name: b, key: b-key}]")
        clock.advance(CHECK_INTERVAL_S)
        asking = [asyncio.create_task(keys.find(key)) for key in ("a-key", "b-key", "b-key")]
        leaving = asyncio.create_task(keys.find("a-key"))
        for _ in range(10):
            await asyncio.sleep(0)  # the loop goes on
        assert not any(task.done() for task in asking)
        leaving.cancel()
        may_read.set()
        return await asyncio.gather(*asking)

    old, *new = asyncio.run(ask())
    assert old is None and new == [Caller("b", is_named=True)] * 2
    assert len(readers) == 1 and threading.get_ident() not in readers


def test_a_file_that_others_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys_of(write(tmp_path, "keys: []", 0o600))
    assert not caplog.records
    keys_of(write(tmp_path, "keys: []", 0o640))
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "mode 640" in record.message


@pytest.mark.slow
def test_a_wrong_file_is_told_before_the_model_is_loaded(model: str, tmp_path: Path) -> None:  # noqa: F811
    path = write(tmp_path, "keys:\n- {name: a, key: s3cret, models: [other]}")
    result = run_command(["serve", *arguments(model, *TINY, "--api-keys-file", path)])
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert "keys.yaml line 2, key a: the model 'other' is not served; served: tiny" in last
    assert "s3cret" not in result.stdout + result.stderr


@pytest.mark.slow
def test_a_server_with_a_keys_file_asks_for_a_key(model: str, tmp_path: Path) -> None:  # noqa: F811
    path = write(tmp_path, "keys:\n- {name: alice, key: s3cret, models: tiny, tokens_per_minute: 1000}")
    with ServerProcess(arguments(model, *TINY, "--api-keys-file", path)) as process:
        body = {"model": "tiny", "prompt": "Hello", "max_tokens": 3, "ignore_eos": True}
        key = {"Authorization": "Bearer s3cret"}
        assert process.post("/v1/completions", body).status_code == 401
        response = process.post("/v1/completions", body, headers=key)
        assert response.status_code == 200 and response.headers["x-ratelimit-limit-tokens"] == "1000"
        usage = process.get("/usage", headers=key).json()
        assert [(one["name"], one["output_tokens"]) for one in usage["keys"]] == [("alice", 3)]
        assert "Authorization: Bearer YOUR_KEY" in process.output and "s3cret" not in process.output
