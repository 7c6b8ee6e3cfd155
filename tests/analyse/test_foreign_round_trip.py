"""Rows written as a plain CSV are the rows that are read, whatever their names and however large their values."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from battery.analyse.foreign import plain_csv
from battery.analyse.foreign.rows import LARGEST, SMALLEST, Row
from battery.analyse.rows import MEASURES

LABELS = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=8
).filter(lambda text: text.isprintable() and bool(text.strip()) and text == text.strip())
KEYS = st.tuples(
    LABELS, st.integers(1, 10**12 - 1), st.none() | LABELS, st.none() | LABELS, st.sampled_from(sorted(MEASURES))
)  # fmt: skip
FIGURES = st.tuples(st.floats(SMALLEST, LARGEST), st.none() | st.integers(1, 10**12 - 1))
ROWS = st.dictionaries(KEYS, FIGURES, min_size=2, max_size=8).filter(
    lambda rows: len({key[0] for key in rows}) > 1
)


@settings(max_examples=100, deadline=None)
@given(ROWS, st.permutations(plain_csv.COLUMNS))
def test_a_csv_says_what_its_rows_said(
    rows: dict[tuple[str, int, str | None, str | None, str], tuple[float, int | None]], order: list[str]
) -> None:  # fmt: skip
    text = io.StringIO()
    table = csv.DictWriter(text, order, lineterminator="\n")
    table.writeheader()
    for (arm, context, seed, turn, metric), (value, tokens) in rows.items():
        told = (arm, context, seed, turn, metric, repr(value), tokens)
        table.writerow(dict(zip(plain_csv.COLUMNS, told, strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.csv"
        path.write_text(text.getvalue(), encoding="utf-8")
        read = plain_csv.read(path)
    assert read.columns == tuple(order)
    assert read.rows == tuple(
        Row(
            line=place, arm=arm, context=context, seed=seed, round=turn, metric=metric, value=value, tokens=tokens
        )
        for place, ((arm, context, seed, turn, metric), (value, tokens)) in enumerate(rows.items(), start=2)
    )  # fmt: skip
