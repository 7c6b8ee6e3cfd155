"""The README's pictures of a report's page, taken in Chromium.

    python docs/pictures.py [CAMPAIGN]

Each is one PNG beside this file: the head of the page, a chart with its table in dark, and a verdict opened down to a
receipt. The page is `reports/CAMPAIGN.html` as it lies there. Fonts are those of the machine, so that the bytes differ
from one machine to another; nothing compares them. Needs `chromium` in the PATH and the extra `dev`.
"""

from __future__ import annotations

import os
import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDE = {"width": 1280, "height": 860}
COLOURS = 192
"""Of a picture's palette: text on one paper needs no more, and the file is a third as large."""


def head(page: Any) -> None:
    """The verdicts, as the page opens."""


def decode(page: Any) -> None:
    """The chart of decode speed with the table below it, as far as the window goes."""
    page.get_by_role("heading", name="1.1 Decode by context").evaluate(
        "one => one.scrollIntoView()"
    )


def receipts(page: Any) -> None:
    """The first ratio of the first table, its second block, and a receipt of it."""
    table = page.get_by_role("region", name="1.1 Decode by context, table 1")
    ratio = table.locator("td .cite", has_text="%").first
    ratio.scroll_into_view_if_needed()
    ratio.click()
    dialog = page.get_by_role("dialog")
    dialog.locator("summary").nth(1).click()
    dialog.locator("tbody .cite").first.click()


SHOTS = (("page", "light", head), ("decode", "dark", decode), ("receipts", "light", receipts))
"""Name, theme, and the way there."""


def take(campaign: str, out: Path) -> list[Path]:
    """Every picture of the campaign's page; the paths written."""
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        raise SystemExit("no Chromium here; on Debian: apt-get install chromium")
    source = HERE.parent / "reports" / f"{campaign}.html"
    if not source.is_file():
        raise SystemExit(f"{source} is not there; make it: battery report {campaign}")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    written = []
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=flags)
        for name, scheme, go in SHOTS:
            page = browser.new_page(viewport=WIDE, color_scheme=scheme, reduced_motion="reduce")
            page.goto(source.as_uri())
            go(page)
            picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
            written.append(out / f"{name}.png")
            picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(written[-1], optimize=True)
            page.close()
        browser.close()
    return written


if __name__ == "__main__":
    for path in take(sys.argv[1] if len(sys.argv) > 1 else "quality-cpu", HERE):
        print(f"{path.relative_to(HERE.parent)}: {path.stat().st_size:,} bytes")
