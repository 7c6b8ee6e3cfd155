from __future__ import annotations

import io

from rich.console import Console

from battery.ledger.answers import Answer
from battery.quality.telling import Bar, Clock, Lines, Telling, line, shown


def answer(**changes: object) -> Answer:
    told: dict[str, object] = {"finish_reason": "stop", "completion_tokens": 1234} | changes
    return Answer(
        suite="mbpp", task="Mbpp/2", sample=0, seed=1, request_digest="r", started="now", **told
    )  # type: ignore[arg-type]


def test_a_line_says_how_an_answer_ended() -> None:
    assert line("A", answer()) == "A mbpp Mbpp/2: stop, 1,234 tokens"
    assert line("A", answer(finish_reason="length")).endswith(": cut off, 1,234 tokens")
    assert line("A", answer(completion_tokens=None, attempts=2)).endswith(
        "an unknown number of tokens (2 attempts)"
    )
    assert line("A", answer(error="HTTP 500", attempts=6)).endswith(
        ": no answer (6 attempts): HTTP 500"
    )


def test_time_left_is_not_told_before_the_first_answer() -> None:
    clock = Clock(3, 5)
    assert clock.left() == ""
    clock.count()
    assert clock.done == 4 and clock.left().startswith("about ")
    clock.count()
    assert clock.left() == "about 0 s left"


def test_each_place_gets_what_fits() -> None:
    with shown(True, Console()) as quiet:
        assert type(quiet) is Telling
    with shown(False, Console(file=io.StringIO())) as lines:
        assert isinstance(lines, Lines)
    with shown(False, Console(file=io.StringIO(), force_terminal=True)) as bar:
        assert isinstance(bar, Bar)


def test_the_bar_counts_answers_and_how_they_ended() -> None:
    screen = io.StringIO()
    with shown(False, Console(file=screen, force_terminal=True, width=160)) as bar:
        bar.started(1, 4)
        bar.phase("A", "mbpp [x]")
        bar.answer("A", answer())
        bar.answer("A", answer(finish_reason="length"))
        bar.answer("A", answer(error="HTTP 500 [bold]"))
        bar.note("a note")
    told = screen.getvalue()
    assert "A: mbpp [x]" in told and "4/4" in told and "1 stop, 1 cut off, 1 no answer" in told
    assert "no answer: HTTP 500 [bold]" in told and "a note" in told
