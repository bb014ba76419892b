"""The page in a real browser: run by scripts/check-web, which installs Playwright and the distribution's Chromium."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from qanat.config.engine_config import ServerOptions
from tests.support.app_server import AppServer, serving

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="the distribution's Chromium is not installed"),
]

CLOSE = "</think>"
MARKUP = "<img src=x onerror=alert(1)>"
ANSWER = [
    "Let me ",
    "think.",
    CLOSE,
    "\n\n",
    "Here is ",
    "**bo",
    "ld**",
    ":\n\n",
    "- one\n",
    "- two `",
    "code`\n\n",
]
ANSWER += ["```py\n", "a = 1\n", "```\n\n", MARKUP, " 中", "文"]
CALL = "\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n"
TOOLS = '[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]'

expect: Any = playwright.expect
PATIENCE_MS = 120_000  # a busy machine is no fault of the page
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    arguments = ["--disable-dev-shm-usage"]  # containers have little of it, and Chromium dies when it is full
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=PATIENCE_MS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def long_server() -> Iterator[AppServer]:
    with serving(max_model_len=100_000) as running:
        yield running
        running.wait_until_idle()


class Visit:
    """One browser window at the page; notes what goes wrong in it and whom it asks."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        context = browser.new_context(**{"locale": "en-US", **options})
        context.set_default_timeout(PATIENCE_MS)
        self.page = context.new_page()
        self.faults: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.page.goto(url)

    def _note(self, message: Any) -> None:
        if message.type == "error" and "401" not in message.text:
            self.faults.append(message.text)

    def ask(self, text: str) -> None:
        self.page.fill("#input", text)
        self.page.press("#input", "Enter")

    def wait_for_answer(self) -> Any:
        expect(self.page.locator("#status")).to_have_text(re.compile("complete|回答完毕"))
        return self.page.locator(".message.assistant").last

    def close(self, url: str) -> None:
        """Checks that nothing went wrong and that only the server was asked."""
        assert self.faults == []
        assert self.hosts == {url.removeprefix("http://")}
        self.page.context.close()


def test_an_answer_streams_and_stays_text(browser: Any, server: AppServer) -> None:
    server.say(ANSWER)
    visit = Visit(browser, server.url)
    visit.ask("Show me")
    answer = visit.wait_for_answer()
    shown = answer.locator(".markdown").last
    expect(shown.locator("strong")).to_have_text("bold")
    expect(shown.locator("li")).to_have_text(["one", "two code"])
    expect(shown.locator("pre")).to_have_text("a = 1")
    expect(shown).to_contain_text(f"{MARKUP} 中文")
    assert shown.locator("img").count() == 0
    thoughts = answer.locator(".thinking")
    assert thoughts.get_attribute("open") is None
    expect(thoughts.locator(".markdown")).to_have_text("Let me think.")
    shown.locator("strong .token").first.hover()
    expect(visit.page.locator("#tooltip")).to_contain_text("%")
    expect(visit.page.locator("#tooltip .chosen")).to_contain_text("**bo")
    visit.page.reload()
    visit.page.locator("#conversation-list .title").first.click()
    expect(visit.page.locator(".message.assistant strong")).to_have_text("bold")
    visit.close(server.url)


def test_escape_stops_and_a_question_can_be_edited_and_asked_again(
    browser: Any, long_server: AppServer
) -> None:
    long_server.say([CLOSE, *["word "] * 60_000])
    long_server.in_loop(lambda: long_server.scripted.client.release(20))  # and it waits to be stopped
    visit = Visit(browser, long_server.url)
    visit.ask("Endless")
    expect(visit.page.locator(".message.assistant .markdown").last).to_contain_text("word")
    visit.page.keyboard.press("Escape")
    expect(visit.page.locator(".facts")).to_contain_text("stopped")
    long_server.in_loop(long_server.scripted.client.release)
    long_server.wait_until_idle()
    long_server.say([CLOSE, "short"])
    visit.page.get_by_role("button", name="Edit").click()
    visit.page.get_by_label("Edit").fill("Briefly")
    visit.page.keyboard.press("Enter")
    expect(visit.wait_for_answer().locator(".markdown").last).to_have_text("short")
    expect(visit.page.locator(".message.user .body")).to_have_text("Briefly")
    long_server.say([CLOSE, "again"])
    visit.page.get_by_role("button", name="Retry").click()
    expect(visit.page.locator(".message.assistant .markdown").last).to_have_text("again")
    visit.close(long_server.url)


def test_tool_calls_are_shown_and_answered(browser: Any, server: AppServer) -> None:
    server.say([CLOSE, "<tool_call>", CALL, "</tool_call>"])
    visit = Visit(browser, server.url)
    visit.page.fill("#tools", TOOLS)
    visit.ask("Is it raining?")
    answer = visit.wait_for_answer()
    expect(answer.locator(".call summary")).to_have_text("Calls weather")
    expect(answer.locator(".call code")).to_contain_text('"city": "Oslo"')
    server.say([CLOSE, "It rains."])
    visit.page.locator(".results textarea").fill("rain")
    visit.page.get_by_role("button", name="Send results").click()
    expect(visit.page.locator(".message.assistant").last.locator(".markdown").last).to_have_text("It rains.")
    visit.close(server.url)


