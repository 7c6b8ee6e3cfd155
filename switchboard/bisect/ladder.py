"""Climb the five rungs with one switch on one model, and say what each of them found.

The plain model is observed once; then the switch is put on by the loader itself, and every rung observes again. All
rungs are climbed, also above one that failed: which of them fail is what tells where a fault sits. Whatever a rung
raises is its failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from switchboard.bisect.calls import know
from switchboard.bisect.judge import Judge
from switchboard.bisect.outcome import RUNGS, Climb, Outcome, skip
from switchboard.bisect.rungs import Reference
from switchboard.bisect.subject import Subject
from switchboard.config import Asked
from switchboard.registry import Switch, known

PutOn = Callable[[Subject, Asked], Subject]


def climb(plain: Subject, reference: Reference, asked: Asked, put_on: PutOn) -> Climb:
    """Put the switch on and climb; after a switch that changes the model the subject is not plain any more."""
    switch, before = known()[asked.name], know(plain.model)
    subject = put_on(plain, asked)
    if subject.off is not None:
        outcomes = _stayed_off(subject.off, switch)
    else:
        judge = Judge(subject, reference, before, switch.exactness == "exact")
        outcomes = [Outcome("load", "passed", "put on; its own probe agreed")]
        outcomes += [_timed(name, step, subject) for name, step in _steps(judge, switch).items()]
    return Climb(
        switch=asked.name,
        model=plain.name,
        family=plain.loaded.family,
        exactness=switch.exactness,
        declined=subject.off,
        coverage=subject.coverage,
        outcomes=outcomes,
    )


def _steps(judge: Judge, switch: Switch) -> dict[str, Callable[[], Outcome]]:
    """What each rung is for a switch of this kind."""
    steps: dict[str, Callable[[], Outcome]] = {
        name: getattr(judge, name) for name in RUNGS if name != "load"
    }
    if switch.exactness == "lossy":
        why = "lossy: it changes the text by intent, so there is nothing to hold it to"
        steps |= {name: partial(skip, name, why) for name in RUNGS[1:6]}
    elif switch.stage == "draft":
        why = "a draft changes no module"
        steps |= {name: partial(skip, name, why) for name in RUNGS[1:3]}
        steps |= {"prefill": judge.rows, "decode": judge.loop}
    elif switch.stage == "start":
        why = "rows that are taken up change no module"
        steps |= {name: partial(skip, name, why) for name in RUNGS[1:3]}
        steps |= {
            "prefill": judge.resumed,
            "decode": partial(skip, "decode", "in the prefill rung"),
        }
    return steps


def _stayed_off(reason: str, switch: Switch) -> list[Outcome]:
    """Declined: nothing to prove, unless its own probe found that it is wrong.

    The probe of a lossy switch has nothing to compare with: it tells whether the switch can run here at all.
    """
    first = skip("load", f"declined: {reason}")
    if "parity probe failed" in reason and switch.exactness != "lossy":
        first = Outcome("load", "failed", reason)
    return [first, *(skip(rung, "it is off") for rung in RUNGS[1:])]


def _timed(rung: str, step: Callable[[], Outcome], subject: Subject) -> Outcome:
    started = time.perf_counter()
    # A rung that broke off in the middle of a forward must not spoil the next one.
    subject.session.board.begin()
    try:
        outcome = step()
    except Exception as error:
        outcome = Outcome(rung, "failed", f"raised {type(error).__name__}: {error}")
    return replace(outcome, seconds=round(time.perf_counter() - started, 3))
