"""Files as arms and rounds: which runs may stand side by side, in what order they ran, and what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battery.analyse.foreign.findings import analyse
from battery.analyse.foreign.reading.document import Document
from battery.analyse.foreign.reading.joining import join
from battery.analyse.foreign.reading.levelling import NEAR, levels
from battery.analyse.foreign.reading.recognise import Found
from battery.analyse.foreign.reading.taken import ALONE, Load, Run, Taken, Value, moment
from battery.analyse.foreign.rows import Sheet
from battery.ledger.errors import InputError

BEGIN = datetime(2026, 10, 30, 10, 0, tzinfo=UTC)


def value(
    rate: float, context: int | None = 1024, seed: str | None = None, **more: object
) -> Value:
    return Value(metric="decode", value=rate, context=context, seed=seed, **more)  # type: ignore[arg-type]


def run(
    *values: Value, minute: int | None = None, load: Load | None = ALONE, label: str = "", **more: object
) -> Run:  # fmt: skip
    started = None if minute is None else BEGIN + timedelta(minutes=minute)
    return Run(label=label, load=load, started=started, values=values, **more)  # type: ignore[arg-type]


def file(name: str, *runs: Run) -> Found:
    document = Document(name=name, sha256=name.ljust(64, "0"), nodes=())
    return Found(document, "made", Taken(runs=runs, absent={"ttft": "nothing is streamed"}))


def keys(sheet: Sheet) -> list[tuple[str, str | None, float]]:
    return [(row.arm, row.round, row.value) for row in sheet.rows]


def test_a_file_without_a_name_for_its_arm_is_called_as_it_is() -> None:
    sheet = join([file("fast.json", run(value(70))), file("slow.jsonl", run(value(60)))])
    assert (
        sheet.arms == ["fast", "slow"]
        and sheet.columns == ()
        and sheet.named == "fast.json, slow.jsonl"
    )
    assert [source.arms for source in sheet.sources] == [("fast",), ("slow",)]


def test_files_of_one_arm_are_rounds_by_their_own_stamps() -> None:
    files = [
        file("a2.json", run(value(72), minute=20)), file("c1.json", run(value(80), minute=10)),
        file("a1.json", run(value(70), minute=0)), file("c2.json", run(value(82), minute=30)),
    ]  # fmt: skip
    sheet = join(files, ["A", "C", "A", "C"])
    assert keys(sheet) == [
        ("A", "run 2", 72), ("C", "run 1", 80), ("A", "run 1", 70), ("C", "run 2", 82),
    ]  # fmt: skip
    assert "in the order A, C, A, C: they took turns" in sheet.order
    found = analyse(sheet)
    (only,) = found.comparisons
    assert only.pairs == 2 and only.independent_units == 2 and only.method.startswith("by round")
    assert (
        found.notes[0] == sheet.order and "cannot show whether prefill was cold" in found.notes[1]
    )


def test_without_stamps_rounds_are_in_the_order_of_naming_and_no_order_is_told() -> None:
    files = [file("1", run(value(1), minute=9)), file("2", run(value(2))), file("3", run(value(3)))]
    sheet = join(files, ["A", "A", "C"])
    assert keys(sheet) == [("A", "run 1", 1), ("A", "run 2", 2), ("C", "run 1", 3)]
    assert sheet.order == "" and "in which order the arms ran" in analyse(sheet).notes[0]


def test_stamps_without_a_zone_are_put_in_order_and_shown_without_one() -> None:
    def stamped(name: str, text: str) -> Found:
        return file(name, msgspec.structs.replace(run(value(1)), started=moment(text)))

    sheet = join([stamped("a", "2026-11-30T10:00:00"), stamped("c", "2026-11-30T09:00:00.5")])
    assert [one.started for one in sheet.sources] == ["2026-11-30 10:00:00", "2026-11-30 09:00:00"]
    assert (
        "stamps (without a zone, so taken to be of one clock) the arms ran in the order c, a"
        in sheet.order
    )
    sheet = join([stamped("a", "2026-11-30T10:00:00Z"), stamped("c", "2026-11-30T11:30:00+02:00")])
    assert [one.started for one in sheet.sources] == [
        "2026-11-30 10:00:00+00:00",
        "2026-11-30 11:30:00+02:00",
    ]
    assert "by the files' own stamps the arms ran in the order c, a" in sheet.order
    # whether one of two clocks was ahead is not told
    assert not join(
        [stamped("a", "2026-11-30T10:00:00"), stamped("c", "2026-11-30T09:00:00Z")]
    ).order
    assert moment("yesterday") is None


@pytest.mark.parametrize(
    "minutes, told",
    [((0, 1, 2, 3), "had all of its runs together"), ((0, 2, 1, 3), "they took turns")],
)
def test_an_order_says_what_it_leaves_in_the_difference(minutes: Sequence[int], told: str) -> None:
    files = [file(str(minute), run(value(1), minute=minute)) for minute in minutes]
    assert told in join(files, ["A", "A", "C", "C"]).order
    once = [file("a", run(value(1), minute=0)), file("c", run(value(2), minute=1))]
    assert "order a, c: each ran once" in join(once).order


def test_runs_of_one_file_that_measure_a_context_again_are_rounds_and_a_ladder_is_one() -> None:
    ladder = [run(value(70)), run(value(60, 4096)), run(value(71))]
    sheet = join([file("a", *ladder), file("c", run(value(80)))])
    assert [row.round for row in sheet.rows if row.arm == "a"] == ["run 1", "run 1", "run 2"]


def test_several_things_in_one_file_are_arms_of_their_own() -> None:
    both = file(
        "both.json", run(value(70), label="n_threads 1"), run(value(80), label="n_threads 2")
    )
    assert join([both]).arms == ["n_threads 1", "n_threads 2"]
    assert join([both], ["M"]).arms == ["M: n_threads 1", "M: n_threads 2"]
    with_other = join([both, file("c.json", run(value(60)))])
    assert with_other.arms == ["both: n_threads 1", "both: n_threads 2", "c"]


def test_the_lowest_load_that_all_arms_have_is_kept() -> None:
    a = file("a", run(value(70)), run(value(20), load=Load(8)))
    c = file("c", run(value(25), load=Load(8)), run(value(26), load=Load(16)))
    sheet = join([a, c])
    assert keys(sheet) == [("a", "run 1", 20), ("c", "run 1", 25)]
    assert "2 runs under other loads are left out; kept: 8 requests at a time" in sheet.notes
    with pytest.raises(
        InputError, match=r"different loads .*a: 1 request at a time.*c: 16 requests"
    ):
        join([file("a", run(value(1))), file("c", run(value(2), load=Load(16)))])


def test_the_mean_of_a_prompt_that_came_twice_counts_once() -> None:
    a = file("a", run(value(70, seed="p"), value(74, seed="p"), value(60, seed="q")))
    c = file("c", run(value(80, seed="p"), value(81, seed="q")))
    rows = join([a, c]).rows
    assert [(row.seed, row.value, row.n, row.low, row.high) for row in rows if row.arm == "a"] == [
        ("p", 72, 2, 70, 74), ("q", 60, 1, None, None),
    ]  # fmt: skip


def test_tests_of_several_lengths_are_told_by_the_longest() -> None:
    short = value(90, tokens=32, n=3, low=89.0, high=91.0)
    long = value(80, tokens=128, n=3, low=79.0, high=81.0)
    sheet = join([file("a", run(short, long)), file("c", run(value(70, tokens=128)))])
    (row,) = (row for row in sheet.rows if row.arm == "a")
    assert (row.value, row.tokens, row.n, row.low, row.high) == (80, 128, 3, 79, 81)
    assert [note for note in sheet.notes if "those of the longest are kept" in note] == [
        "arm a: decode at 1,024 tokens was measured over answers of 32, 128 tokens; those of the longest are kept"
    ]


def test_what_failed_and_what_is_null_is_said() -> None:
    a = file("a", run(value(70), requests=8, failed=2, lengths=(100, 4000)))
    sheet = join([a, file("c", run(value(80), requests=9, failed=0))])
    assert any(
        note.startswith("arm a: 2 of 10 requests failed and are in no figure")
        for note in sheet.notes
    )
    assert any("100 to 4,000 tokens" in note for note in sheet.notes)
    why = {one.metric: one.why for one in sheet.unmeasured}
    assert why["ttft"] == "nothing is streamed" and why["prefill"] == "made does not tell it"
    assert "decode" not in why
    assert [(source.requests, source.failed) for source in sheet.sources] == [(8, 2), (9, 0)]


def test_one_launch_of_each_arm_decides_nothing() -> None:
    def prompts(rate: float) -> Run:
        return run(*(value(rate + 0.1 * n, seed=f"p{n}", tokens=64) for n in range(8)))

    files = [file("a", prompts(70)), file("c", prompts(84))]
    (only,) = analyse(join(files)).comparisons
    assert (only.verdict, only.qualifier) == ("undecided", "") and only.low and only.low > 1.19
    assert only.why.startswith("one launch of an arm: what differs between two launches")
    more = [*files, file("a2", prompts(70.2)), file("c2", prompts(84.1))]
    (both,) = analyse(join(more, ["a", "c", "a", "c"])).comparisons
    assert (both.verdict, both.qualifier, both.pairs) == ("faster", "by at least 2 %", 16)
    assert both.method.startswith("by round") and both.independent_units == 2


def test_runs_of_one_file_are_rounds_and_no_launches() -> None:
    rates = (70, 70.2, 69.9)
    a, c = (
        file(arm, *(run(value(rate * by)) for rate in rates))
        for arm, by in (("a", 1), ("c", 1.2001))
    )
    (only,) = analyse(join([a, c])).comparisons
    assert only.pairs == 3 and only.verdict == "undecided"
    # three launches of one arm do not make up for the one of the other
    single = [file(f"a{place}", run(value(rate))) for place, rate in enumerate(rates)]
    c = file(
        "c", *(run(value(rate * by)) for rate, by in zip(rates, (1.2, 1.201, 1.199), strict=True))
    )
    (only,) = analyse(join([*single, c], ["a", "a", "a", "c"])).comparisons
    assert only.pairs == 3 and only.why.startswith("one launch of an arm")
    assert any("as do the runs of one file" in note for note in analyse(join([a, c])).notes)


def test_means_of_one_launch_each_are_not_comparable() -> None:
    files = [
        file("a", run(value(70, n=3, low=69, high=71))),
        file("c", run(value(84, n=3, low=83, high=85))),
    ]
    (only,) = analyse(join(files)).comparisons
    assert (
        only.verdict == "not comparable" and only.ratio == pytest.approx(1.2) and only.low is None
    )
    assert "files of further launches would be rounds" in only.why
    assert any("(a 3 in 1 launches from 69.00 to 71.00; c 3 in" in line for line in only.warnings)


def test_contexts_that_are_not_told_are_compared_as_such() -> None:
    found = analyse(
        join([file("a", run(value(70, None))), file("c", run(value(80, None), value(81, 512)))])
    )
    assert [(one.context, one.pairs) for one in found.comparisons] == [(None, 1), (512, 0)]


@pytest.mark.parametrize(
    "names, arms, complaint",
    [
        (["a"], [], "a: only arm 'a'; a comparison needs a second one"),
        (["a", "b"], ["A", "A"], "only arm 'A'"),
        (["a", "b"], ["A"], "--arm is given 1 times for 2 files"),
        (["a.json", "a.jsonl"], [], "a.json: two files of this name; say what each measured"),
        (["a", "b"], ["A", "\x1b"], "is no name of an arm that can be printed"),
        (["a", "b"], ["A", " "], "is no name of an arm that can be printed"),
    ],
)  # fmt: skip
def test_arms_that_cannot_be_are_refused(names: list[str], arms: list[str], complaint: str) -> None:
    with pytest.raises(InputError) as wrong:
        join([file(name, run(value(70))) for name in names], arms)
    assert complaint in str(wrong.value)


def test_a_load_under_which_nothing_was_measured_is_none_that_an_arm_has() -> None:
    a, c = (
        file(name, run(), run(value(rate), load=Load(8)))
        for name, rate in (("a", 20.0), ("c", 25.0))
    )
    assert keys(join([a, c])) == [("a", "run 1", 20), ("c", "run 1", 25)]
    with pytest.raises(InputError, match="only arm 'a'"):
        join([a, file("b", run())])


def test_files_of_two_tools_are_not_set_beside_each_other() -> None:
    other = Found(
        Document(name="c", sha256="0" * 64, nodes=()), "other", Taken(runs=(run(value(1)),))
    )
    with pytest.raises(
        InputError, match="a is of made, c is of other: tools mean different things"
    ):
        join([file("a", run(value(70))), other])


def test_files_of_two_versions_are_said_to_be() -> None:
    files = [
        Found(Document(name=name, sha256="0" * 64, nodes=()), "made", Taken(runs=(run(value(1)),), version=version))
        for name, version in (("a", "1.0"), ("c", ""))
    ]  # fmt: skip
    told = "the files were written by several versions of made (one that is not told, 1.0)"
    assert told in join(files).notes


@given(st.lists(st.sets(st.integers(0, 5000), min_size=1, max_size=5), min_size=1, max_size=6))
def test_levels_are_near_and_never_join_two_rungs_of_a_run(runs: list[set[int]]) -> None:
    found = levels(runs)
    assert found.keys() == set().union(*runs)
    for context, level in found.items():
        assert level <= context <= level * (1 + NEAR) and found[level] == level
    for contexts in runs:
        assert len({found[context] for context in contexts}) == len(contexts)


def test_counts_of_the_same_prompts_are_one_context() -> None:
    assert levels([{1019, 4096}, {1024, 4100}, {0}]) == {
        0: 0,
        1019: 1019,
        1024: 1019,
        4096: 4096,
        4100: 4096,
    }
    assert levels([{1000, 1010}]) == {1000: 1000, 1010: 1010}
    sheet = join([file("a", run(value(70, 1019))), file("c", run(value(80, 1024)))])
    assert {row.context for row in sheet.rows} == {1019}
    assert any(
        "contexts of 1,019 and 1,024 tokens are taken for one" in note for note in sheet.notes
    )