def test_a_key_is_asked_for_and_kept_for_the_tab_only(browser: Any) -> None:
    with serving(ServerOptions(api_key=("secret-key",))) as locked:
        visit = Visit(browser, locked.url)
        expect(visit.page.locator("#status")).to_contain_text("API key")
        visit.page.fill("#api-key", "secret-key")
        visit.page.press("#api-key", "Tab")
        expect(visit.page.locator("#model option").first).to_be_attached()
        locked.say([CLOSE, "ok"])
        visit.ask("hi")
        visit.wait_for_answer()
        kept = visit.page.evaluate("JSON.stringify(localStorage)")
        assert "secret-key" not in kept and "hi" in kept
        assert "secret-key" in visit.page.evaluate("JSON.stringify(sessionStorage)")
        visit.close(locked.url)


@pytest.mark.parametrize(("locale", "scheme", "width"), [("zh-CN", "dark", 1280), ("en-US", "light", 380)])
def test_the_live_view_shows_the_servers_figures(
    browser: Any, server: AppServer, locale: str, scheme: str, width: int
) -> None:
    server.say([CLOSE, "ok"])
    size = {"width": width, "height": 800}
    visit = Visit(browser, server.url, locale=locale, color_scheme=scheme, viewport=size)
    visit.ask("hi")
    visit.wait_for_answer()
    visit.page.locator("#tab-dashboard").click()
    expect(visit.page.locator("#tiles .value").first).to_have_text("0")
    expect(visit.page.locator("#charts svg")).to_have_count(6)
    expect(visit.page.locator("#waterfall .rows .title").first).to_have_text("hi")
    expect(visit.page.locator("#memory-map .map rect").nth(1)).to_be_attached()
    assert visit.page.evaluate("document.documentElement.lang") == {"zh-CN": "zh-CN", "en-US": "en"}[locale]
    assert visit.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(19, 24, 24)") == (scheme == "dark")
    visit.page.select_option("#language", "zh")
    expect(visit.page.locator("#tab-chat")).to_have_text("对话")
    visit.close(server.url)


def test_the_requests_of_others_are_shown_without_their_words(browser: Any, server: AppServer) -> None:
    server.say([CLOSE, "ok"])
    headers = {"X-Request-Id": "somebody-else-1"}
    body = {"messages": [{"role": "user", "content": "their secret"}]}
    server.http.post("/v1/chat/completions", json=body, headers=headers).raise_for_status()
    visit = Visit(browser, server.url)
    visit.ask("my question")
    visit.wait_for_answer()
    visit.page.locator("#tab-dashboard").click()
    expect(visit.page.locator("#waterfall .rows .title").nth(0)).to_have_text("my question")
    expect(visit.page.locator("#waterfall .rows .title").nth(1)).to_have_text("somebody")
    assert "secret" not in visit.page.content()
    visit.close(server.url)


def test_without_an_admin_key_the_page_shows_its_own_requests(browser: Any) -> None:
    with serving(ServerOptions(admin_api_key=("boss",))) as guarded:
        guarded.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}).raise_for_status()
        visit = Visit(browser, guarded.url)
        visit.page.locator("#tab-dashboard").click()
        expect(visit.page.locator("#waterfall .hint")).to_contain_text("with an admin key")
        expect(visit.page.locator("#waterfall .rows li")).to_have_count(0)
        visit.page.locator("#tab-chat").click()
        visit.page.fill("#api-key", "boss")
        visit.page.press("#api-key", "Tab")
        visit.page.locator("#tab-dashboard").click()
        expect(visit.page.locator("#waterfall .rows li")).to_have_count(1)
        visit.close(guarded.url)


def test_in_a_narrow_window_panels_take_the_keyboard_and_give_it_back(
    browser: Any, server: AppServer
) -> None:
    visit = Visit(browser, server.url, viewport={"width": 390, "height": 800})
    opener = visit.page.locator("#toggle-settings")
    expect(opener).to_have_attribute("aria-expanded", "false")
    opener.focus()
    visit.page.keyboard.press("Enter")
    expect(opener).to_have_attribute("aria-expanded", "true")
    expect(visit.page.locator("#settings-panel")).to_be_focused()
    visit.page.keyboard.press("Tab")
    expect(visit.page.locator("#api-key")).to_be_focused()
    visit.page.keyboard.press("Escape")
    expect(opener).to_be_focused()
    expect(opener).to_have_attribute("aria-expanded", "false")
    assert visit.page.evaluate("document.querySelector('.top').clientHeight < 60")
    visit.close(server.url)


def test_two_tabs_keep_each_others_conversations(browser: Any, server: AppServer) -> None:
    server.say([CLOSE, "ok"])
    visit = Visit(browser, server.url)
    other = visit.page.context.new_page()
    other.goto(server.url)
    for page, text in ((visit.page, "first"), (other, "second"), (visit.page, "third")):
        page.locator("#new-conversation").click()
        page.fill("#input", text)
        page.press("#input", "Enter")
        expect(page.locator("#status")).to_have_text("Answer complete.")
    titles = visit.page.locator("#conversation-list .title")
    expect(titles).to_have_text(["third", "second", "first"])
    visit.page.get_by_role("button", name="Delete “second”").click()
    expect(titles).to_have_text(["third", "first"])
    visit.page.reload()
    expect(titles).to_have_text(["third", "first"])
    visit.close(server.url)
