"""The plain CSV: what is read, and that every fault planted in one is named with its line and a remedy."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from battery.analyse.foreign import plain_csv
from battery.analyse.foreign.findings import analyse
from battery.ledger.errors import InputError

HEAD = "arm,context,seed,round,metric,value,tokens"
GOOD = ["A,512,1,1,decode,70.5,64", "C,512,1,1,decode,71,64"]


def written(folder: Path, *lines: str, head: str = HEAD) -> Path:
    path = folder / "given.csv"
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


def test_a_row_is_what_the_line_says(tmp_path: Path) -> None:
    found = plain_csv.read(written(tmp_path, *GOOD, '"B, x",1024,,r 2,ttft,2.5e-1,'))
    assert found.columns == tuple(HEAD.split(","))
    assert found.arms == ["A", "C", "B, x"] and found.sources[0].name == "given.csv"
    row = found.rows[-1]
    assert (row.line, row.arm, row.context, row.seed, row.round) == (4, "B, x", 1024, None, "r 2")
    assert (row.metric, row.value, row.tokens) == ("ttft", 0.25, None)


def test_columns_in_another_order_blank_lines_and_a_mark_of_bytes_do_not_matter(
    tmp_path: Path,
) -> None:
    plain = plain_csv.read(written(tmp_path, *GOOD))
    path = tmp_path / "other.csv"
    turned = ["tokens,value,metric,round,seed,context,arm", "", " 64 ,70.5,decode,1,1,512,A", ",,"]
    turned[-1] = "64,71,decode,1,1,512,C"
    path.write_bytes("\r\n".join(turned).encode("utf-8-sig"))
    other = plain_csv.read(path)
    assert [(r.arm, r.value, r.tokens) for r in other.rows] == [
        (r.arm, r.value, r.tokens) for r in plain.rows
    ]
    assert [r.line for r in other.rows] == [3, 4]
    assert other.sources[0].sha256 != plain.sources[0].sha256


@pytest.mark.parametrize(
    "lines, complaint",
    [
        ([*GOOD, "C,512,1,1,decode,72,64"],
         "given.csv:4: a second decode of arm 'C' at 512, seed 1, round 1 (the first is on line 3): keep one, or give"
         " each its own round"),
        (["A,512,,,decode,72,64", "A,512,,,decode,73,64"], "with neither seed nor round (the first is on line 2)"),
        ([*GOOD, "C,512,1,2,decod,72,64"], "given.csv:4: unknown metric 'decod'; did you mean 'decode'?"),
        ([*GOOD, "C,512,1,2,speed,72,64"], "unknown metric 'speed'; known: acceptance, decode"),
        ([*GOOD, "C,512,1,2,decode,fast,64"], "given.csv:4: value 'fast' is no number; write digits with"),
        ([*GOOD, 'C,512,1,2,decode,"72,5",64'], "given.csv:4: value '72,5' is no number"),
        ([*GOOD, "C,512,1,2,decode,7_2,64"], "value '7_2' is no number"),
        ([*GOOD, "C,512,1,2,decode,nan,64"], "value 'nan' is no number"),
        ([*GOOD, "C,512,1,2,decode,,64"], "value '' is no number"),
        ([*GOOD, "C,512,1,2,decode,0,64"], "given.csv:4: value 0: a ratio needs numbers above 0; leave out"),
        ([*GOOD, "C,512,1,2,decode,-3,64"], "value -3: a ratio needs numbers above 0"),
        ([*GOOD, "C,512,1,2,decode,1e999,64"], "value inf: a ratio needs numbers above 0"),
        ([*GOOD, "C,512,1,2,ttft,1e30,64"], "value 1e+30 is outside 1e-15 to 1e+18; ttft is told in s"),
        ([*GOOD, "C,16K,1,2,decode,72,64"], "given.csv:4: context '16K' is no whole number above 0"),
        ([*GOOD, "C,0,1,2,decode,72,64"], "context '0' is no whole number above 0"),
        ([*GOOD, "C,,1,2,decode,72,64"], "context '' is no whole number above 0"),
        ([*GOOD, "C,512,1,2,decode,72,0"], "tokens '0' is no whole number above 0; it is the generated tokens, or"),
        ([*GOOD, "C,512,1,2,decode,72,many"], "tokens 'many' is no whole number above 0"),
        ([*GOOD, ",512,1,2,decode,72,64"], "given.csv:4: arm is empty; every value needs one"),
        ([*GOOD, "C,512,1,2,,72,64"], "metric is empty"),
        ([*GOOD, "C,512,1,2,decode,72"], "given.csv:4: 6 cells where the header has 7; an unknown value is left empty"),
        ([*GOOD, "C,512,1,2,decode,72,5,64"], "given.csv:4: 8 cells where the header has 7"),
        ([*GOOD, "\x1b[31mC,512,1,2,decode,72,64"], "has characters that cannot be printed"),
        ([*GOOD, '"C"x,512,1,2,decode,72,64'], "given.csv:4: not valid CSV"),
        (GOOD[:1], "given.csv: only arm 'A'; a comparison needs a second arm in the same file"),
        ([], "given.csv: no values; one line per measured value is needed"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_named(tmp_path: Path, lines: list[str], complaint: str) -> None:
    with pytest.raises(InputError) as refused:
        plain_csv.read(written(tmp_path, *lines))
    assert complaint in str(refused.value)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    "head, complaint",
    [
        ("arm,context,seed,round,metric,value", "given.csv:1: missing column 'tokens'; the first line must be: arm,"),
        (HEAD + ",host", "given.csv:1: unknown column 'host'; known: arm"),
        (HEAD.replace("tokens", "token"), "unknown column 'token'; did you mean 'tokens'?"),
        (HEAD + ",arm", "column 'arm' stands there twice"),
        (HEAD.replace(",", ";"), "unknown column 'arm;context"),
        ("", "the first line must be"),
    ],
)  # fmt: skip
def test_a_header_is_strict(tmp_path: Path, head: str, complaint: str) -> None:
    with pytest.raises(InputError) as refused:
        plain_csv.read(written(tmp_path, *GOOD, head=head))
    assert complaint in str(refused.value)


def test_what_is_no_text_or_no_file(tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    for data, complaint in ((b"", "the file is empty"), (b"\xff\xfe\x00a", "not UTF-8 text")):
        path.write_bytes(data)
        with pytest.raises(InputError, match=complaint):
            plain_csv.read(path)
    for missing in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            plain_csv.read(missing)


def test_a_quoted_line_break_is_refused_where_it_ends(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"given\.csv:5: arm .* cannot be printed"):
        plain_csv.read(written(tmp_path, *GOOD, '"C\nD",512,1,2,decode,72,64'))


def test_figures_do_not_depend_on_how_a_number_is_written(tmp_path: Path) -> None:
    one = analyse(plain_csv.read(written(tmp_path, *GOOD))).comparisons
    other = [GOOD[0].replace("70.5", "+7.05e1"), GOOD[1].replace("71", "71.000")]
    assert analyse(plain_csv.read(written(tmp_path, *other))).comparisons == one


cells = st.sampled_from(
    ["A", "C", "512", "1", "decode", "70", "-1", "1e5", "", " ", '"', "é", "\x00", "\n", ",", ";", "tokens"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(cells, min_size=5, max_size=9).map(",".join), max_size=4))
def test_no_text_gets_past_the_reader_unread(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), *GOOD, *lines)
        try:
            found = plain_csv.read(path)
        except InputError as refused:
            assert str(path) in str(refused)
        else:
            assert len(found.rows) >= len(GOOD) and analyse(found).comparisons
