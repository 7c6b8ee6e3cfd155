"""Every rule of the report linter against planted violations, in generated pages and in prose written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import World, build, fails

from battery.analyse.findings import Findings, analyse
from battery.render.lint.check import RULES, lint, listed
from battery.render.report import markdown

RECEIPTS = Path(__file__).parents[2] / "receipts"
WORLDS = {
    "faster": World(effect={"C": 1.05}, speculates=("A", "C")),
    "pilot": World(blocks=2, effect={"C": 1.5}),
    "one block": World(blocks=1, seeds=1, effect={"C": 1.5}),
    "unfinished": World(blocks=8, change=lambda r: r if r.cell.block < 8 else None),
    "one arm": World(arms=("A",), ladder=(128,), blocks=1, seeds=1),
    "oom of one": World(
        change=fails("oom", lambda r: (r.cell.rung, r.cell.arm) == (384, "C"), "no memory")
    ),
    "oom of some": World(
        speculates=("A", "C"),
        change=fails("oom", lambda r: (r.cell.rung, r.cell.arm, r.cell.block) == (384, "C", 2)),
    ),
    "knock-out": World(
        arms=("C", "C-without-fused_qkv", "C-without-prompt_lookup"),
        effect={"C-without-fused_qkv": 0.9}, speculates=("C", "C-without-fused_qkv"),
    ),
    "void": World(drift=-0.05, noise=0.001, content=0.0005),
    "nothing": World(change=lambda receipt: None, seal=False),
}  # fmt: skip
REAL = ("reference-cpu", "h200")

HAND = """\
## Speculation from the text so far

C against A, decode at 512 tokens: +30.7 % [+16.3, +46.8] (12 blocks, margin 2 %): faster.
The primary endpoint, decode at 512 tokens of context, was declared before measuring.

Decode, tok/s:

| context | A, control | C | C / A [95 %] | pairs | verdict |
| --- | --- | --- | --- | --- | --- |
| 512 | 14.21 n=36 | 18.57 n=36 | +30.7 % [+16.3, +46.8] | 36 of 36 | faster by at least 2 % |
| 16,384 | 9.11 n=36 | 9.38 n=36 | +3.0 % [−1.3, +6.8] | 36 of 36 | undecided |

Prefill, tok/s:

| context | A, control | C | C / A [95 %] | pairs | verdict |
| --- | --- | --- | --- | --- | --- |
| 512 | 191.2 n=36 | 189.7 n=36 | −0.8 % [−5.0, +3.7] | 36 of 36 | undecided |

| setting | value |
| --- | --- |
| blocks | 12; margin 2 % |

