"""Where a campaign's record lives: write once, read, seal, and refuse to pool what may not be pooled.

receipts/campaigns.jsonl   every campaign that was started here
receipts/<campaign>/
  campaign.json      plan, arms, order, coin flip: written before the first window
  prompts.json       how each prompt was sized
  journal.jsonl      started, resumed, look, disturbed, abandoned, settled, damaged, interrupted, failed, finished
  0001-b1-A-r128-s1.json …   one receipt per cell, read-only
  seal.json          sha256 of header, prompts, journal and receipts, chained in order
  quality/           answers to coding tasks and their scores (ledger.saved); asked later, so not in the seal
  damaged/           receipts that a power cut or a bad disk left unreadable; never pooled, not in the seal
  .index.parquet, .index.findings   what a second look at a large campaign need not compute again (ledger.index,
                     analyse.indexed): not in the seal, not in git, and nothing is lost with them

A name that begins with .part- is a file on its way; what a killed battery left of them goes at the next start.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from battery.ledger import disk, journal, scrub, strict
from battery.ledger.arm import Arm
from battery.ledger.disk import PART, write_once, writing
from battery.ledger.disk import replace as replace
from battery.ledger.errors import BatteryError, ReceiptError
from battery.ledger.plan import Plan
from battery.ledger.pool import Pool
from battery.ledger.receipt import SCHEMA, Receipt

HEADER, PROMPTS, JOURNAL, SEAL = "campaign.json", "prompts.json", "journal.jsonl", "seal.json"
CAMPAIGNS = "campaigns.jsonl"
"""Beside the campaigns' folders: every start, whatever became of it (ledger.history)."""
DAMAGED = "damaged"
_REMEDY = {
    HEADER: "restore it from version control or a copy: without it nobody knows what was measured",
    PROMPTS: "restore it from version control or a copy, or start a new campaign: prompts are never sized twice",
    SEAL: "restore it from version control, or delete it and run the campaign again: it is sealed anew",
}
RECEIPT_REMEDY = (
    "restore it from version control, or run the campaign again: while it is not sealed, the file is set aside and"
    " its block measured anew"
)


_RECEIPT = re.compile(r"[0-9]{4}.*-b.*\.json", re.DOTALL)
"""The name of a receipt's file: its number, then its coordinates."""

Screen = Literal["", "knockout", "isolate"]


