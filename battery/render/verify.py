"""Does a committed campaign still hold? Seal, receipts, figures, page and charts, each recomputed and compared.

Nothing is trusted but the receipts, and those only as far as their seal goes. Every file that follows from them is
compared byte by byte; what differs inside it is looked up for the message only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from battery.analyse.findings import Findings, analysed
from battery.ledger.errors import ReceiptError
from battery.ledger.loading import Loaded, load
from battery.ledger.store import (
    SEAL,
    Campaign,
    Seal,
    check_pool,
    complete_blocks,
    ended_by_rule,
    pretty,
)
from battery.render import verify_quality
from battery.render.charts import MANIFEST, draw, manifest
from battery.render.lint.check import lint
from battery.render.report import markdown

MOST = 10
"""Differences named per file; the rest is counted."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that does not hold."""

    place: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}; {self.remedy}"


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
    try:
        loaded = load(store)  # every byte, never from an index
        findings = analysed(store, store.header(), loaded)
        found = [
            *_seal(store, loaded.chain), *_receipts(store, loaded, ended_by_rule(store) or findings.asked),
            *(Problem(place=place, what=what, remedy=how) for place, what, how in verify_quality.problems(store)),
        ]  # fmt: skip
    except ReceiptError as broken:
        return [
            Problem(
                place=f"receipts/{campaign}",
                what=str(broken),
                remedy="restore it from version control",
            )
        ]
    page = root / "reports" / f"{campaign}.md"
    return [
        *found,
        *_figures(findings, root / "reports" / f"{campaign}.json"),
        *(_page(findings, page) or _linted(findings, page)),
        *_charts(findings, root / "charts" / campaign),
    ]


def _seal(store: Campaign, now: Seal) -> Iterator[Problem]:
    """Files that are not what was sealed; `now` is the chain over them as they are."""
    where = f"receipts/{store.folder.name}"
    restore = "restore it from version control"
    sealed = store.sealed()
    if sealed is None:
        yield Problem(
            place=f"{where}/{SEAL}",
            what="the campaign is not sealed",
            remedy="finish it; the last block seals it",
        )
        return
    for name, digest in sealed.files.items():
        if name not in now.files:
            yield Problem(
                place=f"{where}/{name}", what="sealed, but the file is missing", remedy=restore
            )
        elif now.files[name] != digest:
            what = f"its bytes changed since it was sealed (sha256 {now.files[name][:16]}…, not {digest[:16]}…)"
            yield Problem(place=f"{where}/{name}", what=what, remedy=restore)
    strays = {path.name for path in store.folder.iterdir() if path.suffix in (".json", ".jsonl")}
    for name in sorted(strays - set(sealed.files) - {SEAL}):
        yield Problem(
            place=f"{where}/{name}",
            what="this file is not in the seal",
            remedy="take it away, or seal the campaign it belongs to",
        )
    if now.files == sealed.files and (store.folder / SEAL).read_bytes() != pretty(now):
        ends = f"the chain ends in {now.seal[:16]}…, not in {sealed.seal[:16]}…"
        what = ends if now.seal != sealed.seal else "it is not the seal that these files give"
        yield Problem(place=f"{where}/{SEAL}", what=what, remedy=restore)


def _receipts(store: Campaign, loaded: Loaded, blocks: int) -> Iterator[Problem]:
    """Receipts that cannot be read or pooled, and those of the first `blocks` blocks that are not whole."""
    where, header = f"receipts/{store.folder.name}", store.header()
    receipts = loaded.receipts
    for complaint in loaded.complaints.values():
        yield Problem(place=where, what=complaint, remedy="restore it from version control")
    if header.plan_digest != header.plan.digest:
        yield Problem(
            place=f"{where}/campaign.json",
            what="the plan is not the one its digest names",
            remedy="restore it from version control",
        )
    else:
        try:
            check_pool(receipts, header)
        except ReceiptError as refused:
            yield Problem(place=where, what=str(refused), remedy="keep campaigns apart")
    whole = complete_blocks(receipts, header)
    missing = [block for block in range(1, blocks + 1) if block not in whole]
    if missing:
        told = ", ".join(map(str, missing))
        yield Problem(
            place=where,
            what=f"block(s) {told} of the plan are not complete",
            remedy="run the campaign again: it goes on there",
        )


def _limited(problems: list[Problem], place: str) -> list[Problem]:
    """The first few, and how many more there are."""
    if len(problems) <= MOST:
        return problems
    more = Problem(
        place=place, what=f"{len(problems) - MOST} more differences", remedy=problems[0].remedy
    )
    return [*problems[:MOST], more]


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
    return _limited(found, place) or [_other_bytes(place, data, wanted, remedy)]


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


def _page(findings: Findings, path: Path) -> list[Problem]:
    """Lines of the committed Markdown that are not what the findings give."""
    place, remedy = f"reports/{path.name}", "render the report again; edit its text nowhere else"
    if not path.is_file():
        return [
            Problem(
                place=place, what="there is no such file", remedy="render the report and commit it"
            )
        ]
    data, wanted = path.read_bytes(), markdown(findings).encode()
    if data == wanted:
        return []
    pairs = zip_longest(
        data.decode(errors="replace").split("\n"), wanted.decode().split("\n"), fillvalue=""
    )
    found = [
        Problem(place=f"{place}:{number}", what=_lines(left, right), remedy=remedy)
        for number, (left, right) in enumerate(pairs, start=1)
        if left != right
    ]
    return _limited(found, place) or [_other_bytes(place, data, wanted, remedy)]


def _linted(findings: Findings, path: Path) -> list[Problem]:
    """What the committed page says and no report may, whatever the receipts give."""
    place = f"reports/{path.name}"
    found = [
        Problem(place=f"{place}:{one.line}", what=f"{one.rule}: {one.what}", remedy=one.remedy)
        for one in lint(path.read_text(encoding="utf-8"), findings)
    ]
    return _limited(found, place)


def _lines(left: str, right: str) -> str:
    """Two texts of a line, cut to where they part."""
    start = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    begin = max(0, start - 30)
    return f"says “…{left[begin : start + 40]}…”, the receipts give “…{right[begin : start + 40]}…”"


def _charts(findings: Findings, folder: Path) -> Iterator[Problem]:
    """Charts whose bytes, or whose manifest, are not what the findings give."""
    place, remedy = f"charts/{folder.name}", "render the charts again"
    made = draw(findings)
    for key, (_, data) in made.items():
        path = folder / f"{key}.svg"
        if not path.is_file():
            yield Problem(place=f"{place}/{path.name}", what="the chart is missing", remedy=remedy)
        elif path.read_bytes() != data:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            what = f"its bytes are not what the receipts draw (sha256 {digest[:16]}…)"
            yield Problem(place=f"{place}/{path.name}", what=what, remedy=remedy)
    strays = {path.name for path in folder.glob("*.svg")} - {f"{key}.svg" for key in made}
    for name in sorted(strays):
        what = "no chart of this name is drawn"
        yield Problem(place=f"{place}/{name}", what=what, remedy="take it away")
    yield from _document(
        folder / MANIFEST, pretty(manifest(findings, made)), f"{place}/{MANIFEST}", remedy
    )
