"""The page's files: how they are served, that they belong together, and that they ask nobody else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from qanat.config.engine_config import ServerOptions
from qanat.server.web.page import FOLDER, MEDIA_TYPES, read_files
from tests.server.test_errors import refuse
from tests.support.app_server import AppServer, serving

NAMESPACE = "http://www.w3.org/2000/svg"
LANGUAGES = ("en", "zh")
MAX_FILE_LINES = 400


@pytest.fixture(scope="module")
def locked() -> Iterator[AppServer]:
    with serving(ServerOptions(api_key=("user-key",), allowed_origins=("https://page.example",))) as running:
        yield running


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Every file by its name in the folder."""
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    return {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in files}


def words_of(language: str) -> dict[str, str]:
    words: dict[str, str] = json.loads(
        (FOLDER / "languages" / f"{language}.json").read_text(encoding="utf-8")
    )
    return words


def scripts_of(texts: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name.endswith(".js")}


def test_every_file_is_served_without_a_key(locked: AppServer) -> None:
    files = read_files()
    assert len(files) > 20
    for path, file in files.items():
        response = locked.http.get(path)
        assert response.status_code == 200 and response.content == file.body, path
        assert response.headers["content-type"] == file.media_type
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in response.headers


def test_all_else_still_needs_the_key(locked: AppServer) -> None:
    for path in (
        "/web/",
        "/web/nothing.js",
        "/web/../app.py",
        "/index.html",
        "/web/%2e%2e/page.py",
        "/v1/models",
    ):
        assert locked.http.get(path).status_code == 401, path
    assert locked.http.post("/").status_code == 401
    assert locked.http.get("/v1/models", headers={"Authorization": "Bearer user-key"}).status_code == 200


def test_the_policy_lets_nothing_in_from_elsewhere(server: AppServer) -> None:
    policy = server.http.get("/").headers["content-security-policy"]
    directives = dict(part.split(" ", 1) for part in policy.split("; "))
    assert directives["default-src"] == "'none'" and directives["require-trusted-types-for"] == "'script'"
    assert set(directives.values()) <= {"'none'", "'self'", "'script'"}
    assert directives["frame-ancestors"] == directives["base-uri"] == directives["form-action"] == "'none'"


def test_a_browser_that_has_a_file_is_told_so(server: AppServer) -> None:
    first = server.http.get("/web/main.js")
    assert first.headers["cache-control"] == "no-cache"
    etag = first.headers["etag"]
    for condition in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = server.http.get("/web/main.js", headers={"If-None-Match": condition})
        assert again.status_code == 304 and not again.content and again.headers["etag"] == etag
        assert "content-security-policy" in again.headers
    assert server.http.get("/web/main.js", headers={"If-None-Match": '"other"'}).status_code == 200
    assert server.http.get("/", headers={"If-None-Match": etag}).status_code == 200


def test_head_tells_the_size_and_other_methods_are_not_the_pages(server: AppServer) -> None:
    head = server.http.head("/")
    assert head.status_code == 200 and not head.content
    assert head.headers["content-length"] == str(len(server.http.get("/").content))
    assert refuse(server.http.post("/"), 404)["code"] == "not_found"
    assert refuse(server.http.get("/web/nothing.js"), 404)["code"] == "not_found"


def test_the_page_can_be_switched_off() -> None:
    with serving(ServerOptions(web_page=False)) as running:
        for path in read_files():
            assert refuse(running.http.get(path), 404)["code"] == "not_found"


def test_every_file_is_of_a_known_kind_and_short(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        assert any(name.endswith(suffix) for suffix in MEDIA_TYPES), name
        assert text.count("\n") <= MAX_FILE_LINES, name


def test_every_file_that_is_named_is_there_and_every_one_there_is_named(texts: dict[str, str]) -> None:
    named = set(re.findall(r'(?:href|src)="web/([^"]+)"', texts["index.html"]))
    for name, text in scripts_of(texts).items():
        imports = set(re.findall(r'from "\./([^"]+)"', text))
        assert imports <= texts.keys(), name
        named |= imports
    assert {"main.js", "base.css", "icon.svg"} <= named
    assert named | {"index.html", *(f"languages/{one}.json" for one in LANGUAGES)} == texts.keys()


def test_what_is_imported_is_exported(texts: dict[str, str]) -> None:
    for name, text in scripts_of(texts).items():
        for names, source in re.findall(r'import \{([^}]*)\} from "\./([^"]+)"', text):
            for one in filter(None, map(str.strip, names.split(","))):
                pattern = rf"export (?:async )?(?:function\*?|class|const) {one}\b"
                assert re.search(pattern, texts[source]), (name, one)
                assert len(re.findall(rf"\b{one}\b", text)) > 1, f"{name} does not use {one}"


def test_the_files_ask_nobody_else_and_never_read_text_as_markup(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        assert not re.search(r"https?://|//\w+\.\w", text.replace(NAMESPACE, "")), name
    risky = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc"
    for name, text in scripts_of(texts).items():
        assert not re.search(risky, text), name
    assert not re.search(r"<script>|<style| style=| on\w+=", texts["index.html"])


def test_both_languages_say_the_same(texts: dict[str, str]) -> None:
    english, chinese = (words_of(language) for language in LANGUAGES)
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert text and chinese[key], key
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", chinese[key])), key


def test_every_word_is_there_and_every_one_there_is_used(texts: dict[str, str]) -> None:
    words = words_of("en")
    marked = set(re.findall(r'data-(?:text|label|placeholder)="(\w+)"', texts["index.html"]))
    code = "\n".join(scripts_of(texts).values())
    asked = marked | set(re.findall(r'\bsay\("(\w+)"', code))
    assert asked and asked <= words.keys()
    for key in words.keys() - asked:
        quoted = rf'"{key}"' if not key.startswith("memory_") else rf'"{key.removeprefix("memory_")}"'
        assert quoted in code, f"{key} is not used"


def test_the_fields_that_the_page_reads_are_answered(server: AppServer) -> None:
    plan: dict[str, Any] = server.http.get("/v1/plan").json()
    parts = {"weight_bytes", "workspace_bytes", "blocks_bytes", "states_bytes", "checkpoints_bytes"}
    assert {*parts, "budget_bytes", "total_bytes", "max_cached_tokens"} <= plan["memory"].keys()
    assert sum(plan["memory"][part] for part in parts) == plan["memory"]["total_bytes"]
    figures = (FOLDER / "figures.js").read_text(encoding="utf-8")
    metrics = server.http.get("/metrics").text
    names = re.findall(r'"(vllm:\w+)"', figures)
    assert len(names) >= 10
    for name in names:
        assert re.search(rf"^{name}(\{{|_total| )", metrics, re.MULTILINE), name
