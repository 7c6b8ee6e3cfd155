"""Archives that somebody else made: what may be in them, and every planted thing that may not."""

from __future__ import annotations

import re
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from battery.ledger import intake, parcel
from battery.ledger.errors import ReceiptError
from battery.ledger.intake import Intake

GOOD = "receipts/x/campaign.json"


def archive(path: Path, *names: str, data: bytes = b"{}", mode: int = 0, method: int = 8) -> Path:
    """An archive of members with these names, as a hostile hand would write it."""
    with zipfile.ZipFile(path, "w") as made:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr, info.compress_type = 3, mode << 16, method
            made.writestr(info, data)
    return path


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture
def room(tmp_path: Path) -> Path:
    made = tmp_path / "outer" / "room"
    made.mkdir(parents=True)
    return made


def refused(path: Path, room: Path) -> str:
    with pytest.raises(ReceiptError) as told:
        parcel.unpack(path, room)
    beside = everything(room.parent) - {f"room/{name}" for name in everything(room)} - {"room"}
    assert not beside, "something landed outside"
    assert not any(path.is_symlink() for path in room.rglob("*"))
    return str(told.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../outside.json", "leads out of the folder"),
        ("receipts/../../outside.json", "leads out of the folder"),
        ("receipts/x/..", "leads out of the folder"),
        ("/etc/passwd", "absolute path"),
        ("C:/x.json", "absolute path"),
        ("c:receipts", "absolute path"),
        ("receipts\\x\\a.json", "backslash"),
        ("receipts/x/a.json:hidden", "colon"),
        ("receipts//a.json", "an empty part"),
        ("receipts/./a.json", "an empty part or a '.'"),
        ("receipts/x./a.json", "ends in a point or a blank"),
        ("receipts/x/a\n.json", "cannot be printed"),
        ("receipts/x/a\u202egnp.json", "cannot be printed"),
        ("README.md", "does not lie in receipts/, charts/, reports/"),
        ("receipts", "does not lie in"),
        ("arms/A.toml", "does not lie in"),
        (f"receipts/{'x' * 240}", "more than 240 letters"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(
    tmp_path: Path, room: Path, name: str, why: str
) -> None:
    told = refused(archive(tmp_path / "bad.zip", GOOD, name), room)
    assert why in told and "bad.zip: member" in told and "battery pack" in told
    assert "\n" not in told and "\u202e" not in told


@pytest.mark.parametrize("size", [1, 2])
def test_a_name_that_ends_in_the_middle_is_seen_whole(
    tmp_path: Path, room: Path, size: int
) -> None:
    path = archive(tmp_path / "bad.zip", "receipts/x/a.json@.svg")
    path.write_bytes(path.read_bytes().replace(b"a.json@", b"a.json\0", size))
    told = refused(path, room)
    assert "cannot be printed" in told if size == 2 else "no whole zip archive" in told


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (stat.S_IFLNK | 0o777, "is a symbolic link"),
        (stat.S_IFCHR | 0o666, "is no plain file"),
        (stat.S_IFIFO | 0o666, "is no plain file"),
        (stat.S_IFSOCK | 0o666, "is no plain file"),
    ],
)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, room: Path, kind: int, why: str) -> None:
    path = archive(tmp_path / "bad.zip", "receipts/x/link", data=b"../../..", mode=kind)
    assert why in refused(path, room)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (
            (GOOD, "receipts/X/campaign.json"),
            "differs from 'receipts/x/campaign.json' by case only",
        ),
        (("receipts/e\u0301/a", "receipts/\u00e9/a"), "by case only"),
        (("receipts/x", "receipts/x/a.json"), "a file and a folder at once"),
        (("receipts/x/a/b.json", "receipts/x/a"), "a file and a folder at once"),
    ],
)
def test_names_that_fall_together_are_refused(
    tmp_path: Path, room: Path, names: tuple[str, ...], why: str
) -> None:
    assert why in refused(archive(tmp_path / "bad.zip", *names), room)


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path, room: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        path = archive(tmp_path / "bad.zip", GOOD, GOOD)
    assert "is there twice" in refused(path, room)


def test_other_packing_and_encryption_are_refused(tmp_path: Path, room: Path) -> None:
    path = archive(tmp_path / "bad.zip", GOOD, method=zipfile.ZIP_BZIP2)
    assert "another method than deflate" in refused(path, room)
    path = archive(tmp_path / "worse.zip", GOOD)
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    path.write_bytes(data)
    assert "is encrypted" in refused(path, room)


