"""From the words of `battery verify` to campaigns on disk: names, folders, archives and git revisions.

A word that is a folder, an archive or a revision opens a *source*; names that follow it pick campaigns of it, and
without names all of its campaigns are meant. Before the first source, names are campaigns of the project itself.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from battery.ledger import parcel, revision, strict
from battery.ledger.errors import InputError
from battery.ledger.store import HEADER


class Held(NamedTuple):
    """A campaign to be checked."""

    source: str
    """What its source is called in messages; empty for the project itself."""
    root: Path
    """The folder that holds receipts/, charts/ and reports/."""
    campaign: str

    @property
    def told(self) -> str:
        """The campaign with its source, for messages."""
        return f"{self.source}: {self.campaign}" if self.source else self.campaign


class _Source(NamedTuple):
    """Where campaigns are, and which of them are meant."""

    told: str
    root: Path
    names: list[str]

    @property
    def known(self) -> list[str]:
        """Every campaign here, sorted."""
        return sorted(path.parent.name for path in (self.root / "receipts").glob(f"*/{HEADER}"))


@contextlib.contextmanager
def opened(words: Sequence[str], root: Path) -> Iterator[list[Held]]:
    """The campaigns that the words name, archives and revisions opened in temporary folders that go afterwards.

    InputError for a word that names nothing, or a source without a campaign; ReceiptError for an archive or a revision
    that holds what it may not.
    """
    with ExitStack() as stack:
        yield [
            Held(source.told, source.root, name)
            for source in _sources(words, root, stack)
            for name in source.names or source.known
        ]


def _sources(words: Sequence[str], root: Path, stack: ExitStack) -> list[_Source]:
    """The sources in order; the project itself only where one of its campaigns is named, or nothing else is."""
    current = _Source("", root, [])
    found = [current]
    for word in words:
        if word in current.known:
            current.names.append(word)
        else:
            current = _source(word, root, current, stack)
            found.append(current)
    if words and not found[0].names:
        del found[0]
    for source in found:
        if not source.known:
            what = source.told or str(root / "receipts")
            raise InputError(
                f"{what}: no campaign is in it; start one with: battery run --arms A,C"
            )
    return found


def _source(word: str, root: Path, current: _Source, stack: ExitStack) -> _Source:
    """What a word opens that is no campaign of the source before it."""
    path = Path(word)
    if path.is_dir():
        return _folder(word, path)
    if path.is_file():
        folder = _room(stack)
        parcel.unpack(path, folder)
        return _Source(word, folder, [])
    commit = revision.commit_of(word, root)
    if commit is not None:
        folder = _room(stack)
        revision.extract(commit, root, folder)
        return _Source(f"{word} ({commit[:12]})", folder, [])
    if not current.told and (root / "receipts" / path.name / HEADER).is_file():
        return _Source("", root, [path.name])
    where = current.told or str(root / "receipts")
    raise InputError(
        f"{word}: no campaign in {where}, no folder, no archive and no git revision of this name"
        f"{strict.nearest(path.name, current.known)}"
    )


def _folder(word: str, path: Path) -> _Source:
    """A campaign's own folder, or one that holds receipts/."""
    if (path / HEADER).is_file():
        whole = path.resolve()
        if whole.parent.name != "receipts":
            raise InputError(
                f"{word}: lies in no folder receipts/, so its charts and reports cannot be found; put it into"
                " receipts/ with charts/ and reports/ beside that"
            )
        return _Source(str(whole.parents[1]), whole.parents[1], [whole.name])
    if (path / "receipts").is_dir():
        return _Source(word, path, [])
    raise InputError(f"{word}: is no campaign (no {HEADER} in it), and has no folder receipts/")


def _room(stack: ExitStack) -> Path:
    """A temporary folder that is gone when the stack is."""
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="battery-verify-")))
