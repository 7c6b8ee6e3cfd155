"""EvalPlus's verdicts with known ends, written beside the quality receipts of a synthetic campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from graded import LETTERS

from battery.ledger import sanitised, saved
from battery.ledger.sanitised import Extracted, Form, Peer, Sanitised
from battery.ledger.store import pretty

PEER = Peer(version="0.3.1", source="0" * 64, python="3.11.7", limit_s=60.0)
FORMS: dict[str, Form] = {"p": "defines", "f": "lacks", "s": "broken", "e": "blank", "c": "defines"}


def row(task: str, sample: int, letter: str) -> Sanitised:
    """A verdict by its letter, as those of `graded`; `u`: none, `C`: cut off with code that passes."""
    at: dict[str, Any] = {"task": task, "sample": sample, "truncated": letter in "cC"}
    if letter == "u":
        return Sanitised(**at, passed=None, status=None, detail="no answer in 60 s", seconds=60.0)
    status = LETTERS[letter.lower()]
    if letter == "x":
        return Sanitised(**at, passed=False, status=status)
    ran = {"c": "failed", "C": "passed"}.get(letter, status)
    return Sanitised(
        **at, passed=letter == "p", status=status, ran=ran, form=FORMS[letter.lower()],
        code_digest="0" * 64, seconds=0.1,
    )  # type: ignore[arg-type]  # fmt: skip


def beside(folder: Path, arm: str, suite: str, told: str, /, **changes: Any) -> Path:
    """Write what EvalPlus makes of the answers whose scores lie there, as the letters say; its path."""
    scores = saved.read_scores(folder, arm, suite)
    assert scores is not None
    rows = tuple(
        row(ours.task, ours.sample, letter)
        for ours, letter in zip(scores.graded, told, strict=True)
    )
    one = Extracted(
        campaign=scores.campaign, arm=arm, arm_digest=scores.arm_digest, suite=scores.dataset.suite,
        dataset_digest=scores.dataset.digest, answers_digest=scores.answers_digest, peer=PEER, grader=scores.grader,
        rows=rows, ended="2026-01-02T05:00:00Z",
    )  # fmt: skip
    path = sanitised.path_of(folder, arm, suite)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pretty(msgspec.structs.replace(one, **changes)))
    return path
