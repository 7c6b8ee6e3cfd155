"""What a receipt keeps of an answer: its ids only where nothing had to be taken out of it."""

from __future__ import annotations

import pytest

from battery.bench.answer import text_of
from battery.bench.client import Completion
from battery.ledger import strict
from battery.ledger.receipt import MOST_IDS


def answered(text: str, ids: tuple[int, ...] | None = (5, 6, 7)) -> Completion:
    return Completion(outcome="ok", reason=None, phase="decode", text=text, token_ids=ids)


def test_ids_of_a_plain_answer_are_kept_up_to_a_bound() -> None:
    kept = text_of(answered("the quick fox"), ("hunter2-hunter2",))
    assert kept is not None and kept.ids == (5, 6, 7)
    many = text_of(answered("x", tuple(range(MOST_IDS + 1))))
    assert many is not None and many.ids is None and many.ids_digest
    assert text_of(answered("")) is None


@pytest.mark.parametrize(
    "text",
    [
        "my key is hunter2-hunter2.",
        "api_key=sk-abcdefghijklmnop",
        "see " + "/ho" + "me/someone/notes",
    ],
)
def test_ids_would_give_back_what_the_scrubber_takes_out(text: str) -> None:
    kept = text_of(answered(text), ("hunter2-hunter2",))
    assert kept is not None and kept.ids is None
    assert kept.ids_digest == strict.digest([5, 6, 7])
