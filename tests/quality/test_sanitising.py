"""The process that has EvalPlus, as it is spoken to: what it answers, and every way in which it can fail to."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import psutil
import pytest
from evalplus_python import stand_in
from stopped import until

from battery.ledger.errors import BatteryError, InputError
from battery.quality.evalplus import Sanitiser, process

FINE = ("```python\ndef f(x):\n    return x\n```", "f")
CODE = "def f(x):\n    return x\n"
FAULTS = {
    "die": "its process ended by signal 11",
    "leave": "its process ended with exit status 3",
    "garble": "said what cannot be read",
    "mistake": "answered something else than it was asked",
    "both": "answered something else than it was asked",
    "flood": "said more than",
    "raise": "sanitize raised ValueError: source code string cannot contain null bytes",
}


def test_answers_come_in_their_order_and_equal_ones_once(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with Sanitiser(stand_in(tmp_path), workers=2) as sanitiser:
        given = [FINE, ("no code", "f"), FINE, ("```\n``` é 😀", "f")]
        found = sanitiser.run(given, lambda *counts: told.append(counts))
        assert sanitiser.run([]) == []
    assert [one.code for one in found] == [CODE, "", CODE, ""]
    assert told == [(1, 3), (2, 3), (3, 3)] and not any(one.why for one in found)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_is_told_as_such_and_befalls_one_answer(fault: str, tmp_path: Path) -> None:
    with Sanitiser(stand_in(tmp_path), workers=1) as sanitiser:
        found = sanitiser.run([(fault + " x" * 50, "f"), FINE])
        assert sanitiser.run([FINE])[0].code == CODE
    assert found[0].code is None and FAULTS[fault] in found[0].why
    assert found[1] == (CODE, "", found[1].seconds)


def test_an_answer_without_end_runs_out_of_time_and_its_process_is_gone(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with Sanitiser(stand_in(tmp_path), limit_s=3, workers=1) as sanitiser:
        found = sanitiser.run([(f"hang {pid}", "f"), FINE])
        assert not psutil.pid_exists(int(pid.read_text()))
    assert found[0].why == "no answer in 3 s" and found[1].code == CODE


def test_an_interruption_ends_what_is_under_way(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def stop(done: int, total: int) -> None:
        assert until(lambda: pid.is_file() and bool(pid.read_text()), 30)
        raise KeyboardInterrupt

    python = stand_in(tmp_path)
    with Sanitiser(python, limit_s=600, workers=2) as made, pytest.raises(KeyboardInterrupt):
        made.run([(f"hang {pid}", "f"), FINE], stop)
    assert not psutil.pid_exists(int(pid.read_text()))


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("hello['version'] = '0.2.0'", "has EvalPlus 0.2.0, and what is compared with is 0.3.1"),
        ("sys.exit('ModuleNotFoundError: no evalplus')", "no evalplus"),
        ("hello = ['hello']", "says what cannot be read"),
        ("channel.sendall(b'x' * 100_000)", "said more than"),
        ("del hello['source']", "says what cannot be read"),
    ],
)
def test_an_interpreter_without_that_evalplus_is_refused(
    start: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=told) as refused:
        Sanitiser(stand_in(tmp_path, start))
    assert "pip install evalplus==0.3.1" in str(refused.value)


def test_one_that_says_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "START_S", 0.5)
    with pytest.raises(InputError, match=r"no answer in 0\.5 s"):
        Sanitiser(stand_in(tmp_path, "time.sleep(600)"))


def test_no_interpreter_at_all_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="No such file"):
        Sanitiser(tmp_path / "nowhere")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="--evalplus-python"):
        Sanitiser()


def test_one_that_does_not_start_again_is_no_answers_fault(tmp_path: Path) -> None:
    started = tmp_path / "started"
    start = f"os.path.exists({str(started)!r}) and sys.exit('gone')"
    python = stand_in(tmp_path, start)
    with Sanitiser(python, workers=1) as sanitiser:
        started.write_text("")
        with pytest.raises(BatteryError, match=r"does not start again.*gone"):
            sanitiser.run([FINE])


def test_it_sees_nothing_of_our_environment_but_where_programs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    look = tmp_path / "environment"
    Sanitiser(stand_in(tmp_path, f"open({str(look)!r}, 'w').write(repr(sorted(os.environ)))"))
    seen = look.read_text()
    assert "PATH" in seen and "SOME_TOKEN" not in seen