class Started(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One campaign that was started, whatever became of it."""

    campaign: str
    at: str
    plan: str
    plan_digest: str
    arms: tuple[str, ...]
    ended: str
    """`finished`, or how far it came."""


class Earlier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was started before a campaign: those with two or more of its arms one by one, the others as a number."""

    same_arms: tuple[Started, ...] = ()
    others: int = 0


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
    screen: Screen = ""
    """Whether the arms are one arm's knock-outs or isolations: many questions at once, so an exploratory screen."""
    earlier: Earlier | None = None
    """What was started here before: campaigns with two or more of these arms one by one, the others as a number; None
    where that was not kept."""

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
        write_once(folder / HEADER, pretty(header))
        return cls(folder)

    @property
    def exists(self) -> bool:
        """Whether a campaign was ever started here; ReceiptError if its header is lost and receipts are there."""
        there = (self.folder / HEADER).is_file()
        if not there and self.paths():
            raise ReceiptError(
                f"{self.folder / HEADER}: no such file, but there are receipts; {_REMEDY[HEADER]}"
            )
        return there

    def header(self) -> Header:
        """What was fixed before the first window."""
        return strict.read_json(self.folder / HEADER, Header, _REMEDY[HEADER])

    def prompts(self, kind: type[strict.T]) -> strict.T:
        """How each prompt was sized."""
        return strict.read_json(self.folder / PROMPTS, kind, _REMEDY[PROMPTS])

    def clean(self) -> None:
        """Remove what a killed battery left of files on their way. Only for who holds the machine's lock."""
        for part in self.folder.glob(f"{PART}*"):
            with writing(part):
                part.unlink(missing_ok=True)

    def set_aside(self) -> list[str]:
        """Move receipts whose bytes are no JSON to damaged/ and say so in the journal; the complaint about each.

        Their blocks are then incomplete, and measured again. ReceiptError for a receipt that is whole but of another
        shape: it is of another battery, and nothing is wrong with it.
        """
        complaints = []
        for path in self.paths():
            try:
                self._receipt(path)
            except strict.Torn as torn:
                kept = self.folder / DAMAGED / path.name
                with writing(kept):
                    kept.parent.mkdir(exist_ok=True)
                    path.replace(kept)
                self.note("damaged", file=path.name, reason=str(torn.__cause__))
                complaints.append(
                    f"{path}: cannot be read ({torn.__cause__}); it is kept in {DAMAGED}/, and its block is measured"
                    " again"
                )
        return complaints

    def _receipt(self, path: Path) -> Receipt:
        """One receipt."""
        return strict.read_json(path, Receipt, RECEIPT_REMEDY)

    def note(self, event: str, **facts: object) -> None:
        """Append one line to the journal, behind whatever a crash may have left of the last one."""
        line = msgspec.json.encode({"at": utc_now(), "event": event, **scrub.deep(facts)}) + b"\n"
        disk.append(self.folder / JOURNAL, line)

    def try_note(self, event: str, **facts: object) -> None:
        """The same where an error is on its way already: a full disk must not hide it."""
        with contextlib.suppress(BatteryError):
            self.note(event, **facts)

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
        return [self.folder / name for name in self.names()]

    def names(self) -> list[str]:
        """The names of the receipt files in the order they were written."""
        try:
            with os.scandir(self.folder) as entries:
                found = [entry.name for entry in entries if _RECEIPT.fullmatch(entry.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found, key=lambda name: (name.index("-"), name))

    def numbers(self) -> set[int]:
        """Every number of which the folder has a receipt, readable or not, those in damaged/ included."""
        return {int(name.split("-")[0]) for name in (*self.names(), *self.damaged())}

    def damaged(self) -> list[str]:
        """The names of the receipts in damaged/."""
        return sorted(path.name for path in (self.folder / DAMAGED).glob("[0-9]*-b*.json"))

    def last_sequence(self) -> int:
        """The highest number that a receipt was given here, damaged ones included; 0 before the first."""
        return max(self.numbers(), default=0)

    def receipts(self) -> list[Receipt]:
        """Every receipt, in order; ReceiptError names the first that cannot be read."""
        return [self._receipt(path) for path in self.paths()]

    def readable(self) -> tuple[list[Receipt], list[str]]:
        """The receipts that can be read, and a complaint for each that cannot."""
        good, complaints = [], []
        for path in self.paths():
            try:
                good.append(self._receipt(path))
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
        return self.chained((path.name, strict.digest(path.read_bytes())) for path in self.paths())

    def chained(self, receipts: Iterable[tuple[str, str]]) -> Seal:
        """The same where the digests of the receipts, with their names and in order, are known already."""
        link = strict.digest(self.folder.name)
        fixed = [
            (name, strict.digest((self.folder / name).read_bytes()))
            for name in (HEADER, PROMPTS, JOURNAL)
            if (self.folder / name).is_file()
        ]
        files = dict([*fixed, *receipts])
        for name, digest in files.items():
            link = strict.digest(f"{link}\n{name}\n{digest}")
        return Seal(campaign=self.folder.name, files=files, seal=link)

    def sealed(self) -> Seal | None:
        """The seal as committed, or None while the campaign is not finished."""
        path = self.folder / SEAL
        return strict.read_json(path, Seal, _REMEDY[SEAL]) if path.is_file() else None


def block_attempts(
    receipts: Iterable[Receipt], header: Header
) -> dict[int, dict[int, list[Receipt]]]:
    """Receipts by block and attempt."""
    found: dict[int, dict[int, list[Receipt]]] = defaultdict(lambda: defaultdict(list))
    for receipt in receipts:
        found[receipt.cell.block][receipt.attempt].append(receipt)
    return found


def whole_attempts(receipts: Iterable[Receipt], header: Header) -> dict[int, list[list[Receipt]]]:
    """Per block, every attempt that has all cells of all arms and stands, in order; the first of them counts.

    An attempt in which the machine was disturbed stands only once the plan's reruns are used up. There is one at most,
    unless somebody measured a block that was complete, or put back a receipt that had been damaged.
    """
    whole = header.cells_per_window * len(header.arms)
    found: dict[int, list[list[Receipt]]] = {}
    for block, attempts in sorted(block_attempts(receipts, header).items()):
        disturbances = 0
        for _, cells in sorted(attempts.items()):
            disturbances += (disturbed := any(cell.breach for cell in cells))
            stands = not disturbed or disturbances > header.plan.limits.reruns
            if len(cells) == whole and stands:
                ordered = sorted(cells, key=lambda receipt: receipt.sequence)
                found.setdefault(block, []).append(ordered)
    return found


def complete_blocks(receipts: Iterable[Receipt], header: Header) -> dict[int, list[Receipt]]:
    """The receipts of each block's first attempt that is whole and stands (`whole_attempts`), by block.

    The first, because whoever could measure a complete block again would choose between two results. Receipts of other
    attempts are kept, shown, never pooled.
    """
    return {block: whole[0] for block, whole in whole_attempts(receipts, header).items()}


def check_pool(receipts: Iterable[Receipt], header: Header) -> None:
    """ReceiptError when receipts do not belong together (`Pool`)."""
    pool = Pool(header)
    for receipt in receipts:
        pool.admit(receipt)


def ended_by_rule(campaign: Campaign) -> int | None:
    """Blocks after which the journal says that the plan's rule ended the campaign; None while it goes on."""
    looks = journal.noted_looks(campaign.journal()).values()
    return min((look.block for look in looks if look.ends), default=None)
