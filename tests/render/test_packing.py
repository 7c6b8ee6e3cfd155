"""What `pack` writes: the same bytes every time, all that verify needs, and nothing private."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from calls import Said
from synthetic import World, build

from battery.ledger import parcel, saved
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign, pretty

HOME = "/ho" + "me/alice/models"
IN_QUALITY = (
    "A.humaneval.jsonl", "A.humaneval.json", "asked/A.humaneval.json", "evalplus/A.humaneval.json",
)  # fmt: skip


@pytest.fixture
def root(published: Path, tmp_path: Path) -> Path:
    shutil.copytree(published, tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def pack(root: Path, say: Callable[..., Said]) -> Callable[..., Said]:
    return partial(say, root, "pack")


def test_the_same_files_give_the_same_bytes(
    root: Path, tmp_path: Path, pack: Callable[..., Said]
) -> None:
    assert pack("calm").returncode == 0
    first = (root / "calm.zip").read_bytes()
    for path in root.rglob("*.json"):
        path.chmod(0o600)
        path.touch()
    said = pack("receipts/calm", "--output", str(tmp_path / "again.zip"))
    assert said.returncode == 0 and (tmp_path / "again.zip").read_bytes() == first
    seal = Campaign(root / "receipts" / "calm").sealed()
    assert seal and seal.seal in said.stdout and "battery verify" in said.stdout


def test_what_is_in_it(root: Path, pack: Callable[..., Said]) -> None:
    quality = root / "receipts" / "calm" / saved.FOLDER
    for name in IN_QUALITY:
        (quality / name).parent.mkdir(parents=True, exist_ok=True)
        (quality / name).write_text("{}\n")
    damaged = root / "receipts" / "calm" / "damaged" / "0009-b1-A-r128-s1.json"
    damaged.parent.mkdir()
    damaged.write_text("{")
    for stray in (
        "receipts/calm/.part-x",
        "receipts/calm/rows.parquet",
        "receipts/campaigns.jsonl",
        "charts/calm/x.txt",
        "reports/LOG.md",
    ):
        (root / stray).write_text("not for others")
    (root / "reports" / "calm.html").write_text("<p>page</p>")
    assert pack("calm").returncode == 0
    with zipfile.ZipFile(root / "calm.zip") as made:
        names = made.namelist()
        assert names == sorted(names) and made.testzip() is None
        for info in made.infolist():
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.external_attr >> 16 == stat.S_IFREG | 0o644
            assert made.read(info) == (root / info.filename).read_bytes()
    sealed = Campaign(root / "receipts" / "calm").sealed()
    assert sealed
    wanted = {f"receipts/calm/{name}" for name in (*sealed.files, "seal.json")}
    wanted |= {f"receipts/calm/quality/{name}" for name in IN_QUALITY}
    wanted |= {f"receipts/calm/damaged/{damaged.name}"}
    wanted |= {f"reports/calm{end}" for end in (".md", ".json", ".html")}
    wanted |= {f"charts/calm/{path.name}" for path in (root / "charts" / "calm").glob("*.svg")}
    assert set(names) == wanted | {"charts/calm/manifest.json"}


def test_what_is_not_finished_or_not_whole_is_not_packed(
    root: Path, pack: Callable[..., Said]
) -> None:
    (root / "receipts" / "calm" / "seal.json").unlink()
    said = pack("calm")
    assert said.returncode == 2 and "not sealed" in said.stderr
    victim = Campaign(root / "receipts" / "brisk").paths()[0]
    victim.chmod(0o600)
    victim.write_text(victim.read_text().replace("ok", "OK", 1))
    said = pack("brisk")
    assert said.returncode == 7 and "not those that were sealed" in said.stderr
    assert not list(root.glob("*.zip"))


def test_what_was_never_reported_or_drawn_is_told(root: Path, pack: Callable[..., Said]) -> None:
    (root / "reports" / "calm.json").unlink()
    assert "battery report calm" in pack("calm").stderr
    shutil.rmtree(root / "charts" / "brisk")
    assert "battery charts brisk" in pack("brisk").stderr
    assert "no campaign" in pack("none").stderr


def test_a_link_in_the_place_of_a_file_is_not_followed(
    root: Path, pack: Callable[..., Said]
) -> None:
    page = root / "reports" / "calm.html"
    page.symlink_to(root / "reports" / "calm.md")
    said = pack("calm")
    assert said.returncode == 7 and "no plain file" in said.stderr


def private(root: Path, evidence: dict[str, str]) -> str:
    """A finished campaign `shown` with this evidence in one receipt; that receipt's name in an archive."""

    def change(receipt: Receipt) -> Receipt:
        return msgspec.structs.replace(receipt, evidence=evidence if receipt.sequence == 5 else {})

    folder = build(root, World(ladder=(128,), blocks=2, seeds=1, change=change), "shown")
    (root / "charts" / "shown").mkdir()
    for name in ("reports/shown.md", "reports/shown.json", "charts/shown/manifest.json"):
        (root / name).write_text("{}\n")
    return f"receipts/shown/{next(folder.glob('0005-*')).name}"


