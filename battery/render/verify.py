"""Does a committed campaign still hold? Seal, receipts, figures, pages and charts, each recomputed and compared.

Nothing is trusted but the receipts, and those only as far as their seal goes. Every file that follows from them is
compared byte by byte; what differs inside it is looked up for the message only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from battery.analyse.findings import Findings, analysed
from battery.ledger.errors import PlanError, ReceiptError
from battery.ledger.loading import load
from battery.ledger.plan import check
from battery.ledger.store import HEADER, Campaign, ended_by_rule, pretty
from battery.render import verify_quality, verify_receipts
from battery.render.chart import Chart
from battery.render.charts import MANIFEST, draw, manifest
from battery.render.html.page import page_of
from battery.render.lint.check import lint
from battery.render.problem import Problem, limited
from battery.render.report import markdown

__all__ = ["PAGES", "Page", "Problem", "differing", "verify"]


Drawn = dict[str, tuple[Chart, bytes]]


class Page(NamedTuple):
    """A kind of page in reports/: its ending, how it is rendered, and whether every campaign has one."""

    suffix: str
    render: Callable[[Path, Findings, Drawn], str]
    """From a campaign's receipts, its findings and its charts."""
    needed: bool


def _markdown(folder: Path, findings: Findings, drawn: Drawn) -> str:
    """The Markdown page, for which findings are enough."""
    return markdown(findings)


PAGES: tuple[Page, ...] = (Page(".md", _markdown, True), Page(".html", page_of, False))
"""Every kind of page; each that is there is compared byte by byte with a new rendering."""
_ODD = (ValueError, LookupError, ArithmeticError, TypeError, RecursionError)
"""What receipts that nobody measured can make of an analysis; they come from anywhere, and do not hold then."""


def verify(root: Path, campaign: str) -> list[Problem]:
    """Everything about `campaign` under `root` that does not hold; empty when all of it does."""
    store = Campaign(root / "receipts" / campaign)
    if not store.exists:
        where = f"receipts/{campaign}"
        return [
            Problem(
                place=where,
                what="no campaign is here",
                remedy="check the name, or restore the folder",
            )
        ]
    place, restore = f"receipts/{campaign}", "restore it from version control"
    found: list[Problem] = []
    try:
        found += verify_receipts.fixed(store)
        check(store.header().plan, f"{HEADER} plan")
        loaded = load(store)  # every byte, never from an index
        findings = analysed(store, store.header(), loaded)
        found += verify_receipts.problems(store, loaded, ended_by_rule(store) or findings.asked)
        found += [
            Problem(place=where, what=what, remedy=remedy)
            for where, what, remedy in verify_quality.problems(store)
        ]
        return [*found, *_derived(findings, root, store.folder)]
    except (ReceiptError, PlanError) as broken:
        told = str(broken).replace(f"{store.folder}/", "")
    except _ODD as odd:
        told = f"no report can be made of it ({type(odd).__name__}: {odd})"
    return [*found, Problem(place=place, what=told, remedy=restore)]


def _derived(findings: Findings, root: Path, folder: Path) -> list[Problem]:
    """What follows from the receipts and is not as it would be made now: figures, pages, charts."""
    reports, name = root / "reports", folder.name
    found = _figures(findings, reports / f"{name}.json")
    drawn = draw(findings)
    for kind in PAGES:
        found += _page(findings, reports / f"{name}{kind.suffix}", kind, folder, drawn)
    return [*found, *_charts(findings, root / "charts" / name, drawn)]


def _figures(findings: Findings, path: Path) -> list[Problem]:
    """What the committed JSON says and the receipts do not, a blank included."""
    remedy = "render the report again, and find out who changed which"
    return _document(path, pretty(findings), f"reports/{path.name}", remedy)


def _document(path: Path, wanted: bytes, place: str, remedy: str) -> list[Problem]:
    """Where a JSON file is not, to the byte, the one that follows from the receipts."""
    if not path.is_file():
        return [Problem(place=place, what="there is no such file", remedy=remedy)]
    data = path.read_bytes()
    if data == wanted:
        return []
    try:
        committed = msgspec.json.decode(data)
    except msgspec.DecodeError as broken:
        return [Problem(place=place, what=f"cannot be read ({broken})", remedy=remedy)]
    found = [
        Problem(
            place=f"{place} {where}".rstrip(),
            what=f"says {_short(left)}, the receipts give {_short(right)}",
            remedy=remedy,
        )
        for where, left, right in differing(committed, msgspec.json.decode(wanted))
    ]
    return limited(found, place) or [_other_bytes(place, data, wanted, remedy)]


