"""Tests of the page of a test run in a real browser, opened from file://: keyboard, search, playback, hostile content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.report import page, player

from .browser import CHROMIUM, Browser, Page
from .builder import CAPTURE, LIST, Run, command, record

pytestmark = [
    pytest.mark.skipif(not os.path.exists(CHROMIUM), reason="there is no /usr/bin/chromium: apt-get install chromium"),
    pytest.mark.skipif(not player.find(), reason=f"there is no player: {player.INSTALL}"),
]
MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(2)><b>bold</b>"
NASTY = f"{MARKUP}\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("chromium"))
    yield started
    started.end()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = Run(tmp_path_factory.mktemp("report") / "a run with spaces & #signs")
    run.test("test_list", rows=command(1, 0.1, "muster list", out="\x1b[32mhello\x1b[0m\n"), blocks=[LIST])
    run.test(
        "test_list_unhappy", "failed", rows=command(1, 0, "muster list --bad", code=2), blocks=[LIST], message="E oh"
    )
    rows = [
        *command(1, 0.1, "muster create hello", comment="Make one."),
        {"t": 1.0, "kind": "recording", "recording": "connect-hello", "text": "muster connect hello"},
        *command(2, 4.0, "muster message hello -m hi", out="it took it\n", err="a word\n", code=7),
        {"t": 99.0, "kind": "note", "text": "long after the recording"},
    ]
    folder = run.test("test_capture", rows=rows, blocks=[CAPTURE], recordings=["connect-hello", "lost"])
    events = [[n / 4, "o", f"tick {n}\r\n"] for n in range(41)]
    record(folder, "connect-hello", [*events, [0, "o", ""]], "tick 39\ntick 40\n", cols=40, rows=8)
    nasty = [
        *command(1, 0, NASTY, out=f"{NASTY}\n", err=f"{NASTY}\n", comment=NASTY),
        {"t": 1, "kind": "out", "n": 1, "text": f"{NASTY}{'x' * 50_000_000}\n"},
        {"t": 2, "kind": "recording", "recording": "nasty", "text": NASTY},
    ]
    folder = run.test("test_nasty <img src=x onerror=alert(3)>", "error", rows=nasty, blocks=[NASTY], message=NASTY)
    record(folder, "nasty", [[0, "o", NASTY], [0.5, "o", "the end"]], NASTY, command=NASTY)
    run.test("test_without_block", "skipped")
    return page.build(run.folder)


@pytest.fixture
def shown(browser: Browser, report: Path) -> Iterator[Page]:
    opened = browser.page()
    opened.size(1440, 900)
    opened.open(report.as_uri())
    yield opened
    assert opened.complaints() == []
    assert [url for url in opened.requests() if not url.startswith(report.parent.as_uri() + "/")] == []
    assert opened.dialogs() == []
    opened.close()


def names(shown: Page) -> list[str]:
    query = "[...document.querySelectorAll('.test')].filter((e) => e.offsetParent).map((e) => e.querySelector('.name').textContent)"
    found: list[str] = shown.get(query)
    return found


def ready(shown: Page) -> None:
    shown.wait("document.querySelector('#detail .rows')")


def test_the_page_opens_with_the_tutorial_and_its_tests(shown: Page) -> None:
    assert "2 of 4 blocks covered" in shown.text("#facts")
    assert "2 of 5 need a look" in shown.text("#facts")
    assert shown.count(".block.untested .none") == 2
    first = "document.querySelector('.block:not(.prose)')"
    assert shown.get(f"{first}.querySelector('.text').innerText").startswith("See who is there.")
    assert shown.get(f"{first}.querySelectorAll('.test').length") == 2


def test_search_finds_names_blocks_and_commands_and_counts(shown: Page) -> None:
    shown.key("/")
    shown.type("unhappy")
    assert names(shown) == ["test_list_unhappy"]
    assert shown.text("#count") == "1 of 5 tests"
    shown.key("Escape")
    shown.type("without touching")
    assert names(shown) == ["test_capture"]
    shown.key("Escape")
    shown.type("create HELLO")
    assert names(shown) == ["test_capture"]
    assert "q=create+HELLO" in shown.get("location.hash")
    shown.key("Escape")
    shown.type("nothing like this")
    assert "No test matches" in shown.text("#nothing")
    shown.click("#clear")
    assert shown.text("#count") == "5 tests"


def test_filters_are_kept_in_the_url(shown: Page, report: Path) -> None:
    shown.click('[data-outcome="failed"]')
    assert names(shown) == ["test_list_unhappy"]
    shown.click('[data-outcome="passed"]')
    assert len(names(shown)) == 3
    shown.get(
        "(() => { const s = document.querySelector('#section'); s.value = '1'; s.dispatchEvent(new Event('change')); })()"
    )
    address = shown.get("location.href")
    shown.open("about:blank")
    shown.open(address)
    assert len(names(shown)) == 3
    assert shown.get("document.querySelector('[data-outcome=failed]').getAttribute('aria-pressed')") == "true"
    shown.click("#clear")
    shown.click('[data-outcome="untested"]')
    assert (names(shown), shown.count(".block.untested")) == ([], 2)
    shown.click("#clear")
    shown.get(
        "(() => { const s = document.querySelector('#order'); s.value = 'failed'; s.dispatchEvent(new Event('change')); })()"
    )
    assert names(shown)[0].startswith("test_list_unhappy")


def test_everything_can_be_done_with_the_keyboard(shown: Page) -> None:
    shown.key("j", "j", "k", "j")
    assert shown.get("document.activeElement.classList.contains('test')")
    shown.key("Enter")
    ready(shown)
    assert "test_list_unhappy" in shown.text("#detail h2")
    assert "test=test_list_unhappy-" in shown.get("location.hash")
    assert shown.get("document.activeElement === document.querySelector('#detail h2')")
    shown.key("j")
    shown.wait("document.querySelector('#detail h2').innerText.includes('test_capture')")
    shown.key("Escape")
    assert shown.count("#detail") == 0
    assert "test_capture" in shown.get("document.activeElement.innerText")
    shown.key("ArrowUp", "Enter")
    shown.wait("document.querySelector('#detail h2').innerText.includes('test_list_unhappy')")
    shown.key("Escape", "?")
    assert shown.get("document.querySelector('#keys').open")
    shown.key("Escape")
    shown.wait("!document.querySelector('#keys').open")
    shown.key("f")
    assert len(names(shown)) == 2
    shown.key("f", "v")
    assert shown.get("document.querySelector('#list').className") == "tests"


def test_a_url_opens_a_test_and_going_back_closes_it(shown: Page, report: Path) -> None:
    shown.click(".test")
    ready(shown)
    address = shown.get("location.href")
    shown.get("history.back()")
    shown.wait("document.querySelector('#detail').hidden")
    shown.open("about:blank")
    shown.open(address)
    ready(shown)
    assert shown.text("#detail h2") == "test_list"
    assert shown.text("#detail .rows .f2").strip() == "hello"


def open_capture(shown: Page) -> None:
    shown.key("/")
    shown.type("test_capture")
    shown.key("Enter", "Enter")
    ready(shown)


def test_a_recording_can_be_played(shown: Page) -> None:
    open_capture(shown)
    assert "tick 40" in shown.text(".still")
    assert "the recording is missing or cannot be read" in shown.text(".film .problem")
    shown.click("figure .play")
    shown.wait("document.querySelector('.ap-term')?.textContent.includes('tick 2')")
    before = shown.get("document.querySelector('.ap-time-elapsed, .ap-timer').textContent")
    shown.wait(f"document.querySelector('.ap-time-elapsed, .ap-timer').textContent !== {before!r}")
    shown.click("figure .quiet")
    assert "tick 40" in shown.text(".still")


def test_the_length_of_a_very_short_recording_is_not_shown_as_zero(shown: Page) -> None:
    said = shown.get("[0, 0.004, 0.42, 1, 61.5, 3600].map(clock).join('|')")
    assert said == "< 0.01 s|< 0.01 s|0.42 s|0:01|1:01|60:00"


def test_clicking_a_row_of_the_transcript_seeks_the_recording(shown: Page) -> None:
    open_capture(shown)
    times = shown.get(
        "[...document.querySelectorAll('.row')].map((e) => [e.className, e.querySelector('button.at') !== null])"
    )
    assert [seekable for name, seekable in times if "k-recording" in name] == [True]
    assert [seekable for name, seekable in times if "k-comment" in name or "k-note" in name] == [False, False]
    assert "exit 7" in shown.text(".rows .badge") and shown.text(".k-err pre").strip() == "a word"
    shown.click(".k-err button.at")
    # The row is at 4.1 s and the recording began at 1.0 s: tick 12 came at 3.0 s, tick 13 at 3.25 s.
    shown.wait("document.querySelector('.ap-term')?.textContent.includes('tick 12')")
    assert "tick 13" not in shown.get("document.querySelector('.ap-term').textContent")
    shown.wait("document.querySelector('.row.now')?.classList.contains('k-err')")
    shown.click(".k-recording .play")
    shown.wait("!document.querySelector('.ap-term').textContent.includes('tick 12')")


def test_hostile_output_is_shown_as_text(shown: Page) -> None:
    title = shown.get("document.title")
    shown.key("/")
    shown.type("nasty")
    shown.key("Enter", "Enter")
    ready(shown)
    assert MARKUP in shown.get("document.querySelector('.k-out pre').textContent")
    assert MARKUP in shown.get("document.querySelector('.k-command pre').textContent")
    assert "onerror=alert(3)" in shown.text("#detail h2")
    assert "more characters" in shown.get("document.querySelector('.rows').textContent")
    shown.click("figure .play")
    shown.wait("document.querySelector('.ap-term')?.textContent.includes('the end')")
    assert shown.get("document.querySelectorAll('img, iframe, object, embed, form:not(#keys form)').length") == 0
    assert shown.get("document.querySelectorAll('.rows b, .rows script, main b, main script').length") == 0
    assert shown.get("document.querySelectorAll('script').length") == 2
    assert shown.get("document.title") == title


def test_the_content_security_policy_blocks_inline_code(browser: Browser, report: Path) -> None:
    opened = browser.page(report.as_uri())
    opened.get(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1'; document.head.append(s); })()"
    )
    opened.get("document.body.setAttribute('onclick', 'window.bad = 2'); document.body.click()")
    opened.get("(() => { const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i); })()")
    assert opened.get("window.bad ?? 0") == 0
    opened.until(lambda: len(opened.complaints()) >= 3)
    assert not [event for event in opened.events("Network.responseReceived") if "127.0.0.1" in event["response"]["url"]]
    opened.close()


def test_the_theme_follows_the_system_and_the_button(shown: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    shown.scheme("light")
    light = shown.get(ground)
    shown.scheme("dark")
    dark = shown.get(ground)
    assert light != dark
    shown.key("t")
    assert shown.get(ground) == light
    shown.click("#theme")
    assert shown.get(ground) == dark
    shown.get("localStorage.clear()")


def test_nothing_overflows_a_narrow_screen(shown: Page) -> None:
    shown.size(360, 740)
    assert shown.get("document.documentElement.scrollWidth") == 360
    shown.click(".test")
    ready(shown)
    assert shown.get("document.querySelector('#detail').getBoundingClientRect().width") == 360
    assert shown.get("document.querySelector('#detail').scrollWidth") == 360
    shown.click("#detail .close")
    assert shown.count("#detail") == 0


def test_without_the_player_the_last_screen_and_an_install_hint_are_shown(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "PACKAGE", "no_such_package_anywhere")
    run = Run(tmp_path / "e2e", tutorial=None)
    record(run.test("test_a", recordings=["one"]), "one", [[0, "o", "x"]], "the last screen")
    opened = browser.page(page.build(run.folder).as_uri())
    opened.click(".test")
    ready(opened)
    assert opened.text(".still") == "the last screen"
    assert "pip install 'muster-agents[report]'" in opened.text(".screen")
    assert opened.count(".play") == 0 and opened.complaints() == []
    opened.close()


def test_an_empty_run_has_a_page(browser: Browser, tmp_path: Path) -> None:
    opened = browser.page(page.build(Run(tmp_path / "e2e", tutorial=None).folder).as_uri())
    assert "No tests" in opened.text("#facts") and "There are no tests in this run." in opened.text("#list")
    assert opened.complaints() == []
    opened.close()


def test_a_thousand_tests_are_shown_without_delay(browser: Browser, tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    for n in range(1000):
        run.test(f"test_{n:04}", rows=command(1, 0, f"muster run {n}"), blocks=[LIST])
    opened = browser.page(page.build(run.folder).as_uri())
    opened.key("/")
    opened.type("run 77")
    assert opened.text("#count") == "19 of 1,000 tests"
    spent = opened.get(
        "(() => { const t = performance.now(); document.querySelector('#clear').click(); return performance.now() - t; })()"
    )
    assert spent < 1000
    opened.close()
