"""Whatever is kept beside the receipts: pages and charts are those of the receipts, and `verify` reads the receipts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from synthetic import World, build

from battery.analyse import findings, indexed
from battery.analyse.findings import Findings
from battery.ledger import columns, index, loading, parcel
from battery.ledger.store import HEADER, SEAL, Campaign, pretty
from battery.render import charts, report
from battery.render.verify import verify

pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[2]
COMMITTED = sorted(path.parent.name for path in (ROOT / "receipts").glob(f"*/{HEADER}"))
DRAWN = ("fixed-ac", "quality-cpu")
"""Campaigns whose charts are drawn both ways: speed alone, and with answers to coding tasks."""


def never(*_: object) -> None:
    raise AssertionError("this must not be asked here")


@pytest.fixture(autouse=True)
def small_ones_are_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every campaign is large enough for an index, and its files count as left alone at once."""
    monkeypatch.setattr(index, "FEWEST", 1)
    monkeypatch.setattr(index, "SETTLED_NS", 0)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with its charts and its report, which hold."""
    root = tmp_path_factory.mktemp("published")
    folder = build(root, World(ladder=(128,), blocks=2, seeds=1))
    publish(root, findings.analyse(folder))
    assert verify(root, folder.name) == []
    return folder


def publish(root: Path, found: Findings) -> None:
    """Draw and write what a campaign's findings give."""
    charts.render_charts(found, root / "charts" / found.campaign)
    report.write_report(found, root / "reports")


