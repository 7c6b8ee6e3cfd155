"""The files of a quality run: where they lie, how answers are appended and read back, and whether they still agree.

receipts/<campaign>/quality/
  <arm>.<suite>.jsonl          one answer a line, appended and synced as it came
  <arm>.<suite>.json           its scores; replaced when the same answers are scored again
  asked/<arm>.<suite>.json     what was asked, and by which server the answers came

They are apart from the campaign's seal: quality may be asked after speed was sealed, and scored again later. What fixes
them are digests of their own: the scores name that of the answers, the record of what was asked that of the data. A
request that failed leaves a line with `error`; it was no completion, so a later run asks again, and the line stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
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
    """Every line of a file of answers, in order; ReceiptError names the first that is none."""
    return list(_parsed(path, path.read_bytes() if path.is_file() else b""))


def _parsed(path: Path, data: bytes) -> Iterator[Answer]:
    """The answers in the bytes of a file."""
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
        self.answers = list(_parsed(path, whole))
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


def broken(campaign: Path, arm_digests: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """(file, what does not hold, what to do) for the quality files of a campaign; nothing where all of it holds.

    Recomputed: the digest of the answers, and from them which task and sample has which row, which rows were cut off or
    failed as requests, and the tokens of each. What a program did when it ran is the grader's word; `battery score`
    gives it again.
    """
    for arm, suite in answered(campaign):
        place = f"{FOLDER}/{arm}.{suite}"
        try:
            asked, scores = read_asked(campaign, arm, suite), read_scores(campaign, arm, suite)
            answers = read_answers(answers_path(campaign, arm, suite))
        except ReceiptError as damaged:
            yield f"{place}.jsonl", str(damaged), "restore the file"
            continue
        if arm_digests.get(arm) not in (None, asked.arm_digest):
            yield (
                f"{FOLDER}/{ASKED}/{arm}.{suite}.json",
                "another arm of that name was asked",
                _REMEDY,
            )
        if scores is None:
            yield f"{place}.jsonl", "these answers are not scored", "score them: battery score"
            continue
        digest = strict.digest(answers_path(campaign, arm, suite).read_bytes())
        for what in _disagreeing(asked, scores, answers, digest):
            yield f"{place}.json", what, _RESCORE
    listed = {f"{arm}.{suite}" for arm, suite in answered(campaign)}
    for path in sorted((campaign / FOLDER).glob("*.json")):
        if path.stem not in listed:
            yield (
                f"{FOLDER}/{path.name}",
                "scores without answers",
                "take it away, or restore the answers",
            )


def _disagreeing(asked: Asked, scores: Scores, answers: list[Answer], digest: str) -> Iterator[str]:
    """What in scores does not follow from what was asked and answered."""
    if scores.answers_digest != digest:
        yield f"scored from other answers (sha256 {scores.answers_digest[:16]}…, the file is {digest[:16]}…)"
        return
    for name in (
        "campaign",
        "arm_digest",
        "dataset",
        "samples",
        "tasks",
        "sampler",
        "prompt_style",
    ):
        if getattr(scores, name) != getattr(asked, name):
            yield f"{name} is not as it was asked"
    wanted = {(task, sample) for task in asked.tasks for sample in range(asked.samples)}
    stands = standing(answers)
    rows = [(row.task, row.sample) for row in scores.graded]
    if len(rows) != len(set(rows)) or set(rows) != wanted:
        yield f"{len(rows)} verdicts on {len(set(rows) & wanted)} of {len(wanted)} answers that were asked for"
    for row in scores.graded:
        answer = stands.get((row.task, row.sample))
        if answer is None or answer.error is not None:
            agrees = row.status == "request_error" and not row.passed
        else:
            agrees = (
                row.truncated == answer.truncated
                and row.completion_tokens == answer.completion_tokens
            )
            agrees = agrees and row.status != "request_error"
        if not agrees or row.passed != (row.status == "passed"):
            yield f"the verdict on {row.task}, sample {row.sample}, does not follow from its answer"
