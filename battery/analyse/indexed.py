"""The findings of a campaign, quickly the second time: from its index, and from findings that were kept beside it.

`receipts/<campaign>/.index.findings` holds the findings as they were computed last, under a key of everything that they
follow from: the chain over header, prompts, journal and receipts, the seal, what lies in damaged/ and quality/, the
source of every module of this package's reading wing, and the versions of Python and of the libraries that compute.
If any of it is another, they are computed anew, from the index where it still fits the receipts (`ledger.index` says
what it is trusted for), else from the receipts. Campaigns of fewer than `index.FEWEST` receipts have neither file.

`findings.analyse` uses none of this, and `battery verify` uses that.
"""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

import msgspec

from battery.analyse import asked
from battery.analyse.findings import Findings, analysed
from battery.ledger import disk, index, strict
from battery.ledger.errors import DiskError
from battery.ledger.loading import load
from battery.ledger.store import SEAL, Campaign, Seal

FILE = ".index.findings"
_MAGIC = b"battery findings 1\n"
_COMPUTE = ("msgspec", "numpy", "pandas", "scipy", "statsmodels")


def analyse(folder: Path) -> Findings:
    """What `findings.analyse` gives, without reading again what did not change since the last time."""
    campaign = Campaign(folder)
    now = index.look(campaign)
    if len(now.names) < index.FEWEST:
        return analysed(campaign, campaign.header(), load(campaign))
    fits = index.find(campaign, now)
    key = _key(campaign, fits.chain.seal) if fits else ""
    if fits and (known := _recalled(folder / FILE, key)):
        return known
    loaded = fits.load() if fits else None
    if loaded is None:
        loaded = load(campaign)
        key = _key(campaign, loaded.chain.seal) if index.keep(campaign, now, loaded) else ""
    found = analysed(campaign, campaign.header(), loaded)
    # the key once more: a header, journal or score that changed since then is not what was analysed
    if key and key == _key(campaign, _seal_now(campaign, loaded.chain)):
        _keep(folder / FILE, key, found)
    return found


def slowed(folder: Path) -> str:
    """Why a campaign that is large enough for an index cannot have one here; nothing where it can, or needs none."""
    why, receipts = index.why_not(), len(Campaign(folder).names())
    if not why or receipts < index.FEWEST:
        return ""
    return f"no index is kept: {why}; all {receipts:,} receipts are read each time"


def _seal_now(campaign: Campaign, chain: Seal) -> str:
    """The last link of a chain over the receipts as they were read, header, prompts and journal as they are now."""
    read = ((name, chain.files[name]) for name in campaign.names() if name in chain.files)
    return campaign.chained(read).seal


def _key(campaign: Campaign, seal: str) -> str:
    """A digest of everything that the findings of a campaign follow from; `seal` is the last link over its files."""
    own = sorted(path for path in (campaign.folder / asked.FOLDER).rglob("*") if path.is_file())
    sealed = campaign.folder / SEAL
    return strict.digest(
        [
            str(campaign.folder),  # complaints name it
            seal,
            strict.digest(sealed.read_bytes()) if sealed.is_file() else None,
            campaign.damaged(),
            [[str(path.relative_to(campaign.folder)), strict.digest(path.read_bytes())] for path in own],
            _code(),
        ]
    )  # fmt: skip


@cache
def _code() -> str:
    """A digest of what computes findings: this package's modules, and the libraries below them."""
    package = Path(__file__).parents[1]
    sources = sorted(
        path for room in ("ledger", "analyse") for path in (package / room).rglob("*.py")
    )
    told = [[str(path.relative_to(package)), strict.digest(path.read_bytes())] for path in sources]
    versions = [metadata.version(name) for name in _COMPUTE]
    return strict.digest([told, versions, platform.python_version(), platform.machine()])


def _recalled(path: Path, key: str) -> Findings | None:
    """The findings kept under `key`; None where there are none, or the file is not whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = _MAGIC + key.encode() + b"\n"
    body = data[len(head) + 32 :]
    if (
        not data.startswith(head)
        or data[len(head) : len(head) + 32] != hashlib.sha256(body).digest()
    ):
        return None
    return msgspec.msgpack.decode(body, type=Findings)


def _keep(path: Path, key: str, found: Findings) -> None:
    """Keep findings under a key, whole or not at all; a folder that takes no file has none."""
    body = msgspec.msgpack.encode(found)
    data = _MAGIC + key.encode() + b"\n" + hashlib.sha256(body).digest() + body
    try:
        disk.replace(path, data)
    except DiskError:
        return
