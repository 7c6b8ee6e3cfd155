from __future__ import annotations

import os
import random
import shutil
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from battery.ledger import index
from battery.ledger.loading import Loaded, load
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign

pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[2]
NAME = "fixed-ac"


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """A copy of a committed campaign, one receipt of which is torn; its files count as left alone at once."""
    monkeypatch.setattr(index, "SETTLED_NS", 0)
    folder = tmp_path / NAME
    shutil.copytree(ROOT / "receipts" / NAME, folder)
    torn = sorted(folder.glob("0007-*.json"))[0]
    torn.chmod(0o644)
    torn.write_bytes(torn.read_bytes()[:500])
    return Campaign(folder)


def kept(campaign: Campaign) -> Loaded:
    """What an index was made of."""
    now = index.look(campaign)
    loaded = load(campaign)
    assert index.keep(campaign, now, loaded)
    return loaded


def found(campaign: Campaign) -> Loaded | None:
    """What the index gives, if it fits."""
    fits = index.find(campaign, index.look(campaign))
    return fits.load() if fits else None


def plain(receipt: Receipt) -> Receipt:
    """A receipt with its rows as tuples."""
    trace = replace(receipt.trace, events=tuple(receipt.trace.events))
    return replace(receipt, trace=trace, samples=tuple(receipt.samples))


def same(one: Loaded | None, other: Loaded) -> bool:
    """Whether two loads gave the same."""
    return (
        one is not None
        and list(map(plain, one.receipts)) == list(map(plain, other.receipts))
        and (one.complaints, one.chain) == (other.complaints, other.chain)
    )


def test_the_index_gives_what_the_files_give(campaign: Campaign) -> None:
    assert index.find(campaign, index.look(campaign)) is None
    loaded = kept(campaign)
    assert same(found(campaign), loaded) and same(found(campaign), load(campaign))
    assert len(loaded.complaints) == 1 and len(loaded.receipts) == len(campaign.names()) - 1
    assert not list(campaign.folder.glob(".part-*"))


def test_its_columns_tell_coordinates_to_other_tools(campaign: Campaign) -> None:
    import pyarrow.parquet as parquet

    loaded = kept(campaign)
    table = parquet.read_table(campaign.folder / index.FILE, columns=["file", "arm_name", "rung"])
    rows = [row for row in table.to_pylist() if row["arm_name"] is not None]
    assert [(row["arm_name"], row["rung"]) for row in rows] == [
        (receipt.cell.arm, receipt.cell.rung) for receipt in loaded.receipts
    ]


def test_a_changed_receipt_voids_it_though_size_and_mtime_are_as_they_were(
    campaign: Campaign,
) -> None:
    kept(campaign)
    path = campaign.paths()[3]
    before, told = path.stat(), path.read_text(encoding="utf-8")
    path.chmod(0o644)
    path.write_text(told.replace('"seed":1', '"seed":2', 1).replace("2", "3", 1), encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert found(campaign) is None
    assert same(kept(campaign), load(campaign))


@pytest.mark.parametrize("how", ["added", "removed", "renamed", "replaced by a copy"])
def test_another_set_of_files_voids_it(campaign: Campaign, how: str) -> None:
    kept(campaign)
    path = campaign.paths()[2]
    if how == "added":
        shutil.copy(path, path.with_name(path.name.replace("0003", "9003")))
    elif how == "removed":
        path.unlink()
    elif how == "renamed":
        path.rename(path.with_name(path.name.replace("0003", "9003")))
    else:
        shutil.copy2(path, campaign.folder / "copy")
        (campaign.folder / "copy").replace(path)
    assert found(campaign) is None


@pytest.mark.parametrize("name", ["campaign.json", "journal.jsonl", "prompts.json"])
def test_the_chain_is_of_header_prompts_and_journal_as_they_are(
    campaign: Campaign, name: str
) -> None:
    before = kept(campaign).chain
    path = campaign.folder / name
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"\n")
    now = found(campaign)
    assert now is not None and now.chain == campaign.chain() != before


@pytest.mark.parametrize("how", ["empty", "cut", "foreign", "text", "of another version"])
def test_a_damaged_or_foreign_file_is_no_index(
    campaign: Campaign, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    loaded = kept(campaign)
    path = campaign.folder / index.FILE
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif how == "foreign":
        parquet.write_table(pa.table({"file": ["a"]}), path)
    elif how == "text":
        path.write_text("no Parquet at all")
    else:
        monkeypatch.setattr(index, "version", lambda: "0" * 64)
    assert found(campaign) is None
    assert index.keep(campaign, index.look(campaign), loaded) and same(found(campaign), loaded)


def test_no_flipped_byte_makes_it_lie(campaign: Campaign) -> None:
    loaded = kept(campaign)
    path, dice, told = campaign.folder / index.FILE, random.Random(5), []
    whole = path.read_bytes()
    for _ in range(60):
        spoilt = bytearray(whole)
        at = dice.randrange(len(spoilt))
        spoilt[at] ^= 1 << dice.randrange(8)
        path.write_bytes(spoilt)
        seen = found(campaign)
        assert seen is None or same(seen, loaded), at
        told.append(seen is None)
    assert sum(told) > 10


def test_files_that_just_changed_have_none(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "SETTLED_NS", 3_600_000_000_000)
    assert not index.keep(campaign, index.look(campaign), load(campaign))
    assert not (campaign.folder / index.FILE).exists()


def test_files_that_change_while_they_are_read_have_none(campaign: Campaign) -> None:
    before = index.look(campaign)
    loaded = load(campaign)
    campaign.paths()[0].touch()
    assert not index.keep(campaign, before, loaded)


def test_a_folder_that_takes_no_file_has_none(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    from battery.ledger import disk

    def refuse(path: Path, data: bytes) -> None:
        with disk.writing(path):
            raise OSError(30, "Read-only file system")

    monkeypatch.setattr(disk, "replace", refuse)
    assert not index.keep(campaign, index.look(campaign), load(campaign))


def test_without_pyarrow_there_is_none(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = kept(campaign)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "the extra `index`" in index.why_not()
    assert found(campaign) is None
    assert not index.keep(campaign, index.look(campaign), loaded)


def test_whoever_reads_while_others_write_finds_a_whole_one(campaign: Campaign) -> None:
    loaded, before = kept(campaign), index.look(campaign)
    writers = [
        threading.Thread(target=lambda: [index.keep(campaign, before, loaded) for _ in range(10)])
        for _ in range(2)
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert same(found(campaign), loaded)
    assert same(found(campaign), loaded) and not list(campaign.folder.glob(".part-*"))


def test_complaints_name_the_folder_as_it_is_given_now(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(campaign)
    monkeypatch.chdir(campaign.folder.parent)
    near = Campaign(Path(campaign.folder.name))
    assert same(found(near), load(near))
    (told,) = found(near).complaints.values()  # type: ignore[union-attr]
    assert told.startswith(f"{campaign.folder.name}/0007-")
