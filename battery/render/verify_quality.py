"""Do quality receipts still hold? Each is read again and held against the answers that were graded.

Programs are not run again here: that is `battery score`, and needs leave to run code. What can be told without is told:
that the answers are those of the digest, that every answer has its verdict and no other, that arms were sent the same
requests, and that the scores tell what the record of the asking tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from battery.analyse import asked, extraction
from battery.analyse.asked import FOLDER, Kept
from battery.ledger import saved
from battery.ledger.answers import Answer
from battery.ledger.errors import ReceiptError
from battery.ledger.sanitised import REMEDY
from battery.ledger.store import Campaign

_RESTORE = "restore it from version control"
Found = tuple[str, str, str]
"""Place, what does not hold, remedy."""


def problems(store: Campaign) -> Iterator[Found]:
    """Everything about the quality receipts of a campaign that does not hold; nothing where it has none."""
    where = f"receipts/{store.folder.name}/{FOLDER}"
    folder = store.folder / FOLDER
    good, bad = asked.kept(store.folder, store.header())
    for one in bad:
        yield f"{where}/{one.file}", one.why, "restore it, grade its answers again, or take it away"
    for one in extraction.found(store.folder, good)[1]:
        yield f"{where}/{one.file}", one.why, REMEDY
    known = {path.stem for path in folder.glob("*.json")}
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem not in known:
            yield f"{where}/{path.name}", "these answers have no receipt", "grade them"
    for file, what, remedy in saved.unlike_asked(store.folder, store.header().arm_digests):
        yield f"receipts/{store.folder.name}/{file}", what, remedy
    requests: dict[tuple[str, str, int, int], tuple[str, str]] = {}
    for kept in good:
        path = (folder / kept.file).with_suffix(".jsonl")
        place = f"{where}/{path.name}"
        try:
            answers = _answers(path)
        except ReceiptError as broken:
            yield place, str(broken), _RESTORE
            continue
        for what in _contrary(kept, answers):
            yield place, what, "grade the answers again"
        for key, answer in answers.items():
            same = (kept.suite, *key, answer.seed)
            arm, digest = requests.setdefault(same, (kept.arm, answer.request_digest))
            if digest != answer.request_digest:
                what = (
                    f"sample {key[1]} of {key[0]} was asked otherwise of {kept.arm} than of {arm}"
                )
                yield place, what, "ask both arms with the same battery and sampler"
                break


def _answers(path: Path) -> dict[saved.Key, Answer]:
    """The answers that count in a file; ReceiptError where it cannot be read."""
    if not path.is_file():
        raise ReceiptError("the answers that were graded are missing")
    return saved.standing(saved.read_answers(path))


def _contrary(kept: Kept, answers: dict[tuple[str, int], Answer]) -> Iterator[str]:
    """What verdicts say that the answers do not; the first of each kind."""
    graded = {(one.task, one.sample): one for one in kept.scores.graded}
    if strange := sorted(set(answers) ^ set(graded)):
        task, sample = strange[0]
        lacks = "verdict" if strange[0] in answers else "answer"
        yield f"sample {sample} of {task} has no {lacks} ({len(strange)} in all)"
    for key in sorted(set(answers) & set(graded)):
        answer, verdict = answers[key], graded[key]
        told = (
            ("suite", answer.suite, kept.suite),
            ("cut off", answer.truncated, verdict.truncated),
            ("completion tokens", answer.completion_tokens, verdict.completion_tokens),
            ("lost", answer.error is not None, verdict.status == "request_error"),
        )
        for what, left, right in told:
            if left != right:
                yield f"sample {key[1]} of {key[0]}: {what} is {left}, the verdict says {right}"
                return