"""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Findings]:
    root = tmp_path_factory.mktemp("linted")
    made = {
        name: analyse(build(root, world, f"w{place}"))
        for place, (name, world) in enumerate(WORLDS.items())
    }
    return made | {name: analyse(RECEIPTS / name) for name in REAL}


@pytest.fixture(scope="module")
def reference(known: dict[str, Findings]) -> str:
    return markdown(known["reference-cpu"])


def told(page: str, findings: Findings | None = None) -> list[tuple[int, str]]:
    return [(one.line, one.rule) for one in lint(page, findings)]


def planted(page: str, old: str, new: str) -> tuple[str, int]:
    """The page with the first `old` changed, and the line of it."""
    assert old in page
    return page.replace(old, new, 1), page[: page.index(old)].count("\n") + 1


@pytest.mark.parametrize("name", [*WORLDS, *REAL])
def test_what_is_generated_is_clean(name: str, known: dict[str, Findings]) -> None:
    page = markdown(known[name])
    assert lint(page, known[name]) == []
    assert lint(page) == []


def test_a_clean_page_by_hand() -> None:
    assert lint(HAND) == []
    assert lint("") == []
    assert lint("# title\n\nNo number, no claim.\n") == []


HEADLINE = "+30.7 % [+16.3, +46.8] (95 %"
GENERATED = [
    ("headline-interval", HEADLINE, "+93.02 % [+16.3, +46.8] (95 %"),
    ("headline-interval", "| +16.9 % [+5.2, +29.9]", "| +36.9 % [+5.2, +29.9]"),
    ("headline-interval", "| −0.8 % [−5.0, +3.7]", "| -8.0 % [-5.0, +3.7]"),
    ("headline-interval", "−4.03 % (−9.36 % to +1.62 %)", "−9.40 % (−9.36 % to +1.62 %)"),
    ("headline-interval", "| −1.1 % [−7.4, +5.6]", "| −1.1 % [+5.6, −7.4]"),
    ("headline-interval", HEADLINE, "+30.7 % (95 %"),
    ("equal-n", "(11.04–39.50) n=36", "(11.04–39.50) n=35"),
    ("equal-n", "(0.06363–0.1655) n=36", "(0.06363–0.1655) n=31"),
    ("numbers-in-tables", "12 blocks find 13 %", "12 blocks find 77.7 %"),
    ("numbers-in-tables", "36 pairs of requests", "37 pairs of requests"),
    ("numbers-in-tables", "one line per arm.", "one line per arm, 17.9 tok/s."),
    ("numbers-in-tables", "+30.7 % [+16.3", "+30.7 % [+17.7"),
    ("blocks-stated", "p .0007 after Holm over 2 candidates; 12 blocks, ", "p .0007; "),
    ("blocks-stated", "12 blocks, 36 pairs", "36 pairs"),
    ("undecided-claims", "B decode at 128: undecided", "B decode at 128: 3.0 % slower"),
    ("undecided-claims", "**undecided**: the interval holds 1 and", "**faster**; it"),
    ("undecided-claims", "- B TTFT at 512: undecided: the", "- B has no difference in TTFT: the"),
    ("exact-word", "Off in every timed request of A", "A is exact"),
    ("exact-word", "| cold 84 |", "| bit-identical 84 |"),
    ("best-of", "Decode, tok/s; higher is better.", "Decode of the fastest window, tok/s."),
    ("best-of", "decode at 512 (tok/s)", "fastest window at 512 (tok/s)"),
    ("drift-defined", "bracket (largest against smallest) +30.3 %, last against first", "bracket"),
    ("drift-defined", "+0.24 % per window", "+0.24 %"),
    ("margin-and-endpoint", "36 pairs of requests; margin 2 %", "36 pairs of requests"),
    ("margin-and-endpoint", "primary endpoint, declared", "endpoint, declared"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "old", "new"), GENERATED)
def test_a_line_of_the_reference_report(rule: str, old: str, new: str, reference: str) -> None:
    if rule == "margin-and-endpoint" and old.startswith("primary"):
        page, _ = planted(reference, "P" + old[1:], "E" + new[1:])
        assert told(page) == [(3, rule)]
        return
    page, line = planted(reference, old, new)
    assert told(page) == [(line, rule)]


def test_a_verdict_taken_away_leaves_the_headline_without_one(reference: str) -> None:
    row = next(x for x in reference.splitlines() if x.startswith("| 512 |") and HEADLINE[:7] in x)
    page, _ = planted(reference, row, row.replace("faster by at least 2 %", "undecided"))
    assert told(page) == [(4, "undecided-claims")]


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        ("headline-interval", HEADLINE, "+16.9 % [+5.2, +29.9] (95 %"),
        ("headline-interval", HEADLINE, "+30.7 % [+16.9, +46.8] (95 %"),
        ("headline-interval", "C against A", "The candidate against A"),
        ("blocks-stated", "Holm over 2 candidates; 12 blocks, 36", "Holm over 2 candidates; 36 blocks, 36"),
        ("margin-and-endpoint", "decode at 512 tokens of context, p", "prefill at 512 tokens of context, p"),
    ],
)  # fmt: skip
def test_a_headline_that_is_not_the_campaigns(
    rule: str, old: str, new: str, reference: str, known: dict[str, Findings]
) -> None:
    at = reference.index("\n- C against A") + 1
    page, line = planted(reference[at:], old, new)
    page, line = reference[:at] + page, line + reference[:at].count("\n")
    found = lint(page, known["reference-cpu"])
    where = 1 if "candidate" in new and rule == "headline-interval" else line
    assert (where, rule) in [(one.line, one.rule) for one in found]
    assert {one.rule for one in found} <= {rule, "numbers-in-tables"}
    assert rule not in {one.rule for one in lint(page)}


BY_HAND = [
    ("headline-interval", "Decode at 512: +3.0 % with interval [+16.3, +46.8]."),
    ("headline-interval", "The gain in decode at 512 was 3.0 % (95 % CI 16.3 to 46.8)."),
    ("headline-interval", "Prefill: −0.8 % (95 % interval +3.7 to +6.8)."),
    ("equal-n", "| arm | context | n |\n| --- | --- | --- |\n| A | 512 | 3 |\n| C | 512 | 9 |"),
    ("equal-n", "| context | A | C | pairs |\n| --- | --- | --- | --- |\n| 512 | 9.1 n=36 | oom 3 of 36 n=33 | 33 |"),
    ("numbers-in-tables", "The rate was 19.57 tok/s."),
    ("numbers-in-tables", "We measured at 8K, too."),
    ("numbers-in-tables", "Requests: 35 of 36."),
    ("numbers-in-tables", "Prefill: +0.8 %."),
    ("undecided-claims", "At 16K, C decodes 3.0 % faster."),
    ("undecided-claims", "C is faster in decode at 512 and slower in prefill."),
    ("undecided-claims", "C decodes faster at 512. It also improves prefill."),
    ("undecided-claims", "This change wins in TTFT."),
    ("undecided-claims", "Prefill shows no difference."),
    ("undecided-claims", "C is faster in prefill, while decode at 16,384 is undecided."),
    ("exact-word", "Both arms gave bit-identical output."),
    ("exact-word", "Arm C is exact: its switches are on."),
    ("exact-word", "The result is lossless."),
    ("exact-word", "| arm | tokens |\n| --- | --- |\n| C | exact |"),
    ("best-of", "Decode reaches up to 18.57 tok/s."),
    ("best-of", "The best of 36 requests counts."),
    ("best-of", "Peak throughput: 18.57 tok/s."),
    ("drift-defined", "The drift bracket was +3.0 %."),
    ("drift-defined", "A spread of 3.0 % was seen."),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "line"), BY_HAND)
def test_a_line_by_hand(rule: str, line: str) -> None:
    last = HAND.count("\n") + 1 + line.count("\n")
    assert told(HAND + line + "\n") == [(last, rule)]


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        ("headline-interval", "+30.7 % [+16.3, +46.8] (12 blocks, margin 2 %): faster", "30.7 % faster"),
        ("blocks-stated", "12 blocks, ", ""),
        ("blocks-stated", "12 blocks", "36 requests"),
        ("margin-and-endpoint", ", margin 2 %", ""),
        ("margin-and-endpoint", "primary endpoint", "endpoint"),
        ("undecided-claims", "faster.", "slower."),
    ],
)  # fmt: skip
def test_a_headline_by_hand(rule: str, old: str, new: str) -> None:
    page, line = planted(HAND, old, new)
    assert told(page) == [(3 if old == "primary endpoint" else line, rule)]


@pytest.mark.parametrize(
    "line",
    [
        "C is faster at 512, and whether it is faster at 16K is undecided.",
        "At 16K it may be faster, but 12 blocks do not show it.",
        "At 512 decode is 1.307× faster; that is 30.7 %, or 18.57 against 14.21 tok/s.",
        "Between 9.1 and 9.4 tok/s at 16K; 31 % at 512.",
        "The switch is exact; the acceptance law is exact, too.",
        "| a switch of ours | what |\n| --- | --- |\n| of q | exact |",
        "C is faster in decode at 512 tokens, and prefill is undecided.",
        "| fusion | exactness |\n| --- | --- |\n| of gate and up | exact |",
        "| arm | reason |\n| --- | --- |\n| C | no exact match, best of 9 runs: drift 4 % |",
        "Peak memory and the drift of the clock were watched; the largest cell came last.",
        "Built on SmolLM2-135M (q4-g32), mlx 0.32.4, 2026-01-02, #444, `--top 77`, section 4 and 4.1, Figure 3.",
        "See [the log](https://example.org/99) and ![a chart](../charts/x/77.svg).",
        "```\n77 tok/s, up to 99 % faster\n```",
        "1. One thing\n2. and another",
        "The spread (largest against smallest) was 3.0 %; drift −0.8 % per window.",
        "“The exact and best of 99” is what others say; ours is below.".replace("99", "36"),
        "A faster server would answer sooner.",
    ],
)
def test_what_may_be_said(line: str) -> None:
    assert told(HAND + line + "\n") == []


def test_the_public_claim_that_this_began_with() -> None:
    page = """\
