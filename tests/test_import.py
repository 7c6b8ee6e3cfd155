"""`battery import` as a script and as a reader see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from calls import Said

PUBLISHED = Path(__file__).parent / "fixtures" / "foreign" / "interleave-16k.csv"
KEYS = {
    "metric", "context", "control", "candidate", "ratio", "low", "high", "verdict", "method", "warnings",
}  # fmt: skip


@pytest.fixture
def call(say: Callable[..., Said]) -> Callable[..., Said]:
    return partial(say, Path.cwd(), "import")


def test_one_json_object_on_stdout_by_the_real_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "battery", "import", str(PUBLISHED), "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["kind"], found["sources"][0]["name"]) == ("foreign", "interleave-16k.csv")
    (only,) = found["comparisons"]
    assert only.keys() >= KEYS
    assert (only["metric"], only["context"], only["control"], only["candidate"]) == (
        "decode", 16384, "A", "C",
    )  # fmt: skip
    assert only["verdict"] == "undecided" and only["low"] < 1 < only["high"]
    assert only["naive"]["difference"] == pytest.approx(5.33, abs=0.005)
    assert only["by_seed"]["difference_low"] == pytest.approx(-7.9, abs=0.05)
    assert all(isinstance(line, str) for line in only["warnings"])
    assert any("unequal lengths" in line for line in only["warnings"])
    assert not list(tmp_path.iterdir())


def test_a_reader_gets_a_table_and_the_warnings(call: Callable[..., Said]) -> None:
    done = call(str(PUBLISHED), "--claim", "+15.1 %")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    row = next(line for line in lines if line.strip().startswith("decode  16,384"))
    assert "C / A" in row and "undecided" in row and "+7.3 % [−9.6, +27.2] n=3" in row
    for told in (
        "naive pairing +5.33 tok/s [+1.76, +8.89]; by seed +5.3 tok/s [−7.9, +18.6]",
        "! 3 independent units",
        "! unequal lengths",
        "! best of: fastest against fastest says +15.1 %, outside the naive interval",
        "! claim: +15.1 %",
        "note: the file cannot show in which order the arms ran",
    ):
        assert told in done.stdout


def test_options_change_what_they_say(call: Callable[..., Said]) -> None:
    turned = json.loads(call(str(PUBLISHED), "--json", "--control", "C").stdout)["comparisons"][0]
    assert (turned["control"], turned["candidate"]) == ("C", "A")
    assert turned["ratio"] == pytest.approx(1 / 1.07272, abs=1e-5)
    wide = json.loads(call(str(PUBLISHED), "--json", "--margin", "40%").stdout)["comparisons"][0]
    assert (wide["verdict"], wide["qualifier"], wide["margin"]) == (
        "equivalent", "within 40 %", 0.4,
    )  # fmt: skip
    claimed = json.loads(call(str(PUBLISHED), "--json", "--claim", "-3").stdout)
    assert claimed["claim"] == pytest.approx(0.97)


def test_markup_in_a_name_is_text(call: Callable[..., Said], tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    path.write_text(PUBLISHED.read_text().replace("\nC,", "\n[red]C[/red],"))
    assert "[red]C[/red] / A" in call(str(path)).stdout


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["none.csv"], "none.csv: cannot be read: No such file"),
        ([str(PUBLISHED), "--control", "B"], "no arm 'B'; known: A, C"),
        ([str(PUBLISHED), "--margin", "0"], "--margin '0': give a number of percent above 0"),
        ([str(PUBLISHED), "--margin", "wide"], "--margin 'wide'"),
        ([str(PUBLISHED), "--claim", "-100"], "--claim '-100': give a number of percent above -100"),
        ([str(PUBLISHED), "--claim", "nan"], "--claim 'nan'"),
        ([], "file"),
    ],
)  # fmt: skip
def test_wrong_input_ends_with_2_and_says_why(
    call: Callable[..., Said], words: list[str], complaint: str
) -> None:
    done = call(*words, "--json") if words else call()
    assert done.returncode == 2 and done.stdout == ""
    assert complaint in done.stderr and done.stderr.startswith("battery: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_bad_line_is_named(call: Callable[..., Said], tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    path.write_text(PUBLISHED.read_text().replace("82.683", "eighty"))
    done = call(str(path))
    assert done.returncode == 2 and "given.csv:5: value 'eighty' is no number" in done.stderr
