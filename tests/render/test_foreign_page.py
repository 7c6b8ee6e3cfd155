"""The page of an import: whatever came in, every verdict is on it, no table breaks, and the linter finds nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from battery.analyse.foreign.findings import ForeignFindings, analyse
from battery.analyse.foreign.rows import Row, Sheet, Source, Unmeasured
from battery.analyse.rows import MEASURES
from battery.render.foreign_page import page
from battery.render.lint.check import lint

Key = tuple[str, int | None, str | None, str | None, str]


def sheet(rows: dict[Key, tuple[float, int | None]], columns: tuple[str, ...] = ()) -> Sheet:
    return Sheet(
        sources=(Source(name="a.json", sha256="1" * 64, format="made", arms=("A",), requests=3, failed=0),),
        columns=columns,
        rows=tuple(
            Row(
                # every round in a file of its own
                line=int(turn[-1]) if turn else 1,
                arm=arm, context=context, seed=seed, round=turn, metric=metric, value=value, tokens=tokens,
            )
            for (arm, context, seed, turn, metric), (value, tokens) in rows.items()
        ),
        unmeasured=(Unmeasured(metric="e2e", format="made", why="it keeps no time of whole requests"),),
        notes=("made: a note of the format",),
    )  # fmt: skip


def found(control: float, candidate: float, name: str = "C", rounds: int = 3) -> ForeignFindings:
    rows: dict[Key, tuple[float, int | None]] = {}
    for turn in range(rounds):
        for seed in range(4):
            shift = 1 + 0.001 * turn + 0.002 * seed
            rows["A", 1024, f"p{seed}", f"run {turn}", "decode"] = (control * shift, 64)
            rows[name, 1024, f"p{seed}", f"run {turn}", "decode"] = (
                candidate * shift**1.1,
                64 + seed,
            )
    return analyse(sheet(rows), claim=1.3)


def test_verdicts_come_first_and_what_weakens_them_is_told_once() -> None:
    told = page(found(70, 90))
    assert "| decode | 1,024 | C | faster by at least 2 % | +28." in told
    assert told.index("## Verdicts") < told.index("## What weakens them") < told.index("## Files")
    assert told.count("the same 4 seeds return in every round") == 1
    assert "| end to end | made | it keeps no time of whole requests |" in told
    assert "| a.json | 111111111111 | made |" in told and "| made: a note of the format |" in told
    assert lint(told) == [] and told == page(found(70, 90))


def test_a_name_with_a_pipe_breaks_no_table() -> None:
    told = page(found(70, 90, name="C|x"))
    widths: dict[str, set[int]] = {}
    for part in told.split("\n\n"):
        for line in part.splitlines():
            if line.startswith("|"):
                widths.setdefault(part, set()).add(line.replace("\\|", "").count("|"))
    assert len(widths) == 6 and all(len(counts) == 1 for counts in widths.values())


def test_memory_is_told_in_gigabytes_and_an_unknown_context_as_such() -> None:
    rows: dict[Key, tuple[float, int | None]] = {
        (arm, None, None, f"run {turn}", "peak_memory"): (value * 1e9 + turn, None)
        for arm, value in (("A", 2.0), ("C", 1.5))
        for turn in range(2)
    }
    told = page(analyse(sheet(rows)))
    assert "| peak memory | unknown | A | GB | 2.000 |" in told and lint(told) == []


KEYS = st.tuples(
    st.sampled_from(["A", "C", "D"]), st.sampled_from([None, 0, 512, 16384]), st.sampled_from([None, "p1", "p2", "p3"]),
    st.sampled_from([None, "run 1", "run 2"]), st.sampled_from(sorted(MEASURES)),
)  # fmt: skip
FIGURES = st.tuples(st.floats(1e-6, 1e12), st.none() | st.integers(1, 4096))


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(KEYS, FIGURES, min_size=2, max_size=24),
    st.none() | st.floats(0.2, 5),
    st.booleans(),
)
def test_whatever_was_imported_the_linter_finds_nothing(
    rows: dict[Key, tuple[float, int | None]], claim: float | None, csv: bool
) -> None:
    if len({key[0] for key in rows}) < 2:
        return
    result = analyse(sheet(rows, ("arm",) if csv else ()), claim=claim)
    told = page(result)
    assert lint(told) == []
    for one in result.comparisons:
        assert f"| {one.candidate} | {one.verdict}" in told
