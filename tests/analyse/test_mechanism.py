from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from synthetic import TOKENS, World, build

from battery.analyse.findings import analyse
from battery.analyse.mechanism import Mechanism
from battery.ledger.receipt import Receipt
from battery.render.speculation import sentence


def counted(gain: float, cost: float, late: float = 1.0) -> Callable[[Receipt], Receipt]:
    """A change: A takes steps of 2 tokens and 0.04 s; C gains `gain` as much, and `cost` as much time, per step.

    C's client sees `late` times the server's decode time. A ripple over blocks keeps the spread above zero.
    """

    def change(receipt: Receipt) -> Receipt:
        own = receipt.cell.arm == "C"
        ripple = 1 + 0.001 * (receipt.cell.block % 3) * (1 if own else -1)
        per_step, step = 2 * (gain * ripple if own else 1), 0.04 * (cost * ripple if own else 1)
        steps = TOKENS / per_step
        timings = {"decode_tokens": TOKENS, "steps": steps, "decode_s": steps * step}
        trace = receipt.trace
        span = steps * step * 1e9 * (late if own else 1)
        first, count = trace.events[0].at_ns, len(trace.events)
        events = tuple(
            type(e)(first + round(span * i / (count - 1)), 1) for i, e in enumerate(trace.events)
        )
        told = msgspec.structs.replace(
            trace, events=events, end_ns=events[-1].at_ns + 1000, timings=timings
        )
        return msgspec.structs.replace(receipt, trace=told)

    return change


def mechanism(root: Path, change: Callable[[Receipt], Receipt], **world: object) -> Mechanism:
    found = analyse(build(root, World(ladder=(128,), seeds=1, change=change, **world)))  # type: ignore[arg-type]
    (one,) = found.mechanisms
    return one


@pytest.mark.parametrize(
    ("gain", "cost", "moved", "words"),
    [
        (1.58, 1.21, "both", "more is gained per step and each step costs more"),
        (0.8, 0.7, "both", "less is gained per step and each step costs less"),
        (1.3, 1.0, "tokens per step", "more is gained per step, at the same cost"),
        (1.0, 0.8, "seconds per step", "each step costs less, and gains the same"),
        (1.0, 1.0, "neither", "neither moved beyond the margin"),
        (1.01, 1.3, "seconds per step", "each step costs more, and gains the same"),
    ],
)
def test_planted_mechanisms_are_told(
    gain: float, cost: float, moved: str, words: str, tmp_path: Path
) -> None:
    one = mechanism(tmp_path, counted(gain, cost))
    assert one.moved == moved and one.why == ""
    assert one.tokens_per_step and one.seconds_per_step and one.decode
    assert one.tokens_per_step.ratio == pytest.approx(gain, rel=0.003)
    assert one.seconds_per_step.ratio == pytest.approx(cost, rel=0.003)
    assert one.decode.ratio == pytest.approx(gain / cost, rel=0.003)
    assert one.remainder == pytest.approx(1, abs=1e-6)
    assert words in sentence(one) and sentence(one).startswith("C at 128: ")


def test_what_the_two_do_not_explain_is_the_remainder(tmp_path: Path) -> None:
    one = mechanism(tmp_path, counted(1.5, 1.0, late=1.1))
    assert one.remainder == pytest.approx(1 / 1.1, rel=1e-6)


def test_an_arm_that_counts_no_steps_is_named(tmp_path: Path) -> None:
    one = mechanism(tmp_path, lambda receipt: receipt, speculates=("C",))
    assert one.moved == "cannot be told" and one.why == "no step of A was counted at this context"
    assert one.remainder is None and one.decode is not None
    assert sentence(one).endswith("cannot be told: no step of A was counted at this context.")
    none = analyse(build(tmp_path / "none", World(ladder=(128,), seeds=1)))
    assert none.mechanisms == ()


def test_an_open_factor_leaves_it_open(tmp_path: Path) -> None:
    def unsteady(receipt: Receipt) -> Receipt:
        gain = 1.2 if receipt.cell.block % 2 else 0.9
        return counted(gain, 1.3)(receipt)

    one = mechanism(tmp_path, unsteady)
    assert one.moved == "cannot be told"
    assert one.why == "tokens per step: undecided; seconds per step: moved"


def test_a_pilot_moves_nothing(tmp_path: Path) -> None:
    one = mechanism(tmp_path, counted(1.5, 1.2), blocks=4)
    assert one.moved == "cannot be told" and "tokens per step: pilot" in one.why
