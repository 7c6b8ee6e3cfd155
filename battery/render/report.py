"""Findings to `reports/<campaign>.md`, ready to paste into a pull request, and `.json` beside it.

Prose is fixed; every number in it comes from Findings and stands in a table too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from battery.analyse import findings as kept
from battery.analyse.findings import Findings
from battery.ledger.derive import option
from battery.ledger.disk import inside, replace
from battery.render import (
    arrivals,
    claims,
    course,
    drift,
    gating,
    in_cell,
    quality,
    quality_charts,
    record,
    replaying,
    speculation,
    tables,
    words,
    workloads,
)
from battery.render.chart import embedded
from battery.render.charts import CHARTS

FORMULAS = ("decode", "prefill", "ttft", "peak_memory")
OTHER_METHODS = "The same blocks by other methods."
"""What the estimates begin with that no verdict uses."""


def write_report(findings: Findings, reports_dir: Path) -> list[Path]:
    """Write the Markdown and the findings it rests on; the paths written."""
    reports_dir.mkdir(parents=True, exist_ok=True)
    page = inside(reports_dir, f"{findings.campaign}.md")
    replace(page, markdown(findings).encode())
    return [page, kept.write(findings, reports_dir / f"{findings.campaign}.json")]


def markdown(findings: Findings) -> str:
    """The whole page."""
    return "\n\n".join(sections(findings)) + "\n"


def sections(findings: Findings) -> list[str]:
    """The page in its parts: the head, then each section with its heading, those that say nothing left out."""
    every: tuple[Callable[[Findings], str], ...] = (
        _head, _results, _long, _interleaved, speculation.section, workloads.section, _method, _switches, _quality,
        _validity, _again,
    )  # fmt: skip
    return [part.strip() for section in every if (part := section(findings))]


def _chart(findings: Findings, key: str) -> str:
    """A chart with its caption."""
    return embedded(findings, CHARTS[key])


def _head(findings: Findings) -> str:
    """Title, status, and the primary endpoint."""
    plan = findings.plan
    notes = []
    if findings.status == "incomplete":
        notes.append(
            f"**Unfinished:** {findings.blocks_complete} of {plan.blocks} planned blocks are complete."
        )
    notes += [*replaying.head(findings), *claims.ended(findings), *workloads.head(findings)]
    if findings.pilot:
        notes.append(
            "**Pilot:** there are too few blocks for a verdict; intervals are shown, claims are not."
        )
    if findings.screen:
        notes.append(
            "**Exploratory:** a screen asks many questions at once; what it finds is a lead for a campaign of its own."
        )
    voids = [one for one in findings.doubts if one.severity == "void"]
    if voids:
        notes.append(f"**Not valid as it stands:** {len(voids)} finding(s) of section 5 void it.")
    lines = "\n".join(f"- {line}" for line in tables.headline(findings, mark="**").splitlines())
    endpoint = (
        f"Primary endpoint, declared before measuring: {findings.measure(plan.primary.metric).title} at {plan.anchor:,}"
        f" tokens of context, practical margin {100 * plan.margins.of(plan.primary.metric):g} %."
    )
    told = [f"- {line}" for line in quality.lines(findings, mark="**")]
    beside = "\n".join([*told, *claims.bars_met(findings)])
    return "\n\n".join(
        [f"# {findings.campaign}", *notes, f"{lines}\n{beside}", endpoint]
    )  # fmt: skip


def _results(findings: Findings) -> str:
    """Sections 1 to 1.3."""
    how = (
        "Each arm: geometric mean over its windows, in brackets the range of single requests, n requests. Ratio:"
        f" candidate against control on the same prompts in the same block, {words.confidence(findings)} t interval"
        " over blocks; pairs of requests behind it of those planned. For peak memory a window counts with its highest"
        " peak, and the ratio is of the blocks' highest peaks. Verdicts are corrected for their number:"
        f" {tables.corrections(findings)}."
    )
    parts = ["## 1. Results", _chart(findings, "summary")]
    if findings.candidates:
        parts.append(_chart(findings, "ratios"))
    parts.append(how)
    for title, metrics in (
        ("1.1 Decode by context", ("decode",)),
        ("1.2 Prefill by context", ("prefill",)),
        ("1.3 Time to first token and peak memory", ("ttft", "peak_memory")),
    ):
        parts.append(f"### {title}")
        for metric in metrics:
            chart, named = _chart(findings, metric), _named(findings, metric)
            parts += [chart, named, tables.by_context(findings, metric)]
        parts.append(tables.whys(findings, metrics))
        parts.append(arrivals.section(findings) if metrics == ("decode",) else "")
    if findings.candidates:
        parts += [
            "Over the whole ladder, one interval per candidate and metric; no verdict rests on it:",
            tables.over_ladder(findings),
            "<details><summary>The tests behind the verdicts</summary>", tables.statistics(findings),
            f"Corrections: {tables.corrections(findings)}. Intervals are not widened. “By at least” needs the margin's"
            " p below the level, too: that of a difference of the margin or less.",
            *_sensitivity(findings),
            "</details>",
        ]  # fmt: skip
    return "\n\n".join(part for part in parts if part)


def _sensitivity(findings: Findings) -> list[str]:
    """The estimates by other methods, where there are any."""
    found = tables.sensitivities(findings)
    how = (
        f"{OTHER_METHODS} No verdict uses them: they show whether the result hangs on the method. The bootstrap is"
        " shown from twelve blocks on: below it claims far too much, and at twelve still too much."
    )
    return [how, found] if found else []


def _named(findings: Findings, metric: str) -> str:
    """What the table below shows, and from which source where there is a choice."""
    measure = findings.measure(metric)
    sources = sorted({x.source for x in findings.levels if x.metric == metric and x.source})
    where = f" Source: {', '.join(sources)}." if sources else ""
    better = "higher" if measure.higher_is_better else "lower"
    return (
        f"{words.titled(measure.title)}, {words.unit(findings, metric)}; {better} is better.{where}"
    )


def _long(findings: Findings) -> str:
    """Section 1.4."""
    return "\n\n".join(
        [
            "### 1.4 Long contexts and other outcomes",
            "Running out of memory is a result. A peak with “>” is a lower bound: the allocation that failed never"
            " landed.",
            course.long_contexts(findings),
            course.fits(findings),
            *(part for part in (course.lengths(findings),) if part),
        ]
    )


def _interleaved(findings: Findings) -> str:
    """Section 1.5."""
    parts = [
        "### 1.5 The interleaved windows",
        _chart(findings, "windows"), course.windows(findings), course.blocks(findings), drift.section(findings),
    ]  # fmt: skip
    return "\n\n".join(parts)


def _method(findings: Findings) -> str:
    """Section 2."""
    return "\n\n".join(
        [
            "## 2. Method",
            record.method(findings),
            *claims.looks(findings),
            *claims.earlier(findings),
            "### What differs between the arms",
            "Computed from the resolved arms and from what the servers told; “no” means that no arm file says so.",
            record.differences(findings),
            "### Proof per request",
            record.proofs(findings),
            "### Gates",
            gating.gates(findings),
            *_during(findings),
            "### Formulas",
            words.table(
                ["metric", "formula"],
                [
                    (findings.measure(name).title, findings.measure(name).formula)
                    for name in FORMULAS
                ],
            ),
        ]
    )


def _during(findings: Findings) -> list[str]:
    """What befell the machine, and how it was inside the cells."""
    found = []
    if disturbed := gating.disturbances(findings):
        found += ["Disturbed, by sensors that know no arm:", disturbed]
    if phases := gating.phases(findings):
        how = (
            "Inside the pooled cells, split at the first token (means over samples, two a second):"
        )
        found += [how, phases]
    if seen := in_cell.section(findings):
        found.append(seen)
    return found


def _switches(findings: Findings) -> str:
    """Section 3."""
    return f"## 3. Switches\n\n{record.switches(findings)}"


def _quality(findings: Findings) -> str:
    """Section 4."""
    pictures = [embedded(findings, one) for one in quality_charts.charts(findings).values()]
    return "\n\n".join(["## 4. Quality", *pictures, quality.section(findings)])


def _validity(findings: Findings) -> str:
    """Section 5."""
    bars = f"### Bars declared in the plan\n\n{claims.bars(findings)}"
    return f"## 5. Validity findings\n\n{record.doubts(findings)}\n\n{bars}"


def _again(findings: Findings) -> str:
    """Section 6."""
    arms = option(findings.screen, [arm.arm for arm in findings.arms])
    seal = f"`{findings.seal}`" if findings.seal else "none: the campaign is not sealed"
    return "\n".join(
        [
            "## 6. Run it again, or check it",
            "",
            "```sh",
            f"battery run {replaying.plan(findings)}{arms}{replaying.option(findings)}",
            f"battery verify {findings.campaign}",
            *replaying.again(findings),
            "```",
            "",
            f"Seal of the receipts: {seal}. `verify` recomputes it, analyses the receipts again, and compares every",
            "figure, every line of this page and every byte of its charts.",
        ]
    )
