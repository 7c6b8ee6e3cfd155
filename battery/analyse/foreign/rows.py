"""Measured values of others as rows, whatever file they came in.

`plain_csv` turns a CSV into a `Sheet`, `joining` the files of other tools (one reader each in `formats/`); the analysis
sees nothing else. Labels of seeds and rounds are text, for they are only compared: "1" and "1.0" are two of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from battery.analyse.rows import MEASURES
from battery.ledger.errors import InputError
from battery.ledger.strict import nearest

SMALLEST, LARGEST = 1e-15, 1e18
"""Values outside are taken for a slip of the unit: bytes, rates and seconds all lie far inside."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read: its name without folders, the sha256 of its bytes, and what it says of itself."""

    name: str
    sha256: str
    format: str = "csv"
    version: str = ""
    """Of the tool that wrote it; empty where the file does not say."""
    arms: tuple[str, ...] = ()
    """What it measured, as named here; empty for a CSV, whose lines name their arms."""
    started: str = ""
    """The file's own stamp of its first run, to the second, with its zone if it tells one; empty where it has none."""
    load: str = ""
    """How many requests ran at a time, in words; empty where no requests were sent or nothing says so."""
    requests: int | None = None
    """Requests that ended well; None where the file does not say, or sends none."""
    failed: int | None = None
    """Requests that did not; None as above."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one metric, in the metric's own unit (seconds, tok/s, bytes)."""

    line: int
    """Where in the file it stands, for messages: its line in a CSV; the run's number in other tools' files."""
    arm: str
    context: int | None
    """Tokens of context, 0 for a decode that begins with none; None: the file does not say."""
    seed: str | None
    """Label of the prompt and its sampling seed; None: the file does not say."""
    round: str | None
    """Label of the window, block or repetition; None: the file does not say."""
    metric: str
    value: float
    tokens: int | None
    """Generated tokens, of the mean of several requests their mean; None: the file does not say."""
    n: int = 1
    """Repetitions or requests that the value is the mean of."""
    low: float | None = None
    """The smallest of them; None where the file keeps no single ones."""
    high: float | None = None


class Unmeasured(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that files of one format have no value for, and why: it is null, never 0."""

    metric: str
    format: str
    why: str


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of a CSV, or of the files of other tools, in their order."""

    sources: tuple[Source, ...]
    columns: tuple[str, ...]
    """Of a CSV; empty for other files."""
    rows: tuple[Row, ...]
    order: str = ""
    """In which order the runs went by their own stamps, in words; empty where that cannot be told."""
    unmeasured: tuple[Unmeasured, ...] = ()
    notes: tuple[str, ...] = ()
    """What the formats cannot show, and what was taken out of them."""

    @property
    def arms(self) -> list[str]:
        """Arms in the order of their first row."""
        return list(dict.fromkeys(row.arm for row in self.rows))

    @property
    def named(self) -> str:
        """The files, for messages."""
        return ", ".join(source.name for source in self.sources)


def check(rows: Sequence[Row], where: str) -> None:
    """InputError for the first row that cannot be compared: an unknown metric, a value that is none, a twin."""
    seen: dict[tuple[object, ...], int] = {}
    for row in rows:
        at = f"{where}:{row.line}"
        if row.metric not in MEASURES:
            raise InputError(f"{at}: unknown metric '{row.metric}'{nearest(row.metric, MEASURES)}")
        if not math.isfinite(row.value) or row.value <= 0:
            raise InputError(
                f"{at}: value {row.value:g}: a ratio needs numbers above 0; leave out what was not measured"
            )
        if not SMALLEST <= row.value <= LARGEST:
            raise InputError(
                f"{at}: value {row.value:g} is outside {SMALLEST:g} to {LARGEST:g}; {row.metric} is told in"
                f" {MEASURES[row.metric].unit}"
            )
        key = (row.arm, row.context, row.seed, row.round, row.metric)
        if key in seen:
            raise InputError(f"{at}: {_twin(row, seen[key])}")
        seen[key] = row.line
    if not rows:
        raise InputError(f"{where}: no values; one line per measured value is needed")
    arms = {row.arm for row in rows}
    if len(arms) < 2:
        raise InputError(
            f"{where}: only arm '{rows[0].arm}'; a comparison needs a second arm in the same file"
        )


def _twin(row: Row, first: int) -> str:
    """What is said of a second value for the same coordinates."""
    what = f"a second {row.metric} of arm '{row.arm}' at {row.context}"
    if row.seed is None and row.round is None:
        return f"{what} with neither seed nor round (the first is on line {first}): give each its seed or its round"
    labels = ", ".join(
        f"{name} {label}"
        for name, label in (("seed", row.seed), ("round", row.round))
        if label is not None
    )
    return f"{what}, {labels} (the first is on line {first}): keep one, or give each its own round"
