"""The evidence of a git revision, read out of the object store: the working tree is neither asked nor touched.

Blobs are taken as they are committed. `git archive` would apply the revision's own attributes (export-subst, line
ends), and whoever wrote the revision wrote these, too.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import IO, NamedTuple

from battery.ledger.errors import InputError, ReceiptError
from battery.ledger.intake import TOP, Intake

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PLAIN = ("100644", "100755")
_KINDS = {"120000": "is a symbolic link", "160000": "is a submodule"}
_ENVIRONMENT = {
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1",
}  # fmt: skip


class _Blob(NamedTuple):
    """A file of a revision."""

    mode: str
    name: str
    hash: str
    size: int


def commit_of(word: str, root: Path) -> str | None:
    """The full hash of the commit that a word names in the repository around `root`; None where it names none.

    InputError for a word that begins with a dash: to git it would be an option.
    """
    if word.startswith("-"):
        raise InputError(
            f"{word!r}: no revision begins with '-'; name a branch, a tag or a commit, as refs/heads/{word} or its hash"
        )
    try:
        done = subprocess.run(
            _git(root, "rev-parse", "--verify", "--quiet", f"{word}^{{commit}}"),
            capture_output=True, text=True, errors="replace", env={**os.environ, **_ENVIRONMENT},
        )  # fmt: skip
    except OSError:
        return None  # git is not installed: then nothing is a revision
    except ValueError:
        return None  # a NUL in the word
    found = done.stdout.strip()
    return found if done.returncode == 0 and _HASH.fullmatch(found) else None


def extract(commit: str, root: Path, folder: Path) -> None:
    """Write receipts/, charts/ and reports/ of a commit below an empty folder; ReceiptError for what is no plain file.

    `root` is the folder in the repository that they lie in. Names and sizes are held against the rules of
    ledger.intake: a revision of somebody's pull request is as untrusted as an archive.
    """
    intake = Intake(f"revision {commit[:12]}", folder)
    blobs = _listed(commit, root)
    reader = subprocess.Popen(
        _git(root, "cat-file", "--batch"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **_ENVIRONMENT},
    )  # fmt: skip
    with reader:
        assert reader.stdin is not None and reader.stdout is not None
        for blob in blobs:
            if blob.mode not in _PLAIN:
                raise intake.refuse(blob.name, _KINDS.get(blob.mode, "is no plain file"))
            path = intake.admit(blob.name, blob.size)
            reader.stdin.write(f"{blob.hash}\n".encode())
            reader.stdin.flush()
            path.write_bytes(_object(reader.stdout, blob, intake))


def _object(stream: IO[bytes], blob: _Blob, intake: Intake) -> bytes:
    """The bytes of one blob as `cat-file --batch` sends them: a line of hash, type and size, the bytes, a line end."""
    told = stream.readline().split()
    if len(told) != 3 or told[1] != b"blob" or int(told[2]) != blob.size:
        raise intake.refuse(blob.name, "is not in the repository's objects (a partial clone?)")
    data = stream.read(blob.size)
    stream.read(1)
    return data


def _listed(commit: str, root: Path) -> list[_Blob]:
    """The files of a commit in the folders of evidence, below `root`; InputError where there are none."""
    done = subprocess.run(
        _git(root, "ls-tree", "-r", "-z", "-l", commit, "--", *(f"{top}/" for top in TOP)),
        capture_output=True, env={**os.environ, **_ENVIRONMENT},
    )  # fmt: skip
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip()
        raise ReceiptError(f"revision {commit[:12]}: git cannot list it ({why}); fetch it whole")
    found = []
    for entry in done.stdout.split(b"\0"):
        if entry:
            facts, _, name = entry.partition(b"\t")
            mode, _, digest, size = facts.decode().split()
            told = name.decode("utf-8", "surrogateescape")
            found.append(_Blob(mode, told, digest, 0 if size == "-" else int(size)))
    if not any(blob.name.startswith("receipts/") for blob in found):
        raise InputError(
            f"revision {commit[:12]}: no receipts/ in it; name a revision with a campaign"
        )
    return found


def _git(root: Path, *words: str) -> list[str]:
    """A git command in the repository around `root`."""
    return ["git", "-C", str(root), *words]
