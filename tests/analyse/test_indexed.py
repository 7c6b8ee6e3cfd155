from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import World, build, fails

from battery.analyse import findings, indexed
from battery.ledger import index
from battery.ledger.store import Campaign, pretty

pytest.importorskip("pyarrow")

WORLD = World(ladder=(128,), blocks=2, seeds=1, change=fails("oom", lambda r: r.sequence == 7))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("indexed"), WORLD)


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A campaign that is large enough for an index, and whose files count as left alone at once."""
    monkeypatch.setattr(index, "FEWEST", 1)
    monkeypatch.setattr(index, "SETTLED_NS", 0)
    shutil.copytree(made, tmp_path / "receipts" / made.name)
    return tmp_path / "receipts" / made.name


def never(*_: object) -> None:
    raise AssertionError("this must not be needed again")


def same(folder: Path) -> bool:
    """Whether the quick way finds what the slow one does, to the byte."""
    return pretty(indexed.analyse(folder)) == pretty(findings.analyse(folder))


def test_the_second_time_gives_the_same_and_reads_no_receipt(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = findings.analyse(folder)
    assert indexed.analyse(folder) == slow
    assert (folder / index.FILE).exists() and (folder / indexed.FILE).exists()
    monkeypatch.setattr(indexed, "load", never)
    monkeypatch.setattr(indexed, "analysed", never)
    assert indexed.analyse(folder) == slow


def test_other_code_computes_anew_from_the_index(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = indexed.analyse(folder)
    monkeypatch.setattr(indexed, "_code", lambda: "another state of the sources")
    monkeypatch.setattr(indexed, "load", never)
    assert indexed.analyse(folder) == first
    monkeypatch.setattr(indexed, "analysed", never)
    assert indexed.analyse(folder) == first


def change_receipt(folder: Path) -> None:
    path = Campaign(folder).paths()[4]
    path.chmod(0o644)
    told = path.read_text(encoding="utf-8")
    path.write_text(told.replace('"ok"', '"short"', 1), encoding="utf-8")


def take_receipt(folder: Path) -> None:
    Campaign(folder).paths()[4].unlink()


def set_receipt_aside(folder: Path) -> None:
    (folder / "damaged").mkdir()
    path = Campaign(folder).paths()[-1]
    path.rename(folder / "damaged" / path.name)


def add_damaged(folder: Path) -> None:
    (folder / "damaged").mkdir()
    (folder / "damaged" / "0100-b1-A-r128-s1.json").write_bytes(b"")


def note_event(folder: Path) -> None:
    Campaign(folder).note("resumed")


def change_seal(folder: Path) -> None:
    (folder / "seal.json").unlink()


def add_quality(folder: Path) -> None:
    (folder / "quality").mkdir()
    (folder / "quality" / "A.humaneval.json").write_bytes(b"{}")


def change_header(folder: Path) -> None:
    path = folder / "campaign.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace('"seed": 11', '"seed": 12'))


CHANGES = [
    change_receipt, take_receipt, set_receipt_aside, add_damaged, note_event, change_seal, add_quality, change_header,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whatever_changes_is_in_the_findings(folder: Path, change: Callable[[Path], None]) -> None:
    before = indexed.analyse(folder)
    change(folder)
    after = indexed.analyse(folder)
    assert pretty(after) != pretty(before)
    assert pretty(after) == pretty(findings.analyse(folder)) and same(folder)


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "of another key"])
def test_findings_that_are_not_whole_are_computed_anew(folder: Path, how: str) -> None:
    first = indexed.analyse(folder)
    path = folder / indexed.FILE
    data = bytearray(path.read_bytes())
    if how == "cut":
        del data[-7:]
    elif how == "flipped":
        data[-7] ^= 1
    elif how == "empty":
        data.clear()
    else:
        at = len(b"battery findings 1\n")
        data[at : at + 4] = b"0000" if data[at : at + 4] != b"0000" else b"1111"
    path.write_bytes(data)
    assert indexed.analyse(folder) == first
    assert path.read_bytes() != bytes(data)


def test_without_pyarrow_it_is_slower_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert indexed.slowed(folder) == ""
    monkeypatch.setattr(index, "why_not", lambda: "it is not installed")
    assert "all 8 receipts are read each time" in indexed.slowed(folder)
    assert same(folder) and not list(folder.glob(".index*"))
    monkeypatch.setattr(index, "FEWEST", 9)
    assert indexed.slowed(folder) == ""


def test_a_small_campaign_leaves_nothing_beside_its_receipts(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / made.name
    shutil.copytree(made, folder)
    assert same(folder) and not list(folder.glob(".*"))


def test_what_computes_is_told_by_a_process_that_has_loaded_none_of_it() -> None:
    code = "import sys; from battery.analyse import indexed; print(indexed._code(), 'statsmodels' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [indexed._code(), "False"]
