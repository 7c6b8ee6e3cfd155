"""The Markdown of a report as HTML: its own blocks and nothing else.

What the page says is parsed from the very text of the Markdown report, so the two cannot differ. Raw HTML in it is
shown as text, but for the `<details>` that the report itself writes; a picture is shown if it is one of the
campaign's charts; a link is shown as its text. So nothing that an engine or an arm file said can bring markup,
scripts or a request into the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import msgspec
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from battery.render.html import cells
from battery.render.html.tags import Markup, escaped, joined, slug, tag
from battery.render.marks import Source, bare

_DETAILS = re.compile(r"<details><summary>([^<>]*)</summary>\s*\Z")


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One section of the page: its title, what is in it, and the titles one level below."""

    title: str
    id: str
    body: Markup
    parts: tuple[tuple[str, str], ...] = ()
    """Title and id of each part."""


class _Writer:
    """Turns the blocks of one page into HTML; sections are cut at headings of level 2."""

    def __init__(self, charts: Mapping[str, Markup], sources: Sequence[Source]) -> None:
        self.charts, self.sources = charts, sources
        self.sections: list[Section] = []
        self.title, self.body = "", list[Markup]()
        self.parts: list[tuple[str, str]] = []
        self.below, self.tables, self.depth = "", 0, 0
        self.ids: set[str] = set()

    def page(self, text: str) -> list[Section]:
        """The sections of a whole page; the first, without a title, is what stands before all others."""
        tree = SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(text))
        nodes = iter([*tree.children, None])
        node = next(nodes)
        while node is not None:
            following = next(nodes)
            chart = self.chart(node)
            if chart and following is not None and (caption := _only(following, "em")):
                told = tag("figcaption", *map(_inner, caption.children))
                self.body.append(tag("figure", chart, told))
                following = next(nodes)
            else:
                self.body.append(chart or self.block(node))
            node = following
        self._cut()
        return self.sections

    def _cut(self, title: str = "") -> None:
        """End the section at hand and begin another."""
        self.body += [Markup("</details>")] * self.depth
        name = bare(self.title)
        self.sections.append(
            Section(title=name, id=self.id(name or "verdicts"), body=joined(*self.body), parts=tuple(self.parts))
        )  # fmt: skip
        self.title, self.body, self.parts, self.depth = title, [], [], 0
        self.below, self.tables = title, 0

    def id(self, title: str) -> str:
        """An id for what has this title; no two are the same."""
        name = f"s-{slug(title)}"
        while name in self.ids:
            name += "-more"
        self.ids.add(name)
        return name

    def block(self, node: SyntaxTreeNode) -> Markup:
        """One block."""
        if node.type == "heading":
            return self.heading(node)
        if node.type == "paragraph":
            return tag("p", self.inline(node))
        if node.type in ("bullet_list", "ordered_list"):
            return self.listed(node)
        if node.type == "table":
            return self.table(node)
        if node.type in ("fence", "code_block"):
            return tag("pre", tag("code", node.content.rstrip("\n")))
        if node.type == "html_block":
            return self.raw(node.content)
        if node.type == "hr":
            return tag("hr")
        inner = joined(*(self.block(child) for child in node.children))
        return tag("blockquote", inner) if node.type == "blockquote" else inner

    def heading(self, node: SyntaxTreeNode) -> Markup:
        """A heading; the page's own title is shown above it all, and one of level 2 begins a section."""
        text = _plain(node)
        if node.tag == "h1":
            return Markup("")
        if node.tag == "h2":
            self._cut(text)
            return Markup("")
        name = self.id(bare(text))
        if node.tag == "h3":
            self.parts.append((bare(text), name))
        self.below, self.tables = text, 0
        return tag(node.tag, self.inline(node), id=name)

    def chart(self, node: SyntaxTreeNode) -> Markup | None:
        """The chart that a paragraph consists of, in a box that scrolls; None for any other block."""
        image = _only(node, "image")
        if image is None:
            return None
        drawn = self.charts.get(PurePosixPath(str(image.attrs.get("src", ""))).stem)
        return drawn and tag(
            "div", drawn, class_="scroll", tabindex=0, role="group", aria_label=f"Chart: {image.content}"
        )  # fmt: skip

    def listed(self, node: SyntaxTreeNode) -> Markup:
        """A list; that of the page's head is of verdicts."""
        head = not self.title
        items = []
        for item in node.children:
            inner = joined(
                *(
                    self.inline(child) if child.type == "paragraph" else self.block(child)
                    for child in item.children
                )
            )
            items.append(cells.card(inner, self.sources) if head else tag("li", inner))
        name = "ul" if node.type == "bullet_list" else "ol"
        return tag(name, *items, class_="verdicts" if head else None)

    def table(self, node: SyntaxTreeNode) -> Markup:
        """A table in a box of its own, which scrolls where the page is narrow; one of names and values has no order."""
        self.tables += 1
        head = [cell for row in node.children[0].children for cell in row.children]
        body = node.children[1].children if len(node.children) > 1 else []
        titles = [
            tag("th", cells.head(self.inline(cell)), scope="col", class_=cells.align(cell))
            for cell in head
        ]
        rows = [
            tag("tr", *(cells.cell(self.inline(cell), cells.align(cell), first=not place)
                        for place, cell in enumerate(row.children)))
            for row in body
        ]  # fmt: skip
        whole = tag(
            "table", tag("thead", tag("tr", *titles)), tag("tbody", *rows),
            class_="pairs" if len(head) == 2 else "sortable" if len(rows) > 1 else None,
        )  # fmt: skip
        name = f"{bare(self.below)}, table {self.tables}"
        return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=name)

    def raw(self, text: str) -> Markup:
        """The report's own details, and as text whatever else looks like HTML."""
        opened = _DETAILS.match(text)
        if opened:
            self.depth += 1
            return joined(Markup("<details>"), tag("summary", opened[1]))
        if text.strip() == "</details>" and self.depth:
            self.depth -= 1
            return Markup("</details>")
        return tag("p", text.strip())

    def inline(self, node: SyntaxTreeNode) -> Markup:
        """The text of a block, with its marks turned into what leads to receipts."""
        return cells.linked(joined(*map(_inner, node.children)), self.sources)


def _only(node: SyntaxTreeNode, kind: str) -> SyntaxTreeNode | None:
    """What a paragraph consists of, if that is one thing of this kind."""
    parts = node.children[0].children if node.type == "paragraph" and node.children else []
    return parts[0] if len(parts) == 1 and parts[0].type == kind else None


def _plain(node: SyntaxTreeNode) -> str:
    """The text of a heading without markup."""
    return "".join(child.content for child in node.walk() if child.type in ("text", "code_inline"))


def _inner(node: SyntaxTreeNode) -> Markup:
    """Text inside a block."""
    if node.type in ("text", "html_inline"):
        return escaped(node.content)
    if node.type == "code_inline":
        return tag("code", node.content)
    if node.type in ("softbreak", "hardbreak"):
        return Markup("\n")
    inner = joined(*map(_inner, node.children))
    return tag(node.type, inner) if node.type in ("strong", "em") else inner


def sections(text: str, charts: Mapping[str, Markup], sources: Sequence[Source]) -> list[Section]:
    """A report's Markdown, with marks, as the sections of a page."""
    return _Writer(charts, sources).page(text)
