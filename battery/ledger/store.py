"""Where a campaign's record lives: write once, read, seal, and refuse to pool what may not be pooled.

receipts/<campaign>/
  campaign.json      plan, arms, order, coin flip: written before the first window
  prompts.json       how each prompt was sized
  journal.jsonl      started, resumed, abandoned, interrupted, finished
  0001-b1-A-r128-s1.json …   one receipt per cell, read-only
  seal.json          sha256 of every file above, chained in order
"""

from __future__ import annotations

import datetime
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from battery.ledger import scrub, strict
from battery.ledger.arm import Arm
from battery.ledger.errors import ReceiptError
from battery.ledger.plan import Plan
from battery.ledger.receipt import SCHEMA, Receipt

HEADER, PROMPTS, JOURNAL, SEAL = "campaign.json", "prompts.json", "journal.jsonl", "seal.json"


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was fixed before the first window."""

    schema: int = SCHEMA
    campaign: str
    plan: Plan
    plan_digest: str
    arms: tuple[Arm, ...]
    """In the order they were asked for; the first is the control."""
    arm_digests: dict[str, str]
    order: tuple[tuple[str, ...], ...]
    """Per block, the arms in the order they run."""
    coin: str
    """The recorded flip that decided which arm opens."""
    seed: int
    """Of the flip and of every prompt of this campaign."""
    created: str
    machine: dict[str, Any]
    battery: dict[str, Any]
    baseline: dict[str, Any]
    """The calibration and temperatures before the first window, or why there are none."""

    @property
    def control(self) -> str:
        """The arm that the others are compared with."""
        return self.arms[0].name

    @property
    def cells_per_window(self) -> int:
        """Cells that one complete window leaves."""
        return len(self.plan.ladder) * self.plan.seeds + int(self.plan.sentinel)


class Seal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chain over a campaign's files. `seal` is the last link: quote it, and the files are fixed."""

    schema: int = SCHEMA
    campaign: str
    files: dict[str, str]
    """sha256 per file, in chain order."""
    seal: str


def utc_now() -> str:
    """The wall clock in UTC, to the second, for people."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_once(path: Path, data: bytes, mode: int = 0o444) -> None:
    """Write `data` to `path` so that it is there whole or not at all; an existing file is never replaced.

    Temporary file, fsync, then a hard link to the final name, which fails if the name is taken.
    """
    handle, temporary = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        try:
            os.link(temporary, path)
        except FileExistsError as taken:
            raise ReceiptError(
                f"{path}: exists already; a receipt is written once and never replaced"
            ) from taken
    finally:
        Path(temporary).unlink(missing_ok=True)
    _sync_folder(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically, replacing what stood there."""
    handle, temporary = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)


def _sync_folder(folder: Path) -> None:
    """Make a new name in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def pretty(value: object) -> bytes:
    """JSON that people and `diff` can read: one blank of indentation, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def by_field(receipt: Receipt) -> bytes:
    """A receipt as JSON with one line per field: `diff` names the field, and a thousand events stay one line."""
    fields = [
        msgspec.json.encode(name) + b": " + msgspec.json.encode(getattr(receipt, name))
        for name in receipt.__struct_fields__
    ]
    return b"{\n" + b",\n".join(fields) + b"\n}\n"


