"""Findings and receipts to `reports/<campaign>.html`: one file that opens anywhere and asks for nothing else.

The text is that of the Markdown report, from the same functions (`report.markdown`); the charts are the same drawings.
What the page adds is the way down: from a figure to its blocks, seeds and receipts. The same receipts give the same
bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from battery.analyse.exhibits import Exhibit, exhibits
from battery.analyse.findings import Findings
from battery.ledger.disk import inside, replace
from battery.render import words
from battery.render.chart import Chart
from battery.render.charts import draw
from battery.render.html import data
from battery.render.html.blocks import Section, sections
from battery.render.html.pictures import colours, inline
from battery.render.html.tags import Markup, joined, tag
from battery.render.marks import citing, harmless
from battery.render.report import markdown

Drawn = Mapping[str, tuple[Chart, bytes]]


def write_page(
    folder: Path, findings: Findings, reports_dir: Path, drawn: Drawn | None = None
) -> Path:
    """Write the page of the campaign in `folder`; its path. `drawn` are its charts, where they were drawn already."""
    reports_dir.mkdir(parents=True, exist_ok=True)
    path = inside(reports_dir, f"{findings.campaign}.html")
    replace(path, page_of(folder, findings, drawn).encode())
    return path


def page_of(folder: Path, findings: Findings, drawn: Drawn | None = None) -> str:
    """The page of the campaign in `folder`; its receipts are not read where they are too many to show."""
    few = findings.receipts <= data.MOST_RECEIPTS
    return page(
        findings, exhibits(folder) if few else None, draw(findings) if drawn is None else drawn
    )


def page(findings: Findings, receipts: Sequence[Exhibit] | None, drawn: Drawn) -> str:
    """The whole page; without `receipts` a click goes down to blocks and windows only."""
    told = _harmless(findings)
    with citing() as numbered:
        text = markdown(told)
    sources = tuple(numbered)
    charts = {key: inline(key, svg) for key, (_, svg) in drawn.items()}
    parts = sections(text, charts, sources)
    style = f"{colours()}\n{_file('page.css')}"
    script = _file("page.js")
    body = tag(
        "body",
        tag("a", "Skip to the report", class_="skip", href="#report"),
        _header(told), _contents(parts),
        tag("main", *(_section(part) for part in parts), _missing(told, receipts), id="report", tabindex=-1),
        _dialog(), tag("div", id="tip", role="tooltip", hidden=True),
        tag("script", data.block(told, receipts, sources), type="application/json", id="data"),
        tag("script", Markup(script)),
    )  # fmt: skip
    head = tag("head", *_meta(findings.campaign, script), tag("style", Markup(style)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _harmless(findings: Findings) -> Findings:
    """Findings in which no text looks like one of our marks."""
    text = msgspec.json.encode(findings).decode()
    told = harmless(text)
    return findings if told == text else msgspec.json.decode(told, type=Findings, strict=False)


def _file(name: str) -> str:
    """A file of this folder, which travels with the package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _meta(campaign: str, script: str) -> list[Markup]:
    """Title, scale, and a policy by which the browser itself refuses any request and any script but the page's own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )
    return [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{campaign}: measured evidence"),
        Markup('<link rel="icon" href="data:,">'),
    ]


def _header(findings: Findings) -> Markup:
    """The campaign's name, what it is about, and what it rests on in one line."""
    facts = [
        ("arms", ", ".join(arm.arm.name for arm in findings.arms)),
        ("blocks", f"{findings.blocks_complete} of {findings.asked}"),
        ("receipts", f"{findings.receipts:,}"),
        ("machine", str(findings.machine.get("cpu") or "not told")),
        ("seal", findings.seal[:16] if findings.seal else "none"),
    ]
    listed = (joined(tag("dt", name), tag("dd", value)) for name, value in facts)
    about = ": ".join(part for part in (f"Plan {findings.plan.name}", findings.plan.why) if part)
    theme = tag("button", "Theme: as the system", type="button", id="theme", hidden=True)
    return tag(
        "header", tag("div", tag("h1", findings.campaign), theme, class_="bar"), tag("p", about),
        tag("dl", *(tag("div", one) for one in listed), class_="facts"),
    )  # fmt: skip


def _contents(parts: Sequence[Section]) -> Markup:
    """The sections with what is in them, to go to."""
    items = [
        tag(
            "li", tag("a", part.title or "Verdicts", href=f"#{part.id}"),
            tag("ol", *(tag("li", tag("a", title, href=f"#{name}")) for title, name in part.parts))
            if part.parts else "",
        )
        for part in parts
    ]  # fmt: skip
    return tag("nav", tag("ol", *items), aria_label="Sections")


def _section(part: Section) -> Markup:
    """One section under its title."""
    return tag(
        "section", tag("h2", part.title or "Verdicts"), part.body, id=part.id,
        class_=None if part.title else "head",
    )  # fmt: skip


def _missing(findings: Findings, receipts: Sequence[Exhibit] | None) -> Markup:
    """Where the receipts are that the page does not carry."""
    if receipts is not None:
        return Markup("")
    told = (
        f"The {findings.receipts:,} receipts are too many for one page: it carries blocks and windows. Each receipt is"
        f" a file in receipts/{findings.campaign}."
    )
    return tag("p", words.titled(told), class_="note")


def _dialog() -> Markup:
    """Where receipts are shown; the script fills it."""
    head = tag(
        "div", tag("h2", "Receipts", id="dialog-title"), tag("button", "Close", type="button", id="close"),
        class_="bar",
    )  # fmt: skip
    return tag("dialog", head, tag("div", id="dialog-body"), id="dialog", aria_labelledby="dialog-title")  # fmt: skip
