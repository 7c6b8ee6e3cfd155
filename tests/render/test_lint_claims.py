"""The rule about claims: false ones however they are worded, true and withdrawn ones that it must let pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import World, build
from test_lint import HAND, told

from battery.analyse.findings import Findings, analyse
from battery.ledger.claims import Bar
from battery.ledger.plan import Stopping
from battery.render.lint.check import lint
from battery.render.lint.claimwords import claims
from battery.render.lint.clauses import asserted
from battery.render.report import markdown

RECEIPTS = Path(__file__).parents[2] / "receipts"
RULE = "undecided-claims"
FALSE = """\
C is 30.7 % faster at 16,384 and may be merged.
Measured in May: C is faster at 16,384.
C decodes faster at 16K although the control cannot draft.
C is faster at 16,384 (whether you like it or not).
C is quicker at 16,384, which cannot be noise.
You may trust that C is faster at 16,384.
C is not only faster at 16,384 but stable.
C decodes faster at 16,384; whether it matters is open.
Undecided at 512; C is faster at 16,384.
It is undecided at 16,384, 3.0 % faster.
The gain at 16,384 is real, though it could be noise.
At 16,384 decode rose by 30.7 %.
At 16,384 C is faster.
At 16k, C is faster.
At 16 K C is faster.
At 512 and 16,384 tokens C decodes faster.
C doubles prefill throughput.
C doubles decode at 512.
C triples decode throughput at 512.
C halves decode time at 16,384.
C cuts prefill time by 30.7 %.
C cuts decode time by 30.7 % at 512.
C increases prefill throughput.
C increases decode time at 512.
C reduces decode throughput at 512.
At 512 decode is 30.7 % lower.
C needs less time at 16,384.
C saves memory.
C beats A in prefill.
C outperforms A in prefill.
C speeds prefill up.
Prefill drops by 0.8 %.
We improve prefill by 3.0 %.
Decode is significantly higher at 16,384 with C.
C matches A in prefill.
C is as quick as A in prefill.
C is not slower in prefill.
There is no regression in prefill.
C is 3.0 % faster than A.
C gains 3.0 %.
C is 1.03× faster at 512.
At 16,384 C is 1.307× the control.
C is 1.5× as fast as A at 512.
It is faster at 16,384.
C is at least 30.7 % faster at 512.
C is faster (+46.8 %) at 512.
A is slower than C at 16,384.
A is faster than C at 512.
“C is faster at 16,384.”
"C is faster at 16,384."
`C is faster at 16,384`
C is `faster` at 16,384.
C is _faster_ at 16,384.
## C is faster at 16,384
C is not faster, even slower at 16,384.
C is not faster and even slower at 16,384.
C isn't faster, slower at 16,384.
C may be merged, faster and smaller at 16,384.
""".splitlines()
FALSE_TABLES = [
    "| arm | conclusion |\n| --- | --- |\n| C | faster at 16,384 |",
    "| arm | context | conclusion |\n| --- | --- | --- |\n| C | 16,384 | faster |",
    "| arm | metric | conclusion |\n| --- | --- | --- |\n| C | prefill | rose by 30.7 % |",
    "| arm | conclusion |\n| --- | --- |\n| C | “`C` is faster at 16,384” |",
    "| arm | verdict |\n| --- | --- |\n| C | ✓ faster at 16,384 |",
]
TRUE = """\
C may be faster or slower at 16,384.
C is not faster at 16,384.
C may be faster and smaller at 16,384.
C might be faster, even smaller at 16,384.
C is not faster, slower or equivalent at 16,384.
C is neither faster nor slower at 16,384.
C is not shown to be faster and smaller at 16,384.
It may be that C is faster at 16,384.
Whether C is faster, slower or equivalent at 16,384 is undecided.
The gain at 16,384 is undecided.
The speed-up of C in prefill remains undecided.
That C is faster at 16,384 is not shown.
Prefill could be slower with C; 12 blocks do not decide it.
Decode at 16,384 cannot be called faster.
No gain in prefill was shown.
This change aims to improve prefill.
C is faster at 512 but at 16,384 it is undecided.
C is about 30 % faster at 512.
C is 31 % faster at 512.
C is 1.31× faster at 512.
At 512 C is 1.307× as fast as the control.
C is between 16.3 and 46.8 % faster at 512.
C is at least 2 % faster at 512.
C is at least 16.3 % faster at 512.
At 512 decode rose by 30.7 %.
At 512 decode is 30.7 % higher.
C cuts decode time at 512.
A is slower than C at 512.
C was faster in 36 of 36 pairs at 512.
C is faster at 512 (12 blocks, margin 2 %).
Lower is better, and fewer is cheaper.
More is gained per step and each step costs more.
Drafts pay where the answer quotes its context.
The mean rises with the context.
""".splitlines()
TRUE_TABLES = [
    "| arm | why |\n| --- | --- |\n| C | drafts pay where the answer quotes its context |",
    "| arm | decode at 512 |\n| --- | --- |\n| C | rose by 30.7 % |",
    "| arm | reason |\n| --- | --- |\n| C | faster at 16,384 |",
]


@pytest.mark.parametrize("line", [*FALSE, *FALSE_TABLES])
def test_a_false_claim_is_found(line: str) -> None:
    last = HAND.count("\n") + 1 + line.count("\n")
    assert told(HAND + line + "\n").count((last, RULE)) >= 1
    assert {place for place, rule in told(HAND + line + "\n") if rule == RULE} == {last}


@pytest.mark.parametrize("line", [*TRUE, *TRUE_TABLES])
def test_what_is_true_or_claims_nothing_passes(line: str) -> None:
    assert [one for one in told(HAND + line + "\n") if one[1] == RULE] == []


@pytest.fixture(scope="module")
def findings() -> Findings:
    return analyse(RECEIPTS / "reference-cpu")


def test_a_page_of_an_arm_against_itself_is_clean() -> None:
    found = analyse(RECEIPTS / "aa-cpu")
    assert lint(markdown(found), found) == [] == lint(markdown(found))


WORLDS = {
    "ended early": World(
        blocks=12, effect={"C": 1.05},
        plan={"stopping": Stopping(rule="precision", half_width=0.01), "bars": (Bar(at_least=0.1),)},
    ),
    "screen": World(
        arms=("A", "C", "D"), effect={"C": 1.05, "D": 0.9}, ttft_effect={"C": 0.8}, memory_effect={"D": 1.2},
        screen="isolate",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORLDS)
def test_interim_looks_and_screens_are_clean(name: str, tmp_path: Path) -> None:
    found = analyse(build(tmp_path, WORLDS[name]))
    page = markdown(found)
    assert ("the look after 10 blocks: C faster" in page) is (name == "ended early")
    assert lint(page, found) == [] == lint(page)
    if name == "ended early":
        # what a look saw is no verdict of a campaign that went on after its end
        lines = page.count("\n") + 3
        assert told(page + "\n\nC decodes faster.\n", found) == [(lines, RULE)]
        page = page.replace(
            "the look after 10 blocks: C faster", "the look after 6 blocks: C slower"
        )
        assert RULE in {rule for _, rule in told(page, found)}


def test_findings_outrank_the_verdicts_of_the_page(findings: Findings) -> None:
    page = markdown(findings)
    head = "\n\n## Summary\n\n| arm | metric | {}verdict |\n| --- | --- | {}--- |\n"
    context, none = head.format("context | ", "--- | "), head.format("", "")
    after = page.count("\n") + 1 + context.count("\n")

    def added(text: str) -> list[tuple[int, str]]:
        return [(line - after, rule) for line, rule in told(page + text + "\n", findings)]

    assert added(context + "| B | decode | 512 | faster |") == [(0, RULE)]
    assert added(context + "| C | decode | 512 | undecided |") == [(0, RULE)]
    assert added(context + "| C | decode | 512 | faster by at least 9 % |") == [(0, RULE)]
    assert added(context + "| C | decode | 1,024 | faster |") == [(0, RULE)]
    assert added(none + "| B | decode | faster |\n\nB decodes faster.") == [(0, RULE), (2, RULE)]
    assert added(context + "| C | decode | 512 | faster by at least 2 % |") == []
    assert added(context + "| C | decode | 512 | faster |\n| B | decode | 128 | undecided |") == []
    assert added(none + "| C | decode | faster |\n\nC decodes faster.") == []


def test_a_claim_between_two_candidates_has_no_verdict(findings: Findings) -> None:
    page = markdown(findings)
    (one,) = lint(page + "\n\nC decodes faster than B at 512.\n", findings)
    assert one.rule == RULE and "no verdict sets C against B" in one.what
    (one,) = lint(page + "\n\nC decodes 16.9 % faster at 512.\n", findings)
    assert one.rule == RULE and "16.9 % is not what was found" in one.what


HEDGES = ["may be", "might be", "cannot be called", "is not", "could be", "is perhaps"]
ENDS = [" and ", " although ", " because ", " but ", " (", "; ", ": ", ", ", " since ", " while "]


@given(hedge=st.sampled_from(HEDGES), end=st.sampled_from(ENDS), before=st.booleans())
def test_a_hedge_withdraws_only_what_follows_it_in_its_clause(
    hedge: str, end: str, before: bool
) -> None:
    _, made = asserted(f"C {hedge} faster at 512")
    assert made == []
    hedged, claim = f"it {hedge} merged", "C is faster at 512"
    _, made = asserted(f"{hedged}{end}{claim}" if before else f"{claim}{end}{hedged}")
    assert [one.word for one in made] == ["faster"]


@pytest.mark.parametrize(
    ("sentence", "supports"),
    [
        ("decode time rose", {"slower"}),
        ("TTFT fell", {"faster"}),
        ("decode rose", {"faster", "higher"}),
        ("it cuts memory", {"smaller"}),
        ("the number of files grew", None),
        ("higher is better", None),
        ("raise the limit of decode", None),
    ],
)
def test_a_direction_claims_what_moved(sentence: str, supports: set[str] | None) -> None:
    assert [set(one.supports) for one in claims(sentence)] == ([supports] if supports else [])