class Campaign:
    """One campaign's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, header: Header) -> Campaign:
        """A new folder with its header; ReceiptError if there is a campaign already."""
        folder.mkdir(parents=True, exist_ok=True)
        write_once(folder / HEADER, pretty(header))
        return cls(folder)

    @property
    def exists(self) -> bool:
        """Whether a campaign was ever started here."""
        return (self.folder / HEADER).is_file()

    def header(self) -> Header:
        """What was fixed before the first window."""
        return strict.read_json(self.folder / HEADER, Header)

    def note(self, event: str, **facts: object) -> None:
        """Append one line to the journal, behind whatever a crash may have left of the last one."""
        line = msgspec.json.encode({"at": utc_now(), "event": event, **scrub.deep(facts)}) + b"\n"
        path = self.folder / JOURNAL
        torn = path.is_file() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
        with path.open("ab") as file:
            file.write(b"\n" + line if torn else line)
            file.flush()
            os.fsync(file.fileno())

    def journal(self) -> list[dict[str, Any]]:
        """Every event so far, oldest first; a line that a crash cut off is an event `unreadable`."""
        path = self.folder / JOURNAL
        events: list[dict[str, Any]] = []
        for line in path.read_bytes().splitlines() if path.is_file() else ():
            try:
                events.append(msgspec.json.decode(line, type=dict[str, Any]))
            except msgspec.DecodeError:
                events.append({"at": "", "event": "unreadable"})
        return events

    def write(self, receipt: Receipt) -> Path:
        """Keep one receipt; its name tells its coordinates."""
        cell = receipt.cell
        seed = "sentinel" if cell.sentinel else f"s{cell.seed}"
        name = f"{receipt.sequence:04d}-b{cell.block}-{cell.arm}-r{cell.rung}-{seed}.json"
        path = self.folder / name
        write_once(path, by_field(receipt))
        return path

    def paths(self) -> list[Path]:
        """Receipt files in the order they were written."""
        return sorted(
            self.folder.glob("[0-9][0-9][0-9][0-9]*-b*.json"),
            key=lambda path: (len(path.name.split("-")[0]), path.name),
        )

    def receipts(self) -> list[Receipt]:
        """Every receipt, in order; ReceiptError names the first that cannot be read."""
        return [strict.read_json(path, Receipt) for path in self.paths()]

    def readable(self) -> tuple[list[Receipt], list[str]]:
        """The receipts that can be read, and a complaint for each that cannot."""
        good, complaints = [], []
        for path in self.paths():
            try:
                good.append(strict.read_json(path, Receipt))
            except ReceiptError as broken:
                complaints.append(str(broken))
        return good, complaints

    def seal(self) -> Seal:
        """Chain the sha256 of header, prompts, journal and receipts in order, and keep it as `seal.json`."""
        seal = self.chain()
        replace(self.folder / SEAL, pretty(seal))
        return seal

    def chain(self) -> Seal:
        """The chain over the files as they are now: link = sha256(previous link + name + sha256 of the file)."""
        link, files = strict.digest(self.folder.name), {}
        fixed = [
            self.folder / name
            for name in (HEADER, PROMPTS, JOURNAL)
            if (self.folder / name).is_file()
        ]
        for path in [*fixed, *self.paths()]:
            files[path.name] = strict.digest(path.read_bytes())
            link = strict.digest(f"{link}\n{path.name}\n{files[path.name]}")
        return Seal(campaign=self.folder.name, files=files, seal=link)

    def sealed(self) -> Seal | None:
        """The seal as committed, or None while the campaign is not finished."""
        path = self.folder / SEAL
        return strict.read_json(path, Seal) if path.is_file() else None


def block_attempts(
    receipts: Iterable[Receipt], header: Header
) -> dict[int, dict[int, list[Receipt]]]:
    """Receipts by block and attempt."""
    found: dict[int, dict[int, list[Receipt]]] = defaultdict(lambda: defaultdict(list))
    for receipt in receipts:
        found[receipt.cell.block][receipt.attempt].append(receipt)
    return found


def complete_blocks(receipts: Iterable[Receipt], header: Header) -> dict[int, list[Receipt]]:
    """The receipts of each block that has every cell of every arm in one attempt; the last such attempt counts.

    An attempt in which the machine was disturbed counts only once the plan's reruns are used up. Receipts of other
    attempts are abandoned: kept, shown, never pooled.
    """
    whole = header.cells_per_window * len(header.arms)
    complete: dict[int, list[Receipt]] = {}
    for block, attempts in sorted(block_attempts(receipts, header).items()):
        disturbances = 0
        for _, cells in sorted(attempts.items()):
            disturbances += (disturbed := any(cell.breach for cell in cells))
            stands = not disturbed or disturbances > header.plan.limits.reruns
            if len(cells) == whole and stands:
                complete[block] = sorted(cells, key=lambda receipt: receipt.sequence)
    return complete


def check_pool(receipts: Iterable[Receipt], header: Header) -> None:
    """ReceiptError when receipts do not belong together.

    That is: another campaign, plan, schema, arm or model, one cell twice, or a plan that is not the one
    its digest names.
    """
    if header.plan.digest != header.plan_digest:
        raise ReceiptError(
            f"{header.campaign}: {HEADER} holds another plan than its digest names; restore the file"
        )
    seen: dict[tuple[object, ...], int] = {}
    models: dict[str, object] = {}
    for receipt in receipts:
        where = f"{header.campaign}: receipt {receipt.sequence}"
        same = (
            ("schema", receipt.schema, header.schema),
            ("campaign", receipt.campaign, header.campaign),
            ("plan digest", receipt.plan_digest, header.plan_digest),
            (
                f"digest of arm {receipt.cell.arm}",
                receipt.arm_digest,
                header.arm_digests.get(receipt.cell.arm),
            ),
        )
        for what, found, wanted in same:
            if found != wanted:
                raise ReceiptError(
                    f"{where}: {what} is {found}, the campaign's is {wanted}; these may not be pooled"
                )
        key = (receipt.attempt, msgspec.json.encode(receipt.cell))
        if key in seen:
            raise ReceiptError(
                f"{where}: the same cell as receipt {seen[key]}; a cell has one receipt"
            )
        seen[key] = receipt.sequence
        digest = receipt.model.get("digest")
        if digest is not None and models.setdefault(receipt.cell.arm, digest) != digest:
            raise ReceiptError(f"{where}: arm {receipt.cell.arm} ran on two models ({digest} here)")
