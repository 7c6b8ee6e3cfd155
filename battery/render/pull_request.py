"""The evidence of a campaign as the body of a pull request: verdicts first, then the report's sections, folded.

Its blocks are those of the Markdown report, word for word; only where charts lie is told anew. GitHub takes 65,536
characters and this keeps below 60,000, so that an author has room for what the change is about. What does not fit is
left out section by section in a fixed order, least needed first, and named.
"""

from __future__ import annotations

import re

from battery.analyse.findings import Findings
from battery.ledger.errors import InputError
from battery.render.report import OTHER_METHODS, sections

LIMIT = 60_000
"""Characters, at most."""
METHODS = "methods"
ORDER = (METHODS, "1.5", "1.6", "2", "1.4", "3")
"""What is left out first to last: the estimates by other methods, which no verdict uses, then sections by number."""
_HEADING = re.compile(r"#+ (?P<number>[\d.]*\d)\.? (?P<title>.+)\n+")
_OTHER = re.compile(re.escape(OTHER_METHODS) + r".*?(?=</details>)", re.S)
_NO_BASE = re.compile(r"[\s()<>\"'`]")


def body(findings: Findings, base: str = ".", limit: int = LIMIT) -> str:
    """The whole text, at most `limit` characters; InputError where not even the verdicts' own sections fit.

    `base` is where the folder charts/ lies: a path from where the text will stand, or an address that serves the files
    of a branch.
    """
    if not base or _NO_BASE.search(base):
        raise InputError(
            f"--base {base!r}: give a path or an address without blanks, quotes and brackets"
        )
    head, *folded, again = sections(findings)
    dropped: list[str] = []
    for drop in (*ORDER, None):
        text = _text(findings, head, folded, again, dropped).replace(
            "](../charts/", f"]({base.rstrip('/')}/charts/"
        )
        if len(text) <= limit:
            return text
        if drop is not None:
            folded = _without(folded, drop, dropped)
    raise InputError(
        f"{findings.campaign}: verdicts, results, quality and validity alone have {len(text):,} characters, more than"
        f" {limit:,}; paste the verdict lines and link reports/{findings.campaign}.md"
    )


def _text(
    findings: Findings, head: str, folded: list[str], again: str, dropped: list[str]
) -> str:  # fmt: skip
    """Everything, with what was left out."""
    parts = [head, "## The evidence, section by section"]
    parts += [_folded(section, first=place == 0) for place, section in enumerate(folded)]
    if dropped:
        parts.append(
            f"Left out for length: {', '.join(dropped)}. They stand in `reports/{findings.campaign}.md`."
        )
    return "\n\n".join([*parts, again]) + "\n"


def _folded(section: str, first: bool) -> str:
    """A section that opens on a click; the first is open. Blank lines let Markdown go on inside."""
    found = _HEADING.match(section)
    if found is None:
        raise ValueError(f"a section begins with its heading, this one with {section[:40]!r}")
    opens = "<details open>" if first else "<details>"
    summary = f"{opens}<summary>Section {found['number']}: {found['title']}</summary>"
    return "\n\n".join([summary, section[found.end() :].strip(), "</details>"])


def _without(folded: list[str], drop: str, dropped: list[str]) -> list[str]:
    """The sections without one of them, or without the other methods in section 1; what went is added to `dropped`."""
    left = []
    for section in folded:
        found = _HEADING.match(section)
        if drop == METHODS and _OTHER.search(section):
            section = _OTHER.sub("", section)
            dropped.append("the estimates by other methods")
        elif found and found["number"] == drop:
            dropped.append(f"section {drop} ({found['title']})")
            continue
        left.append(section)
    return left