def _other_bytes(place: str, data: bytes, wanted: bytes, remedy: str) -> Problem:
    """A file that says the same in other bytes: spacing, order, a key twice, a number written otherwise."""
    pairs = zip_longest(data.split(b"\n"), wanted.split(b"\n"))
    line = next((number for number, (a, b) in enumerate(pairs, start=1) if a != b), 1)
    what = "its bytes are not those that the receipts give, though no figure or word differs"
    return Problem(place=f"{place}:{line}", what=what, remedy=remedy)


def differing(left: Any, right: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every path at which two documents differ in any value or type."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*right, *(key for key in left if key not in right)]:
            yield from differing(
                left.get(key, "nothing"), right.get(key, "nothing"), f"{at}.{key}".strip(".")
            )
    elif isinstance(left, list) and isinstance(right, list):
        for place, (one, other) in enumerate(zip_longest(left, right, fillvalue="nothing")):
            yield from differing(one, other, f"{at}[{place}]")
    elif type(left) is not type(right) or left != right:
        yield at, left, right


def _short(value: Any) -> str:
    """A value for a message."""
    told = msgspec.json.encode(value).decode()
    return told if len(told) <= 60 else f"{told[:57]}…"


def _page(findings: Findings, path: Path, kind: Page, folder: Path, drawn: Drawn) -> list[Problem]:
    """Lines of a committed page that are not what the findings give; of Markdown also what no report may say."""
    place, remedy = f"reports/{path.name}", "render the report again; edit its text nowhere else"
    if not path.is_file():
        missing = Problem(
            place=place, what="there is no such file", remedy="render the report and commit it"
        )
        return [missing] if kind.needed else []
    data, wanted = path.read_bytes(), kind.render(folder, findings, drawn).encode()
    if data == wanted:
        return _linted(findings, path) if kind.suffix == ".md" else []
    pairs = zip_longest(
        data.decode(errors="replace").split("\n"), wanted.decode().split("\n"), fillvalue=""
    )
    found = [
        Problem(place=f"{place}:{number}", what=_lines(left, right), remedy=remedy)
        for number, (left, right) in enumerate(pairs, start=1)
        if left != right
    ]
    return limited(found, place) or [_other_bytes(place, data, wanted, remedy)]


def _linted(findings: Findings, path: Path) -> list[Problem]:
    """What the committed page says and no report may, whatever the receipts give."""
    place = f"reports/{path.name}"
    found = [
        Problem(place=f"{place}:{one.line}", what=f"{one.rule}: {one.what}", remedy=one.remedy)
        for one in lint(path.read_text(encoding="utf-8"), findings)
    ]
    return limited(found, place)


def _lines(left: str, right: str) -> str:
    """Two texts of a line, cut to where they part."""
    start = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    begin = max(0, start - 30)
    return f"says “…{left[begin : start + 40]}…”, the receipts give “…{right[begin : start + 40]}…”"


def _charts(findings: Findings, folder: Path, made: Drawn) -> Iterator[Problem]:
    """Charts whose bytes, or whose manifest, are not what the findings give."""
    place, remedy = f"charts/{folder.name}", "render the charts again"
    for key, (_, data) in made.items():
        path = folder / f"{key}.svg"
        if not path.is_file():
            yield Problem(place=f"{place}/{path.name}", what="the chart is missing", remedy=remedy)
        elif path.read_bytes() != data:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            drawn = hashlib.sha256(data).hexdigest()
            what = f"its bytes are not what the receipts draw (sha256 {digest[:16]}…, not {drawn[:16]}…)"
            yield Problem(place=f"{place}/{path.name}", what=what, remedy=remedy)
    strays = {path.name for path in folder.glob("*.svg")} - {f"{key}.svg" for key in made}
    for name in sorted(strays):
        what = "no chart of this name is drawn"
        yield Problem(place=f"{place}/{name}", what=what, remedy="take it away")
    yield from _document(
        folder / MANIFEST, pretty(manifest(findings, made)), f"{place}/{MANIFEST}", remedy
    )
