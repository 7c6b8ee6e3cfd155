"""The HTML page in a browser: clicks, keys, both themes, a narrow screen, paper, and what axe-core says of it.

Pictures are compared with pictures of the same run only: a committed one would depend on the fonts and the browser of
one machine. What must be the same is: a page loaded twice, and a theme chosen by hand against the system's own.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from planted_pages import campaign

from battery.analyse.findings import analyse
from battery.render.html.page import write_page

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (extra: dev)"
)
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-core is not installed (extra: dev)"
)
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")  # fmt: skip
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here (Debian: apt-get install chromium)"
)
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 780}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return campaign(tmp_path_factory.mktemp("browser"), speculates=("A", "C"))


@pytest.fixture(scope="module")
def address(folder: Path) -> str:
    return write_page(folder, analyse(folder), folder.parents[1] / "reports").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        # root may not have Chromium's own sandbox; the page is our own
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = engine.chromium.launch(executable_path=BROWSER, args=flags)
        yield opened
        opened.close()


class Watched:
    """A page with everything that it asked for and said."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.asked: list[str] = []
        self.said: list[str] = []
        self.context = browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **settings})  # fmt: skip
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(address)


@pytest.fixture
def watched(browser: Any, address: str) -> Iterator[Any]:
    """Opens pages, and holds every one against what no page may do: ask for anything, say anything, obey an engine."""
    opened: list[Watched] = []

    def open_(**settings: Any) -> Any:
        opened.append(Watched(browser, address, **settings))
        return opened[-1].page

    yield open_
    for one in opened:
        assert [url for url in one.asked if not url.startswith(("data:", address))] == []
        assert one.said == []
        assert one.page.evaluate("window.planted") is None
        one.context.close()


def column(table: Any, place: int) -> list[str]:
    return [row.locator("th, td").nth(place).inner_text() for row in table.locator("tbody tr").all()]  # fmt: skip


def number(text: str) -> float:
    found = re.match(r"[<> ]*([+−]?)([\d,.]+)", text)
    assert found, text
    return float(found[2].replace(",", "")) * (-1 if found[1] == "−" else 1)


def windows_table(page: Any) -> Any:
    return page.get_by_role("region", name="1.5 The interleaved windows, table 1").locator("table")


def test_a_table_is_sorted_by_click_both_ways_and_back(watched: Any) -> None:
    table = windows_table(watched())
    written = column(table, 3)
    known, blank = [x for x in written if x != "—"], [x for x in written if x == "—"]
    assert [number(x) for x in known] != sorted(number(x) for x in known) and blank
    head = table.locator("thead th").nth(3)
    title = head.locator("button")
    for way, wanted in (
        ("ascending", [*sorted(known, key=number), *blank]),
        ("descending", [*sorted(known, key=number, reverse=True), *blank]),
        ("none", written),
    ):
        title.click()
        assert head.get_attribute("aria-sort") == way
        assert column(table, 3) == wanted
    assert column(table, 1) == [str(place + 1) for place in range(len(written))]


def test_a_table_is_sorted_by_keys_and_what_has_no_value_stays_last(watched: Any) -> None:
    page = watched()
    page.locator("details summary").first.click()
    table = page.get_by_role("region", name=re.compile("1.3.*table 4")).locator("table")
    title = table.locator("thead th").nth(5).locator("button")
    title.focus()
    for key in ("Enter", "Space"):
        page.keyboard.press(key)
        told = column(table, 5)
        blank = [text == "—" for text in told]
        assert blank == sorted(blank) and True in blank and False in blank
    assert table.locator("thead th").nth(5).get_attribute("aria-sort") == "descending"


def test_a_figure_shows_its_receipts_when_it_is_pointed_at_or_focused(watched: Any) -> None:
    page = watched()
    tip = page.locator("#tip")
    cite = page.get_by_role("region", name="1.1 Decode by context, table 1").locator(".cite").first
    assert tip.is_hidden()
    cite.hover()
    assert re.search(r"A, decode at 128 .*12 receipts: ", tip.inner_text(), re.DOTALL)
    assert cite.get_attribute("aria-describedby") == "tip"
    page.mouse.move(2, 2)
    assert tip.is_hidden()
    page.get_by_role("region", name="1.1 Decode by context, table 1").locator("thead button").last.focus()  # fmt: skip
    page.keyboard.press("Tab")
    assert tip.is_visible() and "12 receipts" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_a_verdict_goes_down_to_blocks_seeds_and_the_very_file(watched: Any, folder: Path) -> None:
    page = watched()
    page.get_by_role("region", name="1.1 Decode by context, table 1").locator("td .cite").nth(2).click()  # fmt: skip
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("heading").inner_text() == "C against A, decode at 128 tokens of context"  # fmt: skip
    blocks = dialog.locator("details")
    assert blocks.count() == 6 and "2 seeds" in blocks.first.inner_text()
    blocks.first.locator("summary").click()
    receipt = dialog.locator("tbody .cite").first
    row = receipt.locator("xpath=ancestor::tr").inner_text()
    assert "11010" in row and "ok" in row
    receipt.click()
    told = dialog.locator(".receipt").inner_text()
    name = re.search(r"receipts/\S+/(\S+\.json)", told)
    digest = re.search(r"\b[0-9a-f]{64}\b", told)
    assert name and digest
    assert hashlib.sha256((folder / name[1]).read_bytes()).hexdigest() == digest[0]
    receipt.click()
    assert dialog.locator(".receipt").count() == 0
    page.keyboard.press("Escape")
    assert dialog.is_hidden()


