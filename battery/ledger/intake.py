"""What is let in from outside: every name checked and every byte counted before a file is made of it.

An archive that somebody sends, or a revision that somebody pushes, is made by who wants to be believed. Nothing in it
may land beside the folder it is opened in, replace what is there already, or fill the disk; and what is refused is
told by its name and its reason. An archive of battery itself passes every rule, so there is no way around them.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from battery.ledger.errors import ReceiptError

TOP = ("receipts", "charts", "reports")
"""The folders that evidence lies in; nothing else is taken."""
MOST_MEMBERS = 250_000
"""Files of one archive: some hundred thousand receipts and their charts."""
MOST_BYTES = 64 * 2**20
"""Of one file: a receipt of hours has some megabytes, findings of a hundred thousand receipts fewer."""
MOST_TOTAL = 2 * 2**30
"""Of all files together."""
LONGEST = 240
"""Letters of a name, folders included: what every file system takes."""
_DRIVE = re.compile(r"^[A-Za-z]:")


class Intake:
    """One parcel that is being opened: which names it has had, and how much is in it."""

    def __init__(self, where: str, folder: Path) -> None:
        """`where` names the parcel in messages; files go below `folder`, which is there and empty."""
        self.where, self.folder = where, folder
        self._files: dict[str, str] = {}
        self._folders: set[str] = set()
        self._total = 0

    def refuse(self, name: str, why: str) -> ReceiptError:
        """The error that says what is wrong with a member, to be raised; nothing of the parcel is used then."""
        return ReceiptError(
            f"{self.where}: member {name[:LONGEST]!r} {why}; nothing of it is used: ask for one made by battery pack"
        )

    def admit(self, name: str, size: int) -> Path:
        """Where a file of this name and size in bytes may be written; ReceiptError where it may not be."""
        self.check(name, size)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def check(self, name: str, size: int) -> None:
        """Count a file; ReceiptError where none of this name and size may be there."""
        self.name(name)
        self._once(name)
        self._total += size
        if size > MOST_BYTES:
            raise self.refuse(name, f"has {size:,} bytes, more than the {MOST_BYTES:,} of a file")
        if self._total > MOST_TOTAL:
            raise self.refuse(name, f"brings all files to more than {MOST_TOTAL:,} bytes")
        if len(self._files) > MOST_MEMBERS:
            raise self.refuse(name, f"is more than the {MOST_MEMBERS:,} files of an archive")

    def name(self, name: str) -> None:
        """ReceiptError for a name that is no plain path below receipts/, charts/ or reports/."""
        parts = name.split("/")
        told = (
            (not name, "has no name"),
            (len(name) > LONGEST, f"has a name of more than {LONGEST} letters"),
            (not name.isprintable(), "has signs in its name that cannot be printed"),
            (name.startswith("/") or _DRIVE.match(name) is not None, "has an absolute path"),
            ("\\" in name, "has a backslash in its name, which some systems take for a folder"),
            (":" in name, "has a colon in its name, which some systems take for a stream"),
            (".." in parts, "has a path that leads out of the folder it is opened in"),
            ("" in parts or "." in parts, "has a path with an empty part or a '.' in it"),
            (any(part.endswith((".", " ")) for part in parts), "has a part that ends in a point or a blank"),
            (parts[0] not in TOP or len(parts) < 2, f"does not lie in {'/, '.join(TOP)}/"),
        )  # fmt: skip
        for wrong, why in told:
            if wrong:
                raise self.refuse(name, why)

    def _once(self, name: str) -> None:
        """ReceiptError for a name that was there, or that some file system would take for one that was there."""
        key = _same(name)
        if key in self._files:
            first = self._files[key]
            why = "is there twice" if first == name else f"differs from {first!r} by case only"
            raise self.refuse(name, why)
        above = [key.rsplit("/", depth)[0] for depth in range(1, key.count("/") + 1)]
        if key in self._folders or any(folder in self._files for folder in above):
            raise self.refuse(name, "is a file and a folder at once")
        self._files[key] = name
        self._folders.update(above)


def _same(name: str) -> str:
    """What names have in common that a file system may take for one."""
    return unicodedata.normalize("NFC", name).casefold()