@pytest.fixture
def folder(published: Path, tmp_path: Path) -> Path:
    """The receipts of a copy of it, with an index that fits them."""
    shutil.copytree(published.parents[1], tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "receipts" / published.name
    indexed.analyse(folder)
    assert (folder / index.FILE).exists() and (folder / indexed.FILE).exists()
    return folder


def out(found: Findings) -> tuple[str, list[tuple[str, bytes]]]:
    """The page and every chart."""
    return report.markdown(found), [(key, data) for key, (_, data) in charts.draw(found).items()]


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_campaigns_give_the_same_with_and_without_an_index(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    shutil.copytree(ROOT / "receipts" / name, folder)
    whole = findings.analyse(folder)
    first = indexed.analyse(folder)
    monkeypatch.setattr(indexed, "load", never)
    campaign = Campaign(folder)
    fits = index.find(campaign, index.look(campaign))
    loaded = fits.load() if fits else None
    assert loaded is not None
    again = findings.analysed(campaign, campaign.header(), loaded)
    monkeypatch.setattr(indexed, "analysed", never)
    recalled = indexed.analyse(folder)
    # told to the last type: a page that is made of equal values of other types may have other words
    assert len({repr(found) for found in (whole, first, again, recalled)}) == 1
    assert len({pretty(found) for found in (whole, first, again, recalled)}) == 1
    assert len({report.markdown(found) for found in (whole, again, recalled)}) == 1
    if name in DRAWN:
        assert out(whole) == out(recalled)


def change(path: Path, old: str, new: str) -> None:
    """Put other words of the same length into a receipt."""
    path.chmod(0o644)
    told = path.read_text(encoding="utf-8")
    assert old in told and len(old) == len(new)
    path.write_text(told.replace(old, new, 1), encoding="utf-8")


def test_a_receipt_changed_behind_an_index_is_read_anew_and_verify_names_it(folder: Path) -> None:
    sound = indexed.analyse(folder)
    path = Campaign(folder).paths()[1]
    change(path, '"cached_tokens":0', '"cached_tokens":1')
    after = indexed.analyse(folder)
    assert pretty(after) == pretty(findings.analyse(folder)) != pretty(sound)
    assert any(path.name in problem.place for problem in verify(folder.parents[1], folder.name))


def test_a_broken_seal_is_told_though_the_index_fits(folder: Path) -> None:
    path = folder / SEAL
    told = path.read_text(encoding="utf-8")
    first = Campaign(folder).names()[0]
    at = told.index('": "', told.index(first)) + 4
    path.write_text(
        told[:at] + ("0" if told[at] != "0" else "1") + told[at + 1 :], encoding="utf-8"
    )
    assert index.find(Campaign(folder), index.look(Campaign(folder))) is not None
    after = indexed.analyse(folder)
    assert pretty(after) == pretty(findings.analyse(folder))
    assert verify(folder.parents[1], folder.name)


def empty(path: Path, _: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def swapped(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def flipped(path: Path, _: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(100, len(data), 97):
        data[at] ^= 8
    path.write_bytes(data)


def of_another_folder(path: Path, _: Path) -> None:
    """What a copy of the campaign kept, whose files are others."""
    twin = path.parents[2] / "twin" / path.parent.name
    if not twin.exists():
        shutil.copytree(path.parent, twin, ignore=shutil.ignore_patterns(".index.*"))
        change(Campaign(twin).paths()[1], '"cached_tokens":0', '"cached_tokens":1')
        indexed.analyse(twin)
    path.write_bytes((twin / path.name).read_bytes())


@pytest.mark.parametrize("spoilt", [index.FILE, indexed.FILE, "both"])
@pytest.mark.parametrize(
    "how", [empty, cut, swapped, flipped, of_another_folder], ids=lambda how: how.__name__
)
def test_what_is_kept_can_be_spoilt_and_the_page_stays_that_of_the_receipts(
    folder: Path, how: Callable[[Path, Path], None], spoilt: str
) -> None:
    files = [index.FILE, indexed.FILE]
    for name in files if spoilt == "both" else [spoilt]:
        how(folder / name, folder / files[name == index.FILE])
    assert pretty(indexed.analyse(folder)) == pretty(findings.analyse(folder))


def forge(folder: Path) -> None:
    """An index by somebody who knows how: right stamps and digests, checksums that fit, other receipts."""
    campaign = Campaign(folder)
    now, honest = index.look(campaign), loading.load(campaign)
    lies = [
        replace(one, memory=replace(one.memory, peak=1_000)) if one.cell.arm == "C" else one
        for one in honest.receipts
    ]
    (folder / indexed.FILE).unlink()
    assert index.keep(campaign, now, honest._replace(receipts=lies))


def test_verify_reads_the_receipts_whatever_an_index_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, sound = folder.parents[1], indexed.analyse(folder)
    forge(folder)
    lied = indexed.analyse(folder)
    assert pretty(lied) != pretty(
        sound
    )  # what a second reading trusts: that battery wrote the index
    assert pretty(findings.analyse(folder)) == pretty(sound) and verify(root, folder.name) == []
    publish(root, lied)
    for name in ("find", "look"):
        monkeypatch.setattr(index, name, never)
    monkeypatch.setattr(columns, "read", never)
    monkeypatch.setattr(indexed, "analyse", never)
    places = {problem.place.split(" ")[0] for problem in verify(root, folder.name)}
    assert f"reports/{folder.name}.json" in places
    assert any(place.startswith("charts/") for place in places)


def test_verify_takes_what_is_kept_for_no_stray_and_leaves_none(folder: Path) -> None:
    root, kept = folder.parents[1], sorted(folder.glob(".index.*"))
    assert len(kept) == 2 and verify(root, folder.name) == []
    for path in kept:
        path.unlink()
    assert verify(root, folder.name) == [] and not list(folder.glob(".index.*"))


def test_pack_leaves_out_what_is_kept(folder: Path) -> None:
    named = parcel.members(folder.parents[1], folder.name)
    assert not [name for name in named if ".index." in name]
    assert f"receipts/{folder.name}/{SEAL}" in named and list(folder.glob(".index.*"))


@pytest.mark.parametrize(
    "rules",
    [ROOT / ".gitignore", ROOT / "battery" / "starter" / "gitignore"],
    ids=["here", "starter"],
)
def test_git_does_not_know_what_is_kept(rules: Path, folder: Path) -> None:
    root = folder.parents[1]
    shutil.copy(rules, root / ".gitignore")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    line = ["git", "-C", str(root), "ls-files", "--others", "--exclude-standard"]
    told = subprocess.run(line, check=True, capture_output=True, text=True).stdout.splitlines()
    assert f"receipts/{folder.name}/{SEAL}" in told
    assert not [name for name in told if ".index." in name] and list(folder.glob(".index.*"))