def test_what_is_private_in_a_receipt_is_named_and_nothing_is_written(
    root: Path, pack: Callable[..., Said]
) -> None:
    """A folder, a key inside a quoted configuration, and a value that only its name gives away."""
    evidence = {"log": f"loaded {HOME}", "set": '{"api_key": "abc-123-def"}', "HF_TOKEN": "abc"}
    name = private(root, evidence)
    before = (root / name).read_bytes()
    lines = before.split(b"\n")
    line = next(number for number, x in enumerate(lines, 1) if x.startswith(b'"evidence"'))
    place = f"{name}:{line}"
    said = pack("shown", "calm")
    assert said.returncode == 2 and "3 finds" in said.stderr
    for kind in ("a home folder", "the value of a secret field", "a value under the name HF_TOKEN"):
        assert f"{place}: {kind}" in said.stderr
    assert "abc" not in said.stderr and "alice" not in said.stderr, "it is not shown once more"
    assert not list(root.glob("*.zip")) and (root / name).read_bytes() == before
    said = pack("shown", "--allow", place)
    assert said.returncode == 0, said.stderr
    with zipfile.ZipFile(root / "shown.zip") as made:
        assert made.read(name) == before


def test_what_no_archive_may_hold_is_not_packed(root: Path, pack: Callable[..., Said]) -> None:
    """Where it is opened it would be refused: better said here."""
    quality = root / "receipts" / "calm" / saved.FOLDER
    quality.mkdir(parents=True, exist_ok=True)
    for name in ("A.humaneval.json", "a.humaneval.json"):
        (quality / name).write_text("{}\n")
    said = pack("calm")
    assert said.returncode == 2 and "differs from" in said.stderr and not list(root.glob("*.zip"))


def test_what_is_private_behind_escapes_of_a_page_is_named(
    root: Path, pack: Callable[..., Said]
) -> None:
    (root / "reports" / "calm.html").write_text(
        "<p>&quot;api_key&quot;: &quot;abc-123-def&quot;</p>\n"
    )
    said = pack("calm")
    assert (
        said.returncode == 2 and "reports/calm.html:1: the value of a secret field" in said.stderr
    )


def test_what_is_private_on_a_page_is_named(root: Path, pack: Callable[..., Said]) -> None:
    page = root / "reports" / "calm.md"
    page.write_text(f"{page.read_text()}run in {HOME}\n")
    lines = page.read_text().count("\n")
    said = pack("calm")
    assert said.returncode == 2 and f"reports/calm.md:{lines}: a home folder" in said.stderr
    said = pack("calm", "--allow", "reports/calm.md:1")
    assert said.returncode == 2 and "nothing private was found there" in said.stderr


def test_the_committed_evidence_may_be_shown() -> None:
    """A small one of every kind: with quality or not, a replay, from a GPU."""
    root = Path(__file__).parents[2]
    for name in ("free-ar", "fixed-ar", "h200"):
        named = parcel.members(root, name)
        assert len(named) > 30 and list(parcel.private(named)) == []


def test_a_manifest_may_name_its_charts(root: Path) -> None:
    keys = json.loads((root / "charts" / "calm" / "manifest.json").read_text())["charts"]
    assert keys[0]["key"] and pretty(keys)
    assert list(parcel.private(parcel.members(root, "calm"))) == []
