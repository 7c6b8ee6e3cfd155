"""One archive with all that a reader needs to check campaigns: packed for a pull request, opened by whom it reaches.

campaigns.zip
  receipts/<campaign>/…   header, prompts, journal, receipts, seal, damaged/, quality/
  charts/<campaign>/…     pictures and their manifest
  reports/<campaign>.…    the pages, and the findings that they rest on

Names sorted, times and rights fixed: the same files give the same bytes with the same zlib. What may be private is
looked for in every member before a byte is written, and told by file and line; a sealed receipt is never rewritten.
"""

from __future__ import annotations

import errno
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from battery.ledger import exposed, sanitised, saved
from battery.ledger.errors import InputError, ReceiptError
from battery.ledger.intake import MOST_MEMBERS, MOST_TOTAL, Intake
from battery.ledger.store import DAMAGED, HEADER, JOURNAL, PROMPTS, SEAL, Campaign

PAGES = (".json", ".md", ".html")
"""What a campaign's files in reports/ end in."""
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
_PER_MEMBER = 2**10
"""Bytes of an archive's directory that one member takes, at most."""
_CHUNK = 2**20
_SMALL, _RATIO = 2**20, 200
"""Files above `_SMALL` that pack to less than one in `_RATIO` are no evidence: JSON and SVG pack to 1 in 5 to 30."""


class Found(NamedTuple):
    """Something private in a member."""

    place: str
    """`file:line`, as `--allow` takes it."""
    kind: str


def members(root: Path, campaign: str) -> dict[str, Path]:
    """The files of a campaign by their names in an archive.

    InputError where it is not finished, not reported or has what no archive may; ReceiptError where its files are not
    those that were sealed.
    """
    store = Campaign(root / "receipts" / campaign)
    sealed = store.sealed()
    if sealed is None:
        raise InputError(f"{store.folder}: not sealed; finish the campaign, then pack it")
    if store.chain() != sealed:
        raise ReceiptError(
            f"{store.folder}: its files are not those that were sealed (battery verify {campaign} names them); restore"
            " them from version control"
        )
    wanted = [root / "reports" / f"{campaign}{end}" for end in PAGES[:2]]
    wanted.append(root / "charts" / campaign / "manifest.json")
    for path in wanted:
        if not path.is_file():
            raise InputError(
                f"{path}: no such file; make it: battery charts {campaign}, battery report {campaign}"
            )
    named = {
        path.relative_to(root).as_posix(): path
        for path in sorted(_files(root, campaign, sealed.files))
    }
    intake = Intake(campaign, root)
    try:
        for name, path in named.items():
            intake.check(name, path.stat().st_size)
    except ReceiptError as refused:
        raise InputError(
            f"{refused.args[0].partition(';')[0]}: nobody could open such an archive; give it another name, or send the"
            " folder itself"
        ) from refused
    return named


def _files(root: Path, campaign: str, sealed: Iterable[str]) -> Iterator[Path]:
    """What belongs to a campaign, found by the names that battery gives; ReceiptError for what is no plain file."""
    receipts, charts = root / "receipts" / campaign, root / "charts" / campaign
    names = {HEADER, PROMPTS, JOURNAL, SEAL, *sealed}
    found = [receipts / name for name in names if (receipts / name).exists()]
    found += [*(receipts / DAMAGED).glob("[0-9]*-b*.json")]
    quality = receipts / saved.FOLDER
    for folder in (quality, quality / saved.ASKED, quality / sanitised.PLACE):
        found += [*folder.glob("*.json"), *folder.glob("*.jsonl")]
    found += [*charts.glob("*.svg"), *charts.glob("*.json")]
    found += [root / "reports" / f"{campaign}{end}" for end in PAGES]
    for path in found:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise ReceiptError(f"{path}: no plain file; put the file itself there")
        if path.is_file():
            yield path


def private(named: dict[str, Path]) -> Iterator[Found]:
    """What should not leave this machine, member by member and line by line: secrets, home folders, its own paths."""
    for name, path in named.items():
        text = path.read_text(encoding="utf-8", errors="replace")
        for line, kind in exposed.lines(text, chart_keys=name.startswith("charts/")):
            yield Found(f"{name}:{line}", kind)


def packed(named: dict[str, Path]) -> bytes:
    """The archive of these files: sorted by name, every time and right the same."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, path in sorted(named.items()):
            info = zipfile.ZipInfo(name, _FIRST_DAY)
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)
    return made.getvalue()


def unpack(path: Path, folder: Path) -> None:
    """Open an archive that nobody vouches for in an empty folder; ReceiptError names the member that may not be there.

    Refused are names that lead elsewhere, links and devices, names that are there twice, encrypted members, packing
    that battery does not use, and more members or bytes than evidence has (ledger.intake).
    """
    intake = Intake(path.name, folder)
    try:
        with path.open("rb") as file:
            _bounded(path, file)
            with zipfile.ZipFile(file) as archive:
                for info in archive.infolist():
                    _member(archive, info, intake)
    except _BROKEN as broken:
        raise _no_archive(path, broken) from broken
    except OSError as broken:
        if (
            broken.errno != errno.EINVAL
        ):  # a place before the beginning, which only its directory can name
            raise
        raise _no_archive(path, broken) from broken


_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, ValueError, NotImplementedError)
"""What the standard library raises over an archive that is not whole, or that asks for more than it can."""


def _no_archive(path: Path, broken: Exception) -> ReceiptError:
    return ReceiptError(
        f"{path.name}: no whole zip archive ({broken}); fetch it once more, or ask for one made by battery pack"
    )


def _bounded(path: Path, file: io.BufferedReader) -> None:
    """ReceiptError for an archive whose list of members would fill the memory: it is read before anything else."""
    size = file.seek(0, io.SEEK_END)
    if size > MOST_TOTAL:
        raise ReceiptError(
            f"{path.name}: {size:,} bytes, more than the {MOST_TOTAL:,} of an archive"
        )
    file.seek(max(0, size - 2**16 - 22))
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0:
        raise zipfile.BadZipFile("it has no directory")
    (listed,) = struct.unpack_from("<L", tail, end + 12)
    if (
        b"PK\x06\x07" in tail
    ):  # a hundred thousand members need the longer record, and then its field counts
        longer = tail.index(b"PK\x06\x06") if b"PK\x06\x06" in tail else len(tail)
        (listed,) = struct.unpack_from("<Q", tail, longer + 40)
    if listed > MOST_MEMBERS * _PER_MEMBER:
        raise ReceiptError(
            f"{path.name}: its list of members has {listed:,} bytes, more than {MOST_MEMBERS:,} files need"
        )
    file.seek(0)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, intake: Intake) -> None:
    """Write one member, or refuse it."""
    name, kind = info.orig_filename, stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise intake.refuse(name, "is a symbolic link")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise intake.refuse(name, "is no plain file")
    if info.flag_bits & 0x1:
        raise intake.refuse(name, "is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise intake.refuse(name, "is packed by another method than deflate")
    if name.endswith("/"):
        if name.rstrip("/") not in ("receipts", "charts", "reports"):
            intake.name(name.removesuffix("/"))
        return
    if info.file_size > max(_SMALL, _RATIO * info.compress_size):
        raise intake.refuse(name, f"unpacks to more than {_RATIO} times its size")
    target = intake.admit(name, info.file_size)
    taken = 0
    with archive.open(info) as source, target.open("xb") as sink:
        while chunk := source.read(_CHUNK):
            taken += len(chunk)
            sink.write(chunk)
    if taken != info.file_size:
        raise intake.refuse(name, f"has {taken:,} bytes, not the {info.file_size:,} it says")