def test_what_a_failed_cell_left_is_shown_as_text(watched: Any) -> None:
    page = watched()
    page.get_by_role("button", name="oom 12 of 12").first.click()
    dialog = page.get_by_role("dialog")
    dialog.locator("summary").first.click()
    dialog.locator("tbody .cite").first.click()
    told = dialog.locator("pre", has_text="]]>").inner_text()
    assert "window.planted = 1</script>" in told
    assert dialog.locator("img, script").count() == 0


def test_keys_alone_reach_a_verdict_open_it_and_come_back(watched: Any) -> None:
    page = watched()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "report"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "cite"
    width = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
    assert width >= 2, "the focus can be seen"
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert dialog.is_visible()
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    assert dialog.is_hidden()
    assert page.evaluate("document.activeElement.className") == "cite"


def test_every_stop_of_the_keyboard_can_be_seen(watched: Any) -> None:
    page = watched()
    for _ in range(60):
        page.keyboard.press("Tab")
        style = page.evaluate(
            "(() => { const e = document.activeElement; const s = getComputedStyle(e);"
            " return [e.tagName, s.outlineStyle, parseFloat(s.outlineWidth)]; })()"
        )
        assert style[1] != "none" and style[2] >= 2, style


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_theme_chosen_by_hand_looks_as_the_systems_own(watched: Any, scheme: str) -> None:
    own = watched(color_scheme=scheme)
    picture = own.screenshot()
    assert picture == watched(color_scheme=scheme).screenshot(), "loaded twice it is the same"
    other = watched(color_scheme={"light": "dark", "dark": "light"}[scheme])
    button = other.locator("#theme")
    assert button.inner_text() == "Theme: as the system"
    before = other.screenshot()
    while button.inner_text() != f"Theme: {scheme}":
        button.click()
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.battery-chart text')).fill"
    assert other.evaluate(f"[{paper}, {ink}]") == own.evaluate(f"[{paper}, {ink}]")
    own.locator("#theme").evaluate("button => button.remove()")
    button.evaluate("button => button.remove()")
    other.mouse.move(0, 0)
    assert other.screenshot() == own.screenshot() != before


def until(page: Any, expression: str) -> None:
    """Wait for what the browser does in its own time; the page's policy forbids Playwright's own way of waiting."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"five seconds later it is not so: {expression}")


def test_at_360_pixels_only_boxes_scroll_sideways(watched: Any) -> None:
    page = watched(viewport=NARROW)
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) <= 360
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate(wide) <= 360
    boxes = page.locator(".scroll[tabindex]")
    assert boxes.count() > 5
    boxes.nth(1).focus()
    fades = "getComputedStyle(document.activeElement).maskImage !== 'none'"
    assert page.evaluate(fades), "it is seen that there is more"
    page.keyboard.press("ArrowRight")
    until(page, "document.activeElement.scrollLeft > 0")
    page.evaluate("document.activeElement.scrollLeft = 9999")
    until(page, f"!({fades})")
    page.locator("td .cite").first.click()
    page.get_by_role("dialog").locator("summary").first.click()
    page.get_by_role("dialog").locator("tbody .cite").first.click()
    assert page.evaluate(wide) <= 360
    room = "[...document.querySelectorAll('dialog, dialog > *')].map(e => e.scrollWidth - e.clientWidth)"
    assert max(page.evaluate(room)) <= 1


def test_on_paper_everything_is_open_and_nothing_is_to_press(watched: Any) -> None:
    page = watched()
    page.emulate_media(media="print", color_scheme="dark")
    for gone in ("#theme", "nav", ".skip"):
        assert page.locator(gone).first.is_hidden()
    inside = page.locator("main details table").first
    assert inside.bounding_box()["height"] > 50, "open on paper without any script"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.set_viewport_size({"width": 688, "height": 1000})
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 688, "A4 between its margins"
    assert page.locator("main details:not([open])").count() == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("main details:not([open])").count() > 0
    assert page.pdf()[:5] == b"%PDF-"


def test_without_scripts_the_page_is_whole(watched: Any) -> None:
    page = watched(java_script_enabled=False)
    assert (
        page.locator("main table").count() > 15 and page.locator("main .battery-chart").count() >= 7
    )
    assert page.locator("#theme").is_hidden()
    page.locator("main summary").first.click()
    assert page.locator("main details table").first.is_visible()


def grave(page: Any) -> list[str]:
    """What axe-core finds that is serious or critical."""
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(watched: Any, scheme: str) -> None:
    page = watched(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert grave(page) == []
    page.locator("td .cite").nth(2).click()
    page.get_by_role("dialog").locator("summary").first.click()
    page.get_by_role("dialog").locator("tbody .cite").first.click()
    assert grave(page) == []
    page.keyboard.press("Escape")
    page.set_viewport_size(NARROW)
    assert grave(page) == []
