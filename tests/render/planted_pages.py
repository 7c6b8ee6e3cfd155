"""A campaign whose engine, arms and machine say everything that a page must not obey, and a reader of HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
from synthetic import World, build, fails

from battery.ledger.receipt import Receipt

SCRIPT = "<script>window.planted = 1</script>"
LOG = f"]]> --> </script></style></textarea>{SCRIPT}<img src=x onerror=window.planted=1> \u2028 'quoted\" & more"
REASON = f"{SCRIPT} | \ue0000\ue001forged\ue002 ![x](https://example.org/x.png) [go](javascript:window.planted=1)"
FAST: dict[str, Any] = {"effect": {"C": 1.05}, "blocks": 6, "seeds": 2}
VOID = {"meta", "link", "br", "hr", "img", "input"}


def change(receipt: Receipt) -> Receipt:
    """The control fails at the long context, with markup wherever an engine can put text."""
    told = msgspec.structs.replace(
        receipt, model={"name": f"small {SCRIPT}", "digest": "d" * 64}, versions={"engine": {"mlx": LOG}}
    )  # fmt: skip
    return fails(
        "oom", lambda one: (one.cell.arm, one.cell.rung) == ("A", 384), REASON, log_tail=LOG, exit_status=-9
    )(told)  # fmt: skip


def campaign(root: Path, name: str = "2026-01-02-test", **changes: Any) -> Path:
    """The folder of such a campaign."""
    return build(root, World(**{**FAST, "change": change, **changes}), name)


class Page(HTMLParser):
    """A page as its elements, tables and text; it complains about what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.scripts: list[str] = []
        self.headings: list[int] = []
        self.prose: list[str] = []
        self.stack: list[str] = []
        self.faults: list[str] = []
        self.feed(text)
        self.close()
        self.faults += [f"{name} is not closed" for name in self.stack]

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attrs)))
        if name == "table":
            self.tables.append([])
        elif name == "tr":
            self.tables[-1].append([])
        elif name in ("td", "th"):
            self.tables[-1][-1].append("")
        elif name == "script":
            self.scripts.append("")
        elif name in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(name[1]))
        if name not in VOID:
            self.stack.append(name)

    def handle_startendtag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attrs)))

    def handle_endtag(self, name: str) -> None:
        if not self.stack or self.stack[-1] != name:
            self.faults.append(f"{name} closes {self.stack[-1:]}")
        else:
            self.stack.pop()

    def handle_data(self, data: str) -> None:
        if "script" in self.stack:
            self.scripts[-1] += data
        elif "td" in self.stack or "th" in self.stack:
            self.tables[-1][-1][-1] += data
        elif "style" not in self.stack:
            self.prose.append(data)