16K decode, release against pull request: 71.97 → 82.84 tok/s, +15.1 %;
paired interval [+1.76, +8.89] tok/s.

| arm | fastest window 1 | fastest window 2 | fastest window 3 |
| --- | --- | --- | --- |
| A | 71.31 | 71.86 | 71.57 |
| C | 76.94 | 77.11 | 76.66 |

Drift bracket +0.26.
"""
    found = told(page)
    assert {rule for _, rule in found} == {
        "headline-interval", "blocks-stated", "margin-and-endpoint", "numbers-in-tables", "best-of", "drift-defined",
    }  # fmt: skip
    assert (2, "headline-interval") in found and (4, "best-of") in found
    assert (9, "drift-defined") in found
    missing = {
        one.what.split(" stands")[0] for one in lint(page) if one.rule == "numbers-in-tables"
    }
    assert {"71.97", "82.84 tok/s", "+15.1 %"} <= missing


FORMS = ["{e} % [{l}, {h}]", "{e} % ({l} % to {h} %)", "{e} %; interval [{l}, {h}]", "| {e} [{l}, {h}] |"]  # fmt: skip


@given(
    low=st.integers(-9_999, 9_999), width=st.integers(0, 9_999), beyond=st.integers(1, 9_999),
    above=st.booleans(), minus=st.sampled_from("−-"), places=st.integers(0, 3),
    form=st.sampled_from(FORMS),
)  # fmt: skip
def test_an_estimate_outside_is_always_found(
    low: int, width: int, beyond: int, above: bool, minus: str, places: int, form: str
) -> None:
    def written(number: int) -> str:
        return f"{number / 10**places:+.{places}f}".replace("-", minus)

    high = low + width
    table = "| x |\n| --- |\n" if form.startswith("|") else ""
    wrong = high + beyond if above else low - beyond
    for estimate, outside in ((wrong, True), (low, False), (high, False)):
        page = table + form.format(e=written(estimate), l=written(low), h=written(high)) + "\n"
        found = [one for one in told(page) if one[1] == "headline-interval"]
        assert found == ([(page.count("\n"), "headline-interval")] if outside else [])


def test_every_rule_is_explained_and_planted() -> None:
    # these need a replay's findings (test_replaying plants it) or quality receipts (test_quality_report does)
    here = {rule for rule in RULES if rule != "replay-stated" and not rule.startswith("quality-")}
    planted_rules = {rule for rule, *_ in GENERATED}
    assert planted_rules == here
    by_hand = {rule for rule, *_ in BY_HAND} | {"blocks-stated", "margin-and-endpoint"}
    assert by_hand == here
    assert [line.split(": ")[0] for line in listed().splitlines()] == list(RULES)
