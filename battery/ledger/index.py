"""A campaign's receipts as one Parquet file beside them, so that they need not all be read a second time.

`receipts/<campaign>/.index.parquet` has a row per receipt file and a column per field of a receipt (lean: `LEFT_OUT`),
beside columns of coordinates for whoever looks at it with another tool. Git does not know it, nothing depends on it,
and whoever deletes it loses seconds.

**What it is trusted for.** It holds the sha256 of every file, so the chain that is computed from it is the seal of the
files as they were read; with the header, prompts and journal, which are always read anew, that chain is compared with
the seal as it is. Whether the files are still those is not read but told from their names, sizes, inodes, and times of
change (mtime and ctime): if any of these differs from what they were when their bytes were read, the whole index is
void and made anew. A program can set a file's mtime back but not its ctime, so a receipt that was changed, added, taken
away or put back is noticed. What could deceive it: writing to the disk below the file system, setting the machine's
clock back while changing a file, or a file system that keeps no ctime of its own (FAT, some network shares); and an
index that somebody who may write to the folder made by hand, with the right stamps and digests over other figures.
Therefore `battery verify` never uses it: it reads every byte of every receipt. An index speaks for the folder on the
machine that made it; copied with its folder it is void, since a copy has other inodes and times.

A file that changed in the last `SETTLED_NS` before it was read could change again within the same tick of the clock;
then no index is kept, and the next reading makes it. An index of another version, or one that is cut off or no Parquet
at all, is made anew like one that does not fit. It is written whole or not at all; of two writers the last wins: both
have written the truth. Without pyarrow (the extra `index`) there is none.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from battery.ledger import disk, strict
from battery.ledger.errors import DiskError
from battery.ledger.loading import Loaded, resting
from battery.ledger.store import Campaign, Seal

FILE = ".index.parquet"
FEWEST = 2_000
"""Receipts below which there is no index: they are read in about a second."""
SETTLED_NS = 2_000_000_000
"""How long a file must have been left alone before it is read, to be told from a later state by its times."""
_STAMP = ("size", "inode", "mtime_ns", "ctime_ns")
_WRITTEN_BY = (
    "receipt.py", "trace.py", "cell.py", "arm.py", "store.py", "strict.py", "loading.py", "lean.py", "columns.py",
    "index.py",
)  # fmt: skip
"""Modules that decide what an index holds; one that another state of them wrote is void."""

_BROKEN = (
    OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError, msgspec.MsgspecError,
)  # fmt: skip
"""What a file of another shape, or with damaged bytes, may raise in whoever reads it, beside pyarrow's own errors."""


class Stamps(NamedTuple):
    """What the file system tells of the receipt files, in chain order."""

    names: list[str]
    stamps: dict[str, list[int]]
    """For every file its size, inode, mtime and ctime; times in nanoseconds."""
    began_ns: int
    """When the look began."""

    @property
    def settled(self) -> bool:
        """Whether every file was left alone for long enough before the look."""
        return max(self.stamps["ctime_ns"], default=0) < self.began_ns - SETTLED_NS


def look(campaign: Campaign) -> Stamps:
    """The receipt files of a campaign as they are now, without reading any."""
    began, names, folder = time.time_ns(), campaign.names(), str(campaign.folder)
    # not through Path: for 100,000 files that takes three times as long as the system does
    told = [os.stat(f"{folder}/{name}") for name in names]  # noqa: PTH116
    stamps = {
        "size": [one.st_size for one in told],
        "inode": [one.st_ino for one in told],
        "mtime_ns": [one.st_mtime_ns for one in told],
        "ctime_ns": [one.st_ctime_ns for one in told],
    }
    return Stamps(names, stamps, began)


@cache
def version() -> str:
    """The digest of the code that decides what an index holds; with any other, it is made anew."""
    here = Path(__file__).parent
    return strict.digest([strict.digest((here / name).read_bytes()) for name in _WRITTEN_BY])


def why_not() -> str:
    """Why no index can be kept or read here; nothing where it can."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return "pyarrow is not installed (the extra `index`)"
    return ""


class Index:
    """An index that fits its folder."""

    def __init__(self, campaign: Campaign, digests: list[tuple[str, str]]) -> None:
        self._campaign = campaign
        self.chain: Seal = campaign.chained(digests)
        """Over the files as they are now."""

    def load(self) -> Loaded | None:
        """Every receipt, as `loading.load` would give them; None where the file does not hold them after all."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        from battery.ledger import columns

        path = self._campaign.folder / FILE
        try:
            with resting(), parquet.ParquetFile(path, page_checksum_verification=True) as file:
                told = file.read(columns=["file", "complaint"]).to_pydict()
                receipts = [one for one in columns.read(file) if one is not None]
        except (pa.ArrowException, *_BROKEN):
            return None  # whatever a damaged file makes of its reader; it is made anew
        complaints = {
            # it begins with the path by which the file was read then
            name: f"{self._campaign.folder / name}{why}"
            for name, why in zip(told["file"], told["complaint"], strict=True)
            if why is not None
        }
        return Loaded(receipts, complaints, self.chain)


def find(campaign: Campaign, now: Stamps) -> Index | None:
    """The index of a campaign, if there is one that fits the files as they are `now`."""
    path = campaign.folder / FILE
    if why_not() or not path.is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            if (file.schema_arrow.metadata or {}).get(b"battery") != version().encode():
                return None
            told = file.read(columns=["file", "sha256", *_STAMP]).to_pydict()
        digests = [one.hex() for one in told["sha256"]]
    except (pa.ArrowException, *_BROKEN):
        return None  # no Parquet, cut off, or of another shape
    if told["file"] != now.names or any(told[name] != now.stamps[name] for name in _STAMP):
        return None
    return Index(campaign, list(zip(now.names, digests, strict=True)))


def keep(campaign: Campaign, before: Stamps, loaded: Loaded) -> bool:
    """Write the index of what was loaded after the look `before`; whether there is one now.

    There is none where files changed meanwhile or just before, where pyarrow is missing, or the folder takes no file.
    """
    if why_not() or not before.settled or look(campaign)[:2] != before[:2]:
        return False
    try:
        with resting():
            disk.replace(campaign.folder / FILE, _bytes(campaign, before, loaded))
    except (DiskError, OverflowError):
        return False
    return True


def _bytes(campaign: Campaign, before: Stamps, loaded: Loaded) -> bytes:
    """The file."""
    import pyarrow as pa

    from battery.ledger import columns

    digests = [bytes.fromhex(loaded.chain.files[name]) for name in before.names]
    receipts = iter(loaded.receipts)
    complaints = {
        name: why.removeprefix(str(campaign.folder / name))
        for name, why in loaded.complaints.items()
    }
    return columns.write(
        {
            "file": (pa.string(), before.names),
            "sha256": (pa.binary(32), digests),
            **{name: (pa.uint64(), before.stamps[name]) for name in _STAMP},
            "complaint": (pa.string(), [complaints.get(name) for name in before.names]),
        },
        (None if name in loaded.complaints else next(receipts) for name in before.names),
        {"battery": version()},
    )