def test_a_bomb_is_refused_before_it_is_opened(tmp_path: Path, room: Path) -> None:
    path = archive(tmp_path / "bomb.zip", GOOD, data=bytes(12 * 2**20))
    assert path.stat().st_size < 20_000
    assert "unpacks to more than 200 times its size" in refused(path, room)
    assert not everything(room)


@pytest.mark.parametrize(
    ("bound", "least", "why"),
    [
        ("MOST_BYTES", 99, "has 100 bytes, more than the 99 of a file"),
        ("MOST_TOTAL", 299, "brings all files to more than 299 bytes"),
        ("MOST_MEMBERS", 2, "is more than the 2 files of an archive"),
    ],
)
def test_sizes_and_counts_are_bounded(
    tmp_path: Path, room: Path, monkeypatch: pytest.MonkeyPatch, bound: str, least: int, why: str
) -> None:
    path = archive(
        tmp_path / "big.zip", *(f"receipts/x/{n}.json" for n in range(3)), data=bytes(100)
    )
    monkeypatch.setattr(intake, bound, least)
    assert why in refused(path, room)
    monkeypatch.setattr(intake, bound, least + 1)
    for left in room.rglob("*.json"):
        left.unlink()
    parcel.unpack(path, room)
    assert len([path for path in room.rglob("*") if path.is_file()]) == 3


def test_an_archive_larger_than_evidence_is_refused(
    tmp_path: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "big.zip", GOOD)
    monkeypatch.setattr(parcel, "MOST_TOTAL", path.stat().st_size - 1)
    assert "of an archive" in refused(path, room)


def test_a_list_of_members_that_would_fill_the_memory_is_refused(
    tmp_path: Path, room: Path
) -> None:
    path = archive(tmp_path / "long.zip", GOOD)
    data = bytearray(path.read_bytes())
    struct.pack_into("<L", data, data.rindex(b"PK\x05\x06") + 12, 0x7FFFFFFF)
    path.write_bytes(data)
    assert "its list of members has 2,147,483,647 bytes" in refused(path, room)


def _cut(data: bytes) -> bytes:
    return data[:-30]


def _flipped(data: bytes) -> bytes:
    place = data.index(b"campaign.json") + 16
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def _smaller(data: bytes) -> bytes:
    place = data.index(b"PK\x01\x02") + 24
    return data[:place] + struct.pack("<L", 7) + data[place + 4 :]


@pytest.mark.parametrize(
    "spoil",
    [_cut, _flipped, _smaller, lambda data: b"", lambda data: b"{}", lambda data: data[:40]],
)
def test_what_is_no_whole_archive_is_refused(
    tmp_path: Path, room: Path, spoil: Callable[[bytes], bytes]
) -> None:
    path = archive(tmp_path / "bad.zip", GOOD, data=b'{"a": 1, "b": [1, 2, 3, 4, 5, 6, 7]}')
    path.write_bytes(spoil(path.read_bytes()))
    assert re.search("no whole zip archive|it says", refused(path, room))


def test_folders_in_an_archive_do_no_harm_and_their_names_count(tmp_path: Path, room: Path) -> None:
    parcel.unpack(archive(tmp_path / "good.zip", "receipts/", "receipts/x/", GOOD), room)
    assert (room / GOOD).read_bytes() == b"{}"
    assert "leads out" in refused(archive(tmp_path / "bad.zip", "receipts/../../x/"), room)


@given(
    some.text(min_size=1, max_size=40)
    | some.from_regex(r"(receipts|charts)/[./\\a-zA-Z:~$ ]{1,20}", fullmatch=True)
)
@example("receipts/~/x")
@example("receipts/a/b/../../../c")
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_name_is_let_in_lies_below_the_folder(tmp_path: Path, name: str) -> None:
    room = tmp_path / "room"
    room.mkdir(exist_ok=True)
    try:
        path = Intake("it", room).admit(name, 1)
    except ReceiptError as told:
        assert str(told).startswith("it: member ")
        return
    assert path.resolve().is_relative_to(room.resolve()) and path.resolve() != room.resolve()
    assert path.relative_to(room).as_posix() == name
