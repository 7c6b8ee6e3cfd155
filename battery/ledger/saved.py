"""The files of a quality run: where they lie, how answers are appended and read, whether scores tell what was asked.

receipts/<campaign>/quality/
  <arm>.<suite>.jsonl          one answer a line, appended and synced as it came
  <arm>.<suite>.json           its scores; replaced when the same answers are scored again
  asked/<arm>.<suite>.json     what was asked, and by which server the answers came
  evalplus/<arm>.<suite>.json  verdicts by another extraction of them (ledger.sanitised), where it was asked for

They are apart from the campaign's seal: quality may be asked after speed was sealed, and scored again later. What fixes
them are digests of their own: the scores name that of the answers, the record of what was asked that of the data. A
request that failed leaves a line with `error`; it was no completion, so a later run asks again, and the line stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

import msgspec

from battery.ledger import disk, strict
from battery.ledger.answers import Answer, Scores, SuiteName
from battery.ledger.asked import Asked
from battery.ledger.errors import ReceiptError

FOLDER, ASKED = "quality", "asked"
_REMEDY = "restore it from version control, or ask again under a new campaign name"
_RESCORE = "restore it from version control, or score the answers again: battery score"
Key = tuple[str, int]
"""Task and sample."""


def answers_path(campaign: Path, arm: str, suite: str) -> Path:
    """The answers of an arm to a suite."""
    return campaign / FOLDER / f"{arm}.{suite}.jsonl"


def scores_path(campaign: Path, arm: str, suite: str) -> Path:
    """The scores of these answers."""
    return campaign / FOLDER / f"{arm}.{suite}.json"


def asked_path(campaign: Path, arm: str, suite: str) -> Path:
    """The record of what was asked."""
    return campaign / FOLDER / ASKED / f"{arm}.{suite}.json"


def answered(campaign: Path) -> list[tuple[str, SuiteName]]:
    """(arm, suite) of every file of answers in a campaign, sorted."""
    found: list[tuple[str, SuiteName]] = []
    for path in (campaign / FOLDER).glob("*.jsonl"):
        arm, _, suite = path.name.removesuffix(".jsonl").rpartition(".")
        found += [(arm, known) for known in get_args(SuiteName) if known == suite and arm]
    return sorted(found)


def read_asked(campaign: Path, arm: str, suite: str) -> Asked:
    """What was asked; ReceiptError where it is missing or damaged."""
    return strict.read_json(asked_path(campaign, arm, suite), Asked, _REMEDY)


def read_scores(campaign: Path, arm: str, suite: str) -> Scores | None:
    """The scores of an arm and a suite; None where nothing was scored; ReceiptError where they are damaged."""
    path = scores_path(campaign, arm, suite)
    return strict.read_json(path, Scores, _RESCORE) if path.is_file() else None


def read_answers(path: Path) -> list[Answer]:
    """Every whole line of a file of answers, in order; ReceiptError names the first that is no answer."""
    return list(parsed(path, path.read_bytes() if path.is_file() else b""))


def parsed(path: Path, data: bytes) -> Iterator[Answer]:
    """The answers in the bytes of a file; a last line that was never ended is still on its way, or lost in a crash."""
    data = data[: data.rfind(b"\n") + 1]
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line:
            try:
                yield msgspec.json.decode(line, type=Answer)
            except (msgspec.DecodeError, UnicodeDecodeError) as broken:
                raise ReceiptError(f"{path}:{number}: no answer ({broken}); {_REMEDY}") from broken


def standing(answers: Iterable[Answer]) -> dict[Key, Answer]:
    """The answer that counts for each task and sample: the first completion, else the last error.

    The first, because whoever could ask again would choose between two answers.
    """
    found: dict[Key, Answer] = {}
    for answer in answers:
        key = (answer.task, answer.sample)
        if key not in found or found[key].error is not None:
            found[key] = answer
    return found


class AnswersFile:
    """A file of answers, open to be appended to; every line is on disk before `append` returns. For one writer."""

    def __init__(self, path: Path) -> None:
        """Heals what a crash left: a last line that is no answer goes, one that only lacks its end gets it."""
        self.path, self.healed = path, 0
        """Bytes of a torn last line that were cut off."""
        data = path.read_bytes() if path.is_file() else b""
        whole, _, rest = data.rpartition(b"\n")
        whole = whole + b"\n" if whole else b""
        if rest:
            try:
                msgspec.json.decode(rest, type=Answer)
                whole += rest + b"\n"
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.healed = len(rest)
        self.answers = list(parsed(path, whole))
        if whole != data or not path.is_file():
            disk.replace(path, whole)
        with disk.writing(path):
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def close(self) -> None:
        """Close it; what was appended is on disk."""
        os.close(self._handle)

    def append(self, answer: Answer) -> None:
        """Keep one more answer."""
        with disk.writing(self.path):
            disk.write_all(self._handle, msgspec.json.encode(answer) + b"\n")
            os.fsync(self._handle)
        self.answers.append(answer)


def clean(campaign: Path) -> None:
    """Remove what a killed battery left of files on their way. Only for who holds the machine's lock."""
    for part in (campaign / FOLDER).rglob(f"{disk.PART}*"):
        with disk.writing(part):
            part.unlink(missing_ok=True)


def unlike_asked(campaign: Path, arm_digests: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(file, what does not hold, what to do) for the records of what was asked; nothing where all of it holds.

    A record must be there for every file of answers, of the campaign's own arm, and the scores must tell the same
    dataset, tasks, sampler and wording as it does: with another sampler written in, a figure would be of another
    question.
    """
    for arm, suite in answered(campaign):
        place = f"{FOLDER}/{ASKED}/{arm}.{suite}.json"
        try:
            asked, scores = read_asked(campaign, arm, suite), read_scores(campaign, arm, suite)
        except ReceiptError as damaged:
            yield place, str(damaged), "restore the file"
            continue
        if arm_digests.get(arm) not in (None, asked.arm_digest):
            yield place, "another arm of that name was asked", _REMEDY
        for name in _SAME if scores is not None else ():
            if getattr(scores, name) != getattr(asked, name):
                yield f"{FOLDER}/{arm}.{suite}.json", f"{name} is not as it was asked", _RESCORE


_SAME = (
    "campaign", "arm", "arm_digest", "dataset", "samples", "tasks", "sampler", "concurrency", "prompt_style",
    "engagement", "model", "versions", "machine",
)  # fmt: skip
"""What scores repeat of the record."""
