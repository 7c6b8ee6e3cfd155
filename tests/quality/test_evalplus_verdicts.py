"""EvalPlus's own `sanitize` beside our extraction: answers of which both verdicts are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from evalplus_python import evalplus_python
from kept_answers import keep, tasks_of

from battery.analyse.extraction import Extraction, extraction, unfit
from battery.ledger import sanitised, strict
from battery.ledger.sanitised import Extracted
from battery.quality.evalplus import Sanitiser
from battery.quality.evalplus.beside import form
from battery.quality.score import score_suite


def fenced(code: str) -> str:
    return f"Here it is.\n\n```python\n{code}```\n"


class Known(NamedTuple):
    """An answer, and what each extraction makes of it: our status, EvalPlus's, and the form of EvalPlus's code."""

    content: str
    ours: str
    theirs: str
    form: str
    finish_reason: str = "stop"


KNOWN = {
    "plain": Known(fenced("def f(x):\n    return x + 1\n"), "passed", "passed", "defines"),
    "wrong": Known(fenced("def f(x):\n    return x - 1\n"), "failed", "failed", "defines"),
    "helper without return": Known(
        fenced("def put(a, x):\n    a.append(x)\n\ndef f(x):\n    a = []\n    put(a, x)\n    return a[0] + 1\n"),
        "passed", "failed", "defines",
    ),
    "second of two definitions": Known(
        fenced("def f(x):\n    return x\n\ndef f(x):\n    return x + 1\n"), "passed", "failed", "defines",
    ),
    "first of two definitions": Known(
        fenced("def f(x):\n    return x + 1\n\ndef f(x):\n    return x\n"), "failed", "passed", "defines",
    ),
    "one-line lambda": Known(fenced("f = lambda x: x + 1\n"), "passed", "syntax_error", "broken"),
    "code in the reasoning alone": Known(
        "<think>\nPerhaps\n\ndef f(x):\n    y = x\n    return y + 1\n\n</think>\n\nI cannot say.",
        "empty", "passed", "defines",
    ),
    "decorated": Known(
        fenced("from functools import cache\n\n@cache\ndef f(x):\n    return x + 1\n"), "passed", "failed", "lacks",
    ),
    "tuple of globals": Known(
        fenced("ZERO, ONE = 0, 1\n\ndef f(x):\n    y = x\n    return y + ONE\n"), "passed", "failed", "defines",
    ),
    "import of the prompt": Known(
        fenced("def f(x: List[int]) -> int:\n    return x + 1\n"), "passed", "failed", "defines",
    ),
    "nothing": Known("", "empty", "empty", "blank"),
    "cut off, and right": Known(
        fenced("def f(x):\n    return x + 1\n"), "cut_off", "cut_off", "defines", "length",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Extracted, Extraction]]:
    """Every known answer as one of a campaign's, scored with EvalPlus beside; and the last request without one."""
    python, root = evalplus_python(), tmp_path_factory.mktemp("both")
    loaded = tasks_of([{"prompt": "from typing import List\n\ndef f(x):\n"}] * (len(KNOWN) + 1))
    given = [{"content": one.content, "finish_reason": one.finish_reason} for one in KNOWN.values()]
    folder = keep(root, loaded, [*given, {"error": "503"}])
    with Sanitiser(python, workers=1) as sanitiser:
        (scores,) = score_suite(folder, loaded, ["A"], workers=1, sanitiser=sanitiser)
    path = sanitised.path_of(folder, "A", "humaneval")
    theirs = sanitised.read(path)
    assert unfit(path.name, theirs, scores) == ""
    yield theirs, extraction(scores, theirs)


@pytest.mark.parametrize("name", list(KNOWN))
def test_each_known_answer_has_its_verdict(name: str, both: tuple[Extracted, Extraction]) -> None:
    theirs, counted = both
    place, known = list(KNOWN).index(name), KNOWN[name]
    row = theirs.rows[place]
    assert (row.status, row.form) == (known.theirs, known.form), row.detail
    assert row.passed is (known.theirs == "passed") and row.code_digest and row.seconds is not None
    ours = {one.task: one.ours for one in (*counted.ours_only, *counted.theirs_only)}
    differs = (known.ours == "passed") != (known.theirs == "passed")
    assert ours.get(row.task) == (known.ours if differs else None)


def test_they_are_counted_side_by_side(both: tuple[Extracted, Extraction]) -> None:
    theirs, counted = both
    assert (counted.ours.count, counted.theirs.count, counted.answers) == (7, 3, len(KNOWN) + 1)
    assert len(counted.ours_only) == 6 and len(counted.theirs_only) == 2
    assert counted.unjudged == () and (counted.cut_off, counted.cut_off_passing) == (1, 1)
    assert theirs.rows[-1].status == "request_error" and theirs.rows[-1].ran is None
    assert {one.rule for one in counted.ours_only} == {"last defining fence"}
    assert {one.rule for one in counted.theirs_only} == {"last defining fence", "no code"}


def test_it_says_whose_extraction_it_was(both: tuple[Extracted, Extraction]) -> None:
    peer = both[0].peer
    assert peer.name == "EvalPlus 0.3.1 sanitize" and len(peer.source) == 64 and peer.limit_s == 60
    assert set(peer.parsers) == {"tree-sitter", "tree-sitter-python"}
    assert both[0].rows[0].code_digest == strict.digest("def f(x):\n    return x + 1")


def test_prose_without_end_runs_out_of_time_and_is_no_fail() -> None:
    prose = "\n".join(f"note: step {n} of it" for n in range(900))
    with Sanitiser(evalplus_python(), limit_s=1, workers=1) as sanitiser:
        slow, broken = sanitiser.run([(prose, "f"), ("a\0\nb", "f")])
    assert slow.code is None and slow.why == "no answer in 1 s"
    assert broken.code is not None or broken.why.startswith("sanitize raised ValueError")


def test_what_a_piece_of_code_is() -> None:
    told = {
        "def f(): pass": "defines", "f = print": "defines", "from os import sep as f": "defines",
        "def g(): pass": "lacks", "class f: pass": "lacks", "```python": "broken", " \n": "blank", "": "blank",
    }  # fmt: skip
    assert {code: form(code, "f") for code in told} == told
